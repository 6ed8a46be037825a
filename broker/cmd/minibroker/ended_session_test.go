package main

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// A client outlives the timeout of its session, of which the scan has seen a part.
// What it asks for then is an abort that completes, and it goes on.
func TestWhatIsAskedForAfterTheSessionsTimeoutCompletes(t *testing.T) {
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters, "global.transaction.scan.interval.ms=50")
	topic, id := newTopic(t, clusters), uniqueID(t)
	w := &crashWorld{clusters: clusters, addr: rig.addr, id: id, topic: topic}
	o := w.options()
	o.TransactionTimeout = 3 * time.Second // in which it writes
	cl, err := client.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Close(context.WithoutCancel(t.Context())) }()
	txn := write(t, cl, topic, "late", "us")
	until(t, func() error {
		if d, err := described(t.Context(), rig.admin(t), id); err != nil || !d.SessionEnded {
			return fmt.Errorf("%+v, %w", d, err)
		}
		return nil
	})
	if err := txn.ProduceSync(t.Context(), "eu", &kgo.Record{Topic: topic, Value: []byte("late")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	aborted := new(client.AbortedError)
	if _, err := txn.Commit(t.Context()); !errors.As(err, &aborted) {
		t.Fatalf("Commit: %v, want aborted", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if r, err := txn.Wait(ctx); err != nil || !r.Complete() {
		t.Fatalf("Wait: %+v, %v", r, err)
	}
	if r, err := write(t, cl, topic, "next", "us", "eu").Commit(t.Context()); err != nil || r.Outcome != client.OutcomeCommitted {
		t.Errorf("the client does not go on: %+v, %v", r, err)
	}
	shows(t, clusters, topic, map[string][]string{"us": {"next"}, "eu": {"next"}})
}
