package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Case 21: b is away past every retry and past the retention of ids; the log is
// compacted and the coordinator starts again. b commits when it is back.
func TestADecisionWithAPendingParticipantIsNeverDropped(t *testing.T) {
	store := memlog.NewStore(1)
	away := func(ctx context.Context, id string, p txnlog.Participant, commit bool) gtc.EndAnswer {
		if p.ClusterID == "b" {
			return retry(ctx, id, p, commit)
		}
		return done(p)
	}
	short := func(o *service.Options) { o.Config.ExpirationMillis, o.LazyLinger = 300, time.Millisecond }
	c := newClusters()
	c.end, c.open["a"], c.open["b"] = away, nil, nil
	st := play(t, store, c, short).active()
	s := st.open("pay", "a", "b")
	st.open("idle", "a", "b")
	if resp := s.endPending(); resp.ErrorCode != 0 || resp.Outcome != wire.OutcomeCommitted || resp.Participants[1].State != wire.ParticipantPending {
		t.Errorf("%+v, want committed with b pending", resp)
	}
	eventually(t, func() error { // the retention is over for what is idle
		if d := st.describe("idle"); d.ErrorCode != kerr.TransactionalIDNotFound.Code {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})

	again := newClusters()
	again.end, again.open["a"], again.open["b"] = away, nil, nil
	for _, next := range []*stage{st, play(t, store, again, short).active()} {
		st = next
		store.Compact(0, false)
		seen := len(st.clusters.heard())
		eventually(t, func() error { // many more tries than the back-off has steps
			if n := len(st.clusters.heard()) - seen; n < 50 {
				return fmt.Errorf("%d tries", n)
			}
			return nil
		})
		l := st.list()
		i := slices.IndexFunc(l.GlobalTransactions, func(g wire.ListGlobalTransactionsResponseGlobalTransaction) bool {
			return g.GlobalTransactionalID == "pay"
		})
		if i < 0 || l.GlobalTransactions[i].State != "PrepareCommit" || !slices.Equal(l.GlobalTransactions[i].PendingClusterIDs, []string{"b"}) {
			t.Fatalf("listed as %+v, want PrepareCommit with b pending", l.GlobalTransactions)
		}
	}
	again.set(func() { again.end = nil })
	eventually(t, func() error {
		if told := again.heard(); told[len(told)-1] != "pay b commit" {
			return fmt.Errorf("told %q last", told[len(told)-1])
		}
		if all := states(t, store, "pay"); len(all) > 0 && all[len(all)-1] != txnlog.StateCompleteCommit {
			return fmt.Errorf("the log says %v last", all)
		}
		return nil
	})
	if told := fmt.Sprint(again.heard()); strings.Contains(told, "abort") {
		t.Error(told)
	}
}

// Case 30: more decisions than may be under way to c, which accepts them and
// never answers, hold up nobody who does not name it.
func TestAClusterThatNeverAnswersDelaysNobodyElse(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	for i := range 50 {
		put(t, store, fmt.Sprintf("stuck-%d", i), value(txnlog.StatePrepareCommit, "c"))
	}
	put(t, store, "free", value(txnlog.StatePrepareCommit, "a", "b"))
	c.end = func(ctx context.Context, id string, p txnlog.Participant, commit bool) gtc.EndAnswer {
		if p.ClusterID == "c" {
			<-ctx.Done()
			return retry(ctx, id, p, commit)
		}
		return done(p)
	}
	st := play(t, store, c, func(o *service.Options) { o.EndsPerCluster = 4 }).active()
	eventually(t, func() error {
		if d := st.describe("free"); d.State != "CompleteCommit" {
			return fmt.Errorf("state %s", d.State)
		}
		return nil
	})
	// Behind c they would wait for ever.
	decided(t, st.open("new", "a", "b").end(true, patience), wire.OutcomeCommitted)
	pending, stuck := 0, 0
	for _, g := range st.list().GlobalTransactions {
		if g.State == "PrepareCommit" && slices.Equal(g.PendingClusterIDs, []string{"c"}) {
			pending++
		}
	}
	for _, told := range c.heard() {
		if strings.Contains(told, " c ") {
			stuck++
		}
	}
	if pending != 50 || stuck != 4 {
		t.Errorf("%d pending on c with %d requests under way, want 50 and 4", pending, stuck)
	}
}

// Cases 13 and 33 at the edge: the scan ends what a dead client left open, in
// parallel over ids, and a look that fails proves nothing.
func TestTheScanAbortsWhatADeadClientLeft(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	const n = 1000
	c.open["b"] = nil
	for i := range n {
		id := fmt.Sprintf("orphan-%d", i)
		v := value(txnlog.StateEmpty, "a", "b")
		v.Participants, v.TimeoutMillis = nil, 50
		put(t, store, id, v)
		for _, cluster := range []string{"a", "b"} {
			c.open[cluster] = append(c.open[cluster], gtc.OpenTransaction{ID: id, ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, StartMillis: 1})
		}
	}
	c.open["a"] = append(c.open["a"], gtc.OpenTransaction{ID: "somebody else's", ProducerID: 1, EndTxnVersion: 5})
	c.end = func(_ context.Context, id string, p txnlog.Participant, _ bool) gtc.EndAnswer {
		c.set(func() {
			c.open[p.ClusterID] = slices.DeleteFunc(c.open[p.ClusterID], func(o gtc.OpenTransaction) bool { return o.ID == id })
		})
		return done(p)
	}
	c.scanFail = errors.New("one of the brokers does not answer")
	st := play(t, store, c).active()
	began := time.Now()
	eventually(t, func() error {
		if told := c.heard(); len(told) < 2*n {
			return fmt.Errorf("%d EndTxn", len(told))
		}
		return nil
	})
	t.Logf("%d orphans on two clusters took %v", n, time.Since(began))
	for _, told := range c.heard() {
		if !strings.HasPrefix(told, "orphan-") || !strings.HasSuffix(told, " abort") {
			t.Fatalf("told %q", told)
		}
	}
	if d := st.describe("orphan-0"); d.State != "CompleteAbort" || !d.SessionEnded || d.Reason == nil {
		t.Errorf("%+v", d)
	}
}

// C-SCAN-5: what was seen open is still held to be open when a look fails, so
// it is aborted in time also when no later look succeeds.
func TestWhatWasSeenOpenIsListedWithItsAge(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	c.open["a"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, StartMillis: 1}}
	st := play(t, store, c).active()
	st.open("pay", "a", "b")
	seen := func() error {
		d := st.describe("pay")
		if d.State != "Ongoing" || len(d.Participants) != 1 || d.Participants[0].ClusterID != "a" || d.Participants[0].OpenSinceMillis < 0 {
			return fmt.Errorf("%+v", d)
		}
		return nil
	}
	eventually(t, seen)
	c.set(func() { c.open["a"], c.scanFail = nil, errors.New("one of the brokers does not answer") })
	for range 20 { // the looks that fail change nothing
		st.barrier()
		if err := seen(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.set(func() { c.scanFail = nil })
	eventually(t, func() error {
		if d := st.describe("pay"); d.State != "Empty" {
			return fmt.Errorf("state %s", d.State)
		}
		return nil
	})
}

// C-END-13: at most 16 requests wait for one transaction.
func TestWaitersAreBounded(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters()).active()
	s := st.open("pay", "a", "b")
	store.Hold(0)
	answers := make(chan int16, 40)
	for range 40 {
		go func() { answers <- s.end(true, time.Minute).ErrorCode }()
	}
	st.inFlight(1)
	st.barrier()
	st.log.Release(0)
	counts := map[int16]int{}
	for range 40 {
		counts[<-answers]++
	}
	if counts[0] < 16 || counts[0]+counts[51] != 40 {
		t.Errorf("answers by code %v, want 0 (16 at least) and CONCURRENT_TRANSACTIONS", counts)
	}
}
