package chaos

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// pollPause is the pause between two looks at one partition; it is how finely
// "visible before it was decided" is seen.
const pollPause = 50 * time.Millisecond

// reader follows all partitions of the load as read_committed consumers would.
type reader struct {
	stop context.CancelFunc
	done sync.WaitGroup

	mu   sync.Mutex
	seen []history.Read
	next map[history.Place]int64 // read up to here
}

func places(clusters map[string]string) []history.Place {
	var all []history.Place
	for name := range clusters {
		for _, topic := range topics {
			for p := range partitions {
				all = append(all, history.Place{Cluster: name, Topic: topic, Partition: int32(p)})
			}
		}
	}
	return all
}

// follow starts to read; clusters are their addresses.
func follow(ctx context.Context, clusters map[string]string) *reader {
	r := &reader{next: map[history.Place]int64{}}
	ctx, r.stop = context.WithCancel(ctx)
	for name, addr := range clusters {
		rb := readback.NewReader(addr)
		var polls sync.WaitGroup
		for _, p := range places(map[string]string{name: addr}) {
			polls.Go(func() { r.poll(ctx, rb, p) })
		}
		r.done.Go(func() {
			polls.Wait()
			rb.Close()
		})
	}
	return r
}

func (r *reader) close() {
	r.stop()
	r.done.Wait()
}

func (r *reader) poll(ctx context.Context, rb *readback.Reader, p history.Place) {
	for from := int64(0); ctx.Err() == nil; sleep(ctx, pollPause) {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		got, err := rb.Partition(asking, p.Topic, int(p.Partition), from)
		cancel()
		if err != nil {
			continue // the cluster is away; the next look sees all that this one missed
		}
		from = max(from, got.LastStableOffset)
		r.add(p, from, reads(p, got.Records, time.Now().UnixNano()))
	}
}

func reads(p history.Place, records []readback.Record, at int64) []history.Read {
	rs := make([]history.Read, len(records))
	for i, rec := range records {
		rs[i] = history.Read{At: at, Place: p, Offset: rec.Offset, Value: rec.Value}
	}
	return rs
}

func (r *reader) add(p history.Place, next int64, rs []history.Read) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.next[p] = next
	r.seen = append(r.seen, rs...)
}

// all is what was seen so far.
func (r *reader) all() []history.Read {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.seen[:len(r.seen):len(r.seen)]
}

// behind reports that the reader has not read up to the offset.
func (r *reader) behind(p history.Place, offset int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next[p] < offset
}

// readAll reads everything once more, from the start.
func readAll(ctx context.Context, clusters map[string]string) ([]history.Read, error) {
	var all []history.Read
	for name, addr := range clusters {
		rb := readback.NewReader(addr)
		defer rb.Close()
		for _, topic := range topics {
			records, err := rb.Topic(ctx, topic)
			if err != nil {
				return nil, fmt.Errorf("chaos: reading %s on %s: %w", topic, name, err)
			}
			for _, rec := range records {
				p := history.Place{Cluster: name, Topic: topic, Partition: int32(rec.Partition)}
				all = append(all, history.Read{Place: p, Offset: rec.Offset, Value: rec.Value})
			}
		}
	}
	return all, nil
}
