package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// The actions of ResolveGlobalTransaction that an operator takes here.
const (
	forget = int8(2)
	giveUp = int8(3)
)

// operator is the person at the coordinator, who does at random what an operator
// may: gives clusters up and forgets ids. What is done, and by others to the
// clusters, goes to the history.
type operator struct {
	gtc   *kgo.Client
	names map[string]string // of the clusters, by their ids

	mu     sync.Mutex
	rng    *rand.Rand
	events []history.Event
}

func newOperator(gtc *kgo.Client, names map[string]string, seed uint64) *operator {
	return &operator{gtc: gtc, names: names, rng: rand.New(rand.NewPCG(seed, 3))}
}

// did puts down what began at a time and is over now.
func (o *operator) did(began time.Time, e history.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e.Client, e.Began, e.At = "operator", began.UnixNano(), time.Now().UnixNano()
	o.events = append(o.events, e)
}

func (o *operator) history() []history.Event {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.events)
}

// one in n times it is true.
func (o *operator) oneIn(n int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.rng.IntN(n) == 0
}

// listed is an id as one node lists it.
type listed struct {
	wire.ListGlobalTransactionsResponseGlobalTransaction
	node *kgo.Broker
}

// list asks every node; each answers for the ids that it coordinates. A node that
// does not answer lists nothing.
func (o *operator) list(ctx context.Context) []listed {
	var all []listed
	for _, node := range o.gtc.SeedBrokers() {
		resp, err := wire.NewPtrListGlobalTransactionsRequest().RequestWith(ctx, node)
		if err != nil || resp.ErrorCode != 0 {
			continue
		}
		for _, g := range resp.GlobalTransactions {
			all = append(all, listed{g, node})
		}
	}
	return all
}

// resolve asks for an action and reports whether it was not refused.
func (o *operator) resolve(ctx context.Context, l listed, action int8, cluster string) bool {
	req := wire.NewPtrResolveGlobalTransactionRequest()
	req.GlobalTransactionalID, req.Action = l.GlobalTransactionalID, action
	if cluster != "" {
		req.ClusterID = &cluster
	}
	resp, err := req.RequestWith(ctx, l.node)
	return err != nil || resp.ErrorCode == 0 // unanswered, it may have been done
}

// work goes on until ctx ends: one in three of the ids that are torn is forgotten,
// and of those that wait for the cluster given up; "" gives none up.
func (o *operator) work(ctx context.Context, cluster string) {
	for ; ctx.Err() == nil; sleep(ctx, 10*time.Millisecond) {
		for _, l := range o.list(ctx) {
			for _, id := range l.PendingClusterIDs {
				if o.names[id] == cluster && o.oneIn(3) {
					o.giveUp(ctx, l, id)
				}
			}
			if l.Heuristic && o.oneIn(3) {
				o.forget(ctx, l)
			}
		}
	}
}

// giveUp is not interrupted: what was asked for may have been done.
func (o *operator) giveUp(ctx context.Context, l listed, cluster string) {
	began := time.Now()
	if o.resolve(context.WithoutCancel(ctx), l, giveUp, cluster) {
		o.did(began, history.Event{Kind: history.GaveUp, ID: l.GlobalTransactionalID, Place: history.Place{Cluster: o.names[cluster]}})
	}
}

func (o *operator) forget(ctx context.Context, l listed) {
	began := time.Now()
	if o.resolve(context.WithoutCancel(ctx), l, forget, "") {
		o.did(began, history.Event{Kind: history.Forgot, ID: l.GlobalTransactionalID})
	}
}

// forgetAll forgets all that is torn now.
func (o *operator) forgetAll(ctx context.Context) {
	for _, l := range o.list(ctx) {
		if l.Heuristic {
			o.forget(ctx, l)
		}
	}
}

// pending puts down to whom of a cluster that is down a commit is still to be told.
func (o *operator) pending(ctx context.Context, cluster string) error {
	for _, l := range o.list(ctx) {
		if l.State != "PrepareCommit" {
			continue
		}
		req := wire.NewPtrDescribeGlobalTransactionsRequest()
		req.GlobalTransactionalIDs = []string{l.GlobalTransactionalID}
		resp, err := req.RequestWith(ctx, l.node)
		if err != nil {
			return fmt.Errorf("chaos: describe %s: %w", l.GlobalTransactionalID, err)
		}
		for _, g := range resp.GlobalTransactions {
			if g.State != "PrepareCommit" {
				continue
			}
			for _, p := range g.Participants {
				if o.names[p.ClusterID] == cluster && p.State == wire.ParticipantPending {
					o.did(time.Now(), history.Event{
						Kind: history.Pending, ID: g.GlobalTransactionalID, Place: history.Place{Cluster: cluster},
						Producer: history.Producer{ID: p.ProducerID, Epoch: p.ProducerEpoch},
					})
				}
			}
		}
	}
	return nil
}

// givesUp is a fault: while the link between the coordinator and a cluster is
// spoiled now and then, an operator gives the cluster up and forgets.
func (r *rig) givesUp(cluster string, l *link, how spoil) fault {
	stop := func() error { return nil }
	return fault{
		name: fmt.Sprintf("operator gives up %s, link %s: %s", cluster, l.name, how),
		inject: func(ctx context.Context) error {
			ctx, cancel := context.WithCancel(ctx)
			var doing sync.WaitGroup
			var failed error
			doing.Go(func() { r.operator.work(ctx, cluster) })
			doing.Go(func() {
				for ctx.Err() == nil && failed == nil {
					failed = l.spoil(how)
					sleep(ctx, 400*time.Millisecond)
					failed = errors.Join(failed, l.heal(context.WithoutCancel(ctx)))
					sleep(ctx, 300*time.Millisecond)
				}
			})
			stop = func() error {
				cancel()
				doing.Wait()
				return failed
			}
			return nil
		},
		heal:  func(context.Context) error { return stop() },
		tears: true,
	}
}

// goesBack is a fault: a cluster is copied under load, and is restored from the
// copy a moment later, so that it forgets what it has acknowledged since.
func (r *rig) goesBack(name string) fault {
	c := r.participants()[name]
	at := history.Place{Cluster: name}
	return fault{
		name: "copy and restore " + c.Name,
		inject: func(ctx context.Context) error {
			began := time.Now()
			err := c.Copy(ctx)
			r.operator.did(began, history.Event{Kind: history.Copied, Place: at})
			return err
		},
		heal: func(ctx context.Context) error {
			began := time.Now()
			if err := c.Stop(ctx); err != nil { // started after a kill, 4.4.0 loses markers (KAFKA-20734)
				return err
			}
			r.reader.leave(name)
			if err := c.Restore(ctx); err != nil {
				return err
			}
			if err := r.operator.pending(ctx, name); err != nil {
				return err
			}
			if err := c.Start(ctx); err != nil {
				return err
			}
			r.operator.did(began, history.Event{Kind: history.Restored, Place: at})
			r.reader.again(ctx, name)
			return nil
		},
		tears: true,
	}
}
