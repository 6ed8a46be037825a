package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// scenario is one transaction's story, which a kill must not change the end of.
type scenario struct {
	name string
	// want is the outcome: the client does not give up, so a kill never
	// changes it.
	want string
	// run plays it. It runs outside of the test's goroutine.
	run func(context.Context, *crashWorld) result
	// unlogged: the only participant's answer is the outcome, and its record
	// is lazy. Killed before it is written, the log says nothing (R5).
	unlogged bool
}

// result is what the client was told.
type result struct {
	outcome string // committed, aborted, or empty when the client is dead
	wrote   map[string]bool
	err     error
	// goOn commits another transaction on the id; nil when nobody can.
	goOn  func(context.Context) error
	close func()
}

var (
	commitOverTwo = scenario{name: "commit", want: "committed", run: runCommit}
	epochStays    = scenario{name: "commit where the epoch stays", want: "committed", run: runCommit}
	voteRefused   = scenario{name: "vote refused", want: "aborted", run: runRefused}
	abortAsked    = scenario{name: "abort asked", want: "aborted", run: runAbortAsked}
	onePhase      = scenario{name: "one phase", want: "committed", run: runOnePhase, unlogged: true}
	timedOut      = scenario{name: "timeout", want: "aborted", run: runTimeout}
)

// decision is what a record says of the outcome.
func (s scenario) decision(v *txnlog.GlobalTransaction) string {
	switch {
	case v.State == txnlog.StateCompleteCommit:
		return "committed"
	case v.State == txnlog.StateCompleteAbort:
		return "aborted"
	case v.State == txnlog.StateEmpty && s.unlogged:
		return s.want
	}
	return fmt.Sprintf("state %d", v.State)
}

func (w *crashWorld) options() client.Options {
	o := client.Options{
		GlobalTransactionalID: w.id, Coordinator: []string{w.addr}, Clusters: map[string]client.Cluster{},
		BackoffMax: 100 * time.Millisecond, AskTimeout: 2 * time.Second,
	}
	for name, c := range w.clusters {
		o.Clusters[name] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.addr)}}
	}
	return o
}

// begun opens a client and writes "v" to each named cluster.
func (w *crashWorld) begun(ctx context.Context, o client.Options, clusters ...string) (*client.Client, *client.Txn, result) {
	r := result{wrote: map[string]bool{}, close: func() {}}
	cl, err := client.Open(ctx, o)
	if err != nil {
		r.err = fmt.Errorf("open: %w", err)
		return nil, nil, r
	}
	r.close = func() {
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_ = cl.Close(last)
	}
	txn, err := cl.Begin(ctx)
	if err != nil {
		r.err = fmt.Errorf("begin: %w", err)
		return cl, nil, r
	}
	for _, c := range clusters {
		r.wrote[c] = true
		if err = txn.ProduceSync(ctx, c, &kgo.Record{Topic: w.topic, Value: []byte("v")}).FirstErr(); err != nil {
			r.err = fmt.Errorf("write to %s: %w", c, err)
		}
	}
	r.goOn = func(ctx context.Context) error { return w.another(ctx, cl) }
	return cl, txn, r
}

// another commits one more transaction.
func (w *crashWorld) another(ctx context.Context, cl *client.Client) error {
	txn, err := cl.Begin(ctx)
	if err != nil {
		return err
	}
	for name := range w.clusters {
		if err = txn.ProduceSync(ctx, name, &kgo.Record{Topic: w.topic, Value: []byte("next")}).FirstErr(); err != nil {
			return err
		}
	}
	_, err = txn.Commit(ctx)
	return err
}

func (r *result) commit(ctx context.Context, txn *client.Txn) {
	_, err := txn.Commit(ctx)
	var aborted *client.AbortedError
	switch {
	case err == nil:
		r.outcome = "committed"
	case errors.As(err, &aborted):
		r.outcome = "aborted"
	default:
		r.err = fmt.Errorf("commit: %w", err)
	}
}

func runCommit(ctx context.Context, w *crashWorld) result {
	_, txn, r := w.begun(ctx, w.options(), "us", "eu")
	if r.err == nil {
		r.commit(ctx, txn)
	}
	return r
}

func runOnePhase(ctx context.Context, w *crashWorld) result {
	_, txn, r := w.begun(ctx, w.options(), "us")
	if r.err == nil {
		r.commit(ctx, txn)
	}
	return r
}

// runRefused: somebody else initialises the producer on eu, which aborts there.
func runRefused(ctx context.Context, w *crashWorld) result {
	_, txn, r := w.begun(ctx, w.options(), "us", "eu")
	if r.err != nil {
		return r
	}
	if r.err = w.outsider(ctx, "eu"); r.err == nil {
		r.commit(ctx, txn)
	}
	return r
}

// outsider initialises a producer of the id on one cluster.
func (w *crashWorld) outsider(ctx context.Context, cluster string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.clusters[cluster].addr), kgo.TransactionalID(w.id))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, _, err = cl.ProducerID(ctx)
	return err
}

// runTimeout: the client writes and is never heard of again.
func runTimeout(ctx context.Context, w *crashWorld) result {
	o := w.options()
	o.TransactionTimeout = 2 * time.Second // in which it writes
	_, _, r := w.begun(ctx, o, "us", "eu")
	r.goOn = func(ctx context.Context) error {
		cl, err := client.Open(ctx, w.options())
		if err != nil {
			return err
		}
		defer func() { _ = cl.Close(ctx) }()
		return w.another(ctx, cl)
	}
	return r
}

// runAbortAsked speaks the protocol itself: the library asks for an abort only
// after it has asked for a commit.
func runAbortAsked(ctx context.Context, w *crashWorld) result {
	return w.raw(ctx, false, func(c *rawClient) error { return c.write(ctx, w.topic, "v", "us", "eu") })
}

// raw opens a session, prepares a transaction, and asks for its end until the
// outcome is known.
func (w *crashWorld) raw(ctx context.Context, commit bool, prepare func(*rawClient) error) result {
	r := result{wrote: map[string]bool{"us": true, "eu": true}, close: func() {}}
	c, err := openRaw(ctx, w.addr, w.id, w.clusters, 60_000)
	if err != nil {
		r.err = err
		return r
	}
	r.close = c.close
	if r.err = prepare(c); r.err != nil {
		return r
	}
	resp, err := c.endUntilDecided(ctx, commit)
	if err != nil {
		r.err = err
		return r
	}
	r.err = wire.ErrorForCode(resp.ErrorCode)
	r.outcome = map[int8]string{wire.OutcomeCommitted: "committed", wire.OutcomeAborted: "aborted"}[resp.Outcome]
	return r
}
