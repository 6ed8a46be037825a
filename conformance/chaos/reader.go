package chaos

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// pollPause is the pause between two looks at one partition; it is how finely
// "visible before it was decided" is seen.
const pollPause = 50 * time.Millisecond

// reader follows all partitions of the load as read_committed consumers would. A
// cluster that goes back gives its offsets anew, so that it is read from the start
// in each of its lives.
type reader struct {
	polls map[string]*polls // by cluster

	mu   sync.Mutex
	seen []history.Read
	next map[history.Place]int64 // read up to here
	life map[string]int
}

// polls are those of one cluster that are under way.
type polls struct {
	addr string
	stop context.CancelFunc
	done sync.WaitGroup
}

func places(cluster string) []history.Place {
	var all []history.Place
	for _, topic := range topics {
		for p := range partitions {
			all = append(all, history.Place{Cluster: cluster, Topic: topic, Partition: int32(p)})
		}
	}
	return all
}

// follow starts to read; clusters are their addresses.
func follow(ctx context.Context, clusters map[string]string) *reader {
	r := &reader{polls: map[string]*polls{}, next: map[history.Place]int64{}, life: map[string]int{}}
	for name, addr := range clusters {
		r.polls[name] = &polls{addr: addr}
		r.begin(ctx, name)
	}
	return r
}

func (r *reader) begin(ctx context.Context, cluster string) {
	ps := r.polls[cluster]
	ctx, ps.stop = context.WithCancel(ctx)
	rb, life := readback.NewReader(ps.addr), r.life[cluster]
	var all sync.WaitGroup
	for _, p := range places(cluster) {
		all.Go(func() { r.poll(ctx, rb, p, life) })
	}
	ps.done.Go(func() {
		all.Wait()
		rb.Close()
	})
}

// leave ends the reading of a cluster, before it goes back.
func (r *reader) leave(cluster string) {
	r.polls[cluster].stop()
	r.polls[cluster].done.Wait()
}

// again reads a cluster from the start that has gone back.
func (r *reader) again(ctx context.Context, cluster string) {
	r.mu.Lock()
	r.life[cluster]++
	for _, p := range places(cluster) {
		delete(r.next, p)
	}
	r.mu.Unlock()
	r.begin(ctx, cluster)
}

func (r *reader) close() {
	for name := range r.polls {
		r.leave(name)
	}
}

func (r *reader) poll(ctx context.Context, rb *readback.Reader, p history.Place, life int) {
	for from := int64(0); ctx.Err() == nil; sleep(ctx, pollPause) {
		asking, cancel := context.WithTimeout(ctx, 2*time.Second)
		got, err := rb.Partition(asking, p.Topic, int(p.Partition), from)
		cancel()
		if err != nil {
			continue // the cluster is away; the next look sees all that this one missed
		}
		from = max(from, got.LastStableOffset)
		r.add(p, from, reads(p, life, got.Records, time.Now().UnixNano()))
	}
}

func reads(p history.Place, life int, records []readback.Record, at int64) []history.Read {
	rs := make([]history.Read, len(records))
	for i, rec := range records {
		rs[i] = history.Read{At: at, Place: p, Offset: rec.Offset, Value: rec.Value, Life: life}
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

// visible is what was seen so far in the present life of each cluster.
func (r *reader) visible() []history.Read {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.seen), func(seen history.Read) bool { return seen.Life != r.life[seen.Place.Cluster] })
}

// behind reports that the reader has not read up to the offset.
func (r *reader) behind(p history.Place, offset int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.next[p] < offset
}

// readAll reads everything once more, from the start.
func (r *reader) readAll(ctx context.Context) ([]history.Read, error) {
	var all []history.Read
	for name, ps := range r.polls {
		rb := readback.NewReader(ps.addr)
		defer rb.Close()
		for _, topic := range topics {
			records, err := rb.Topic(ctx, topic)
			if err != nil {
				return nil, fmt.Errorf("chaos: reading %s on %s: %w", topic, name, err)
			}
			for _, rec := range records {
				p := history.Place{Cluster: name, Topic: topic, Partition: int32(rec.Partition)}
				all = append(all, history.Read{Place: p, Offset: rec.Offset, Value: rec.Value, Life: r.life[name]})
			}
		}
	}
	return all, nil
}
