package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Pace is how fast clients commit, each one transaction after another.
type Pace struct {
	Way       string
	Clients   int
	PerSecond float64 // median of the turns
	Latency   Spread  // from the begin to the answer of the commit, of all turns
}

// Commits measures transactions of one record on each of two clusters, for each
// number of clients in three ways:
//
//   - the dual commit: a transaction of Kafka's on each cluster, both ended at
//     the same time. It is what an application can do without a coordinator, and
//     it is not safe: a crash between the two leaves one of them.
//   - one id: global transactions under one id for each client.
//   - a ring: as one id, with so many ids for each client.
//
// The ways take turns, so that what else the machine does concerns all. The
// first turn of each warms the clusters up and does not count.
func Commits(ctx context.Context, o Options, clients []int, ring, turns int, turn time.Duration) (all []Pace, err error) {
	p, err := newPair(ctx, o, "commit")
	if err != nil {
		return nil, err
	}
	defer p.stop()
	for _, n := range clients {
		paces, err := p.commits(ctx, n, ring, turns, turn)
		if err != nil {
			return nil, err
		}
		all = append(all, paces...)
	}
	return all, nil
}

// way is a way to commit, with its clients.
type way struct {
	name      string
	clients   []committer
	perSecond []float64
	took      []time.Duration
}

type committer interface {
	commit(ctx context.Context) error
	close()
}

func (p *pair) commits(ctx context.Context, clients, ring, turns int, turn time.Duration) ([]Pace, error) {
	ways := []*way{{name: "dual commit"}, {name: "one id"}, {name: fmt.Sprintf("ring of %d", ring)}}
	open := []func(i int) (committer, error){
		func(i int) (committer, error) { return p.dual(fmt.Sprintf("dual-%d-%d", clients, i)) },
		func(i int) (committer, error) { return p.global(ctx, fmt.Sprintf("one-%d-%d", clients, i), 1) },
		func(i int) (committer, error) { return p.global(ctx, fmt.Sprintf("ring-%d-%d", clients, i), ring) },
	}
	defer func() {
		for _, w := range ways {
			for _, c := range w.clients {
				c.close()
			}
		}
	}()
	for k, w := range ways {
		for i := range clients {
			c, err := open[k](i)
			if err != nil {
				return nil, err
			}
			w.clients = append(w.clients, c)
		}
	}
	for i := range 1 + turns {
		for _, w := range ways {
			if err := w.run(ctx, turn, i > 0); err != nil {
				return nil, err
			}
		}
	}
	var paces []Pace
	for _, w := range ways {
		slices.Sort(w.perSecond)
		paces = append(paces, Pace{Way: w.name, Clients: clients, PerSecond: w.perSecond[len(w.perSecond)/2], Latency: spread(w.took)})
	}
	return paces, nil
}

// run lets every client commit, one transaction after another, for the time of
// a turn.
func (w *way) run(ctx context.Context, turn time.Duration, counts bool) error {
	var mu sync.Mutex
	var wg sync.WaitGroup
	var errs []error
	var took []time.Duration
	began := time.Now()
	for _, c := range w.clients {
		wg.Go(func() {
			var mine []time.Duration
			var err error
			for at := began; err == nil && at.Sub(began) < turn; {
				err = c.commit(ctx)
				now := time.Now()
				mine, at = append(mine, now.Sub(at)), now
			}
			mu.Lock()
			defer mu.Unlock()
			took, errs = append(took, mine...), append(errs, err)
		})
	}
	wg.Wait()
	if counts {
		w.perSecond = append(w.perSecond, float64(len(took))/time.Since(began).Seconds())
		w.took = append(w.took, took...)
	}
	return errors.Join(errs...)
}

// global is a client of global transactions.
type global struct{ cl *client.Client }

func (p *pair) global(ctx context.Context, id string, ring int) (global, error) {
	cl, err := p.open(ctx, id, ring)
	return global{cl}, err
}

func (g global) commit(ctx context.Context) error {
	txn, err := g.cl.Begin(ctx)
	if err != nil {
		return err
	}
	for _, name := range aliases {
		txn.Produce(ctx, name, record(), nil)
	}
	_, err = txn.Commit(ctx)
	return err
}

func (g global) close() { _ = g.cl.Close(context.Background()) } // nothing is open

// dual is a transactional producer on each cluster.
type dual []*kgo.Client

func (p *pair) dual(id string) (d dual, err error) {
	for _, name := range aliases {
		cl, err := kgo.NewClient(kgo.SeedBrokers(p.addrs[name]), kgo.TransactionalID(id),
			kgo.MetadataMinAge(100*time.Millisecond)) // as gtc/client has it: with kgo's 5 s the rival stands still for 5 s now and then
		if err != nil {
			d.close()
			return nil, err
		}
		d = append(d, cl)
	}
	return d, nil
}

func (d dual) commit(ctx context.Context) error {
	var wg sync.WaitGroup
	errs := make([]error, len(d))
	for i, cl := range d {
		if errs[i] = cl.BeginTransaction(); errs[i] == nil {
			cl.Produce(ctx, record(), func(_ *kgo.Record, err error) { errs[i] = err })
		}
	}
	for i, cl := range d {
		wg.Go(func() {
			err := cl.Flush(ctx) // until the record's own result is in errs
			errs[i] = errors.Join(err, errs[i])
		})
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i, cl := range d {
		wg.Go(func() { errs[i] = cl.EndTransaction(ctx, kgo.TryCommit) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (d dual) close() {
	for _, cl := range d {
		cl.Close()
	}
}
