package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Visibility is what read_committed readers on two clusters saw of global
// transactions, one record on each cluster.
type Visibility struct {
	Transactions int
	// Skew is the time between the first and the second cluster's reader.
	// After is from the end of Commit to the second one; it is negative when
	// the readers were faster than the answer.
	Skew, After Spread
}

// Spread is a distribution.
type Spread struct{ Median, P99, Max time.Duration }

func spread(all []time.Duration) Spread {
	slices.Sort(all)
	return Spread{all[len(all)/2], all[len(all)*99/100], all[len(all)-1]}
}

// Skew commits transactions one after another over two clusters and notes when
// a reader on each sees them. What it tells includes a reader's own delay.
func Skew(ctx context.Context, o Options, transactions int) (v Visibility, err error) {
	p, err := newPair(ctx, o, "skew")
	if err != nil {
		return v, err
	}
	defer p.stop()
	cl, err := p.global(ctx, "skew", 1)
	if err != nil {
		return v, err
	}
	defer cl.close()
	readers := map[string]<-chan time.Time{}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for name, addr := range p.addrs {
		if readers[name], err = arrivals(ctx, addr); err != nil {
			return v, err
		}
	}
	var skew, after []time.Duration
	const warm = 20
	for i := range warm + transactions {
		if err = cl.commit(ctx); err != nil {
			return v, err
		}
		told := time.Now()
		var seen []time.Time
		for _, arrived := range readers {
			select {
			case at := <-arrived:
				seen = append(seen, at)
			case <-ctx.Done():
				return v, ctx.Err()
			}
		}
		slices.SortFunc(seen, time.Time.Compare)
		if i >= warm {
			skew, after = append(skew, seen[1].Sub(seen[0])), append(after, seen[1].Sub(told))
		}
	}
	return Visibility{Transactions: transactions, Skew: spread(skew), After: spread(after)}, nil
}

// arrivals are the times at which a read_committed reader sees records.
func arrivals(ctx context.Context, addr string) (<-chan time.Time, error) {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return nil, fmt.Errorf("a reader at %s: %w", addr, err)
	}
	seen := make(chan time.Time, 1)
	go func() {
		defer cl.Close()
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			now := time.Now()
			for range fetches.NumRecords() {
				select {
				case seen <- now:
				case <-ctx.Done():
				}
			}
		}
	}()
	return seen, nil
}
