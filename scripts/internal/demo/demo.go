package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// crashPoint is after the decision of the second commit is durable and before
// anything that follows from it leaves.
const crashPoint = "append-prepare-commit/after:2"

type demo struct {
	out        io.Writer
	dir        string
	minibroker string
	processes  []*process
	kafka      []*cluster.Cluster
	began      time.Time
	rounds     int
}

type round struct {
	title   string
	profile client.TwoPhaseCommit
	start   func(context.Context) (coordinator *process, us, eu string, err error)
}

// topics are written to on each cluster in each transaction.
var topics = map[string][]string{"us": {"orders", "debits"}, "eu": {"credits", "audit"}}

// perTopic is how many records each transaction writes to each topic.
const perTopic = 3

func (d *demo) say(format string, args ...any) {
	if d.began.IsZero() {
		d.began = time.Now()
	}
	fmt.Fprintf(d.out, "%7.2fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) round(ctx context.Context, r round) error {
	d.say("── %s", r.title)
	coordinator, us, eu, err := r.start(ctx)
	if err != nil {
		return err
	}
	if err = d.start(ctx, coordinator, "--crash-at", crashPoint); err != nil {
		return err
	}
	addrs := map[string]string{"us": us, "eu": eu}
	for name, addr := range addrs {
		if err = createTopics(ctx, addr, topics[name]); err != nil {
			return fmt.Errorf("create topics on %s: %w", name, err)
		}
	}
	cl, err := client.Open(ctx, client.Options{
		GlobalTransactionalID: "demo",
		Coordinator:           []string{coordinator.addr},
		Clusters: map[string]client.Cluster{
			"us": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(us)}, TwoPhaseCommit: r.profile},
			"eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(eu)}, TwoPhaseCommit: r.profile},
		},
	})
	if err != nil {
		return fmt.Errorf("open the global transactional id: %w", err)
	}
	d.say("opened global transactional id \"demo\" with clusters us and eu")
	if err := d.transactions(ctx, cl, coordinator); err != nil {
		return err
	}
	if err := cl.Close(ctx); err != nil {
		return err
	}
	return d.verdict(ctx, addrs)
}

// transactions runs the three of the demo.
func (d *demo) transactions(ctx context.Context, cl *client.Client, coordinator *process) error {
	d.say("transaction 1: %d records to 2 topics on each cluster, then commit", 4*perTopic)
	txn, err := produce(ctx, cl, "committed")
	if err != nil {
		return err
	}
	result, err := txn.Commit(ctx)
	if err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	d.say("  → %s", describe(result))

	d.say("transaction 2: the same, then abort")
	if txn, err = produce(ctx, cl, "aborted"); err != nil {
		return err
	}
	if result, err = txn.Abort(ctx); err != nil {
		return fmt.Errorf("abort: %w", err)
	}
	d.say("  → %s", describe(result))

	d.say("transaction 3: the same, then commit; the coordinator is killed (SIGKILL) when its decision is durable and no participant knows")
	if txn, err = produce(ctx, cl, "recovered"); err != nil {
		return err
	}
	type outcome struct {
		result client.Result
		err    error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		for {
			o.result, o.err = txn.Commit(ctx)
			if unknown := new(client.UnknownOutcomeError); !errors.As(o.err, &unknown) || ctx.Err() != nil {
				break // known, or no time left
			}
		}
		done <- o
	}()
	if err := coordinator.waitKilled(ctx); err != nil {
		return err
	}
	d.say("  the coordinator is dead; the client asks again until it knows")
	if err := d.start(ctx, coordinator); err != nil {
		return fmt.Errorf("restart: %w", err)
	}
	d.say("  the coordinator is back, has read its log, and tells the participants")
	o := <-done
	if o.err != nil {
		return fmt.Errorf("commit over the crash: %w", o.err)
	}
	d.say("  → %s", describe(o.result))
	return nil
}

func describe(r client.Result) string {
	text := r.Outcome.String()
	if pending := r.Pending(); len(pending) > 0 {
		text += fmt.Sprintf(", waiting for %v", pending)
	}
	return text
}

// produce begins a transaction and writes perTopic records, whose values name
// it, to every topic of every cluster.
func produce(ctx context.Context, cl *client.Client, label string) (*client.Txn, error) {
	txn, err := cl.Begin(ctx)
	if err != nil {
		return nil, fmt.Errorf("begin: %w", err)
	}
	for name, ts := range topics {
		for _, t := range ts {
			for i := range perTopic {
				value := fmt.Sprintf("%s-%d", label, i)
				txn.Produce(ctx, name, &kgo.Record{Topic: t, Value: []byte(value)}, nil)
			}
		}
	}
	return txn, nil
}

func createTopics(ctx context.Context, addr string, names []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err := adm.DeleteTopics(ctx, names...); err != nil {
		return err
	}
	for ctx.Err() == nil {
		resps, err := adm.CreateTopics(ctx, 2, 1, nil, names...)
		if err == nil {
			err = resps.Error()
		}
		if err == nil {
			return nil
		}
		// A topic of an earlier round may still be on its way out.
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
	return ctx.Err()
}
