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

// put writes a record as an earlier owner would have.
func put(t *testing.T, store *memlog.Store, id string, v *txnlog.GlobalTransaction) {
	t.Helper()
	key, err := txnlog.AppendKey(nil, id)
	if err != nil {
		t.Fatal(err)
	}
	store.Inject(0, txnlog.RawRecord{Key: key, Value: txnlog.AppendValue(nil, v)})
}

// value is a record of a session over clusters a and b.
func value(state txnlog.State, ids ...string) *txnlog.GlobalTransaction {
	v := &txnlog.GlobalTransaction{
		State: state, GlobalEpoch: 1, Sequence: 5, TimeoutMillis: 60_000, InstanceID: txnlog.UUID{1},
		ClusterIDs: ids, DecidedMillis: 1, UpdatedMillis: time.Now().UnixMilli(),
	}
	for _, id := range ids {
		v.Participants = append(v.Participants, txnlog.Participant{
			ClusterID: id, ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, NextProducerID: -1, NextProducerEpoch: -1,
		})
	}
	return v
}

// answers are the codes of every kind of request about the id.
func (st *stage) answers(id string) []int16 {
	s := &session{st: st, id: id, epoch: 1, sequence: 6, refs: []wire.EndGlobalTxnRequestParticipant{{ClusterID: "a", ProducerID: 7, ProducerEpoch: 3}}}
	resolve := wire.NewPtrResolveGlobalTransactionRequest()
	resolve.GlobalTransactionalID = id
	return []int16{
		st.handle(initRequest(id, 9, "a")).(*wire.InitGlobalTxnResponse).ErrorCode,
		s.end(true, time.Second).ErrorCode,
		st.describe(id).ErrorCode,
		st.list().ErrorCode,
		st.handle(resolve).(*wire.ResolveGlobalTransactionResponse).ErrorCode,
	}
}

func all(code int16) []int16 { return []int16{code, code, code, code, code} }

// Case 29: cannot read is not "not there". While the partition cannot be read
// nothing is ended, and nobody is told that an id is unknown.
func TestAPartitionThatCannotBeReadIsLoadingAndNotEmpty(t *testing.T) {
	store := memlog.NewStore(1)
	put(t, store, "pay", value(txnlog.StatePrepareCommit, "a", "b"))
	store.FailReads(0, errors.New("the leader is away"))
	c := newClusters()
	c.open["a"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, StartMillis: 1}}
	st := play(t, store, c)
	for range 3 {
		if got := st.answers("pay"); !slices.Equal(got, all(kerr.CoordinatorLoadInProgress.Code)) {
			t.Fatalf("answers %v, want COORDINATOR_LOAD_IN_PROGRESS", got)
		}
	}
	if told := c.heard(); len(told) > 0 {
		t.Fatalf("told %v while the log cannot be read", told)
	}
	store.FailReads(0, nil)
	st.active()
	eventually(t, func() error {
		if d := st.describe("pay"); d.State != "CompleteCommit" {
			return fmt.Errorf("state %s", d.State)
		}
		return nil
	})
	if told := c.heard(); !slices.Contains(told, "pay a commit") || !slices.Contains(told, "pay b commit") || strings.Contains(fmt.Sprint(told), "abort") {
		t.Errorf("told %v, want the commit to both and no abort", told)
	}
}

// Case 19, and C-REC-3: what cannot be decoded blocks the partition by name,
// and is tried again.
func TestAnUnreadableRecordIsCorruptAndNotAnAbort(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes []byte
	}{
		{"garbage", []byte{0, 0, 1, 2, 3}},
		{"a version to come", []byte{0, 1, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := memlog.NewStore(1)
			key, err := txnlog.AppendKey(nil, "pay")
			if err != nil {
				t.Fatal(err)
			}
			store.Inject(0, txnlog.RawRecord{Key: key, Value: tc.bytes})
			c := newClusters()
			c.open["a"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5}}
			st := play(t, store, c)
			eventually(t, func() error {
				if got := st.answers("pay"); !slices.Equal(got, all(wire.CorruptGlobalTransactionLog.Code)) {
					return fmt.Errorf("answers %v, want CORRUPT_GLOBAL_TRANSACTION_LOG", got)
				}
				return nil
			})
			if told := c.heard(); len(told) > 0 {
				t.Errorf("told %v", told)
			}
		})
	}
}

func TestAVersionToComeThatIsSupersededLoads(t *testing.T) {
	store := memlog.NewStore(1)
	key, err := txnlog.AppendKey(nil, "pay")
	if err != nil {
		t.Fatal(err)
	}
	store.Inject(0, txnlog.RawRecord{Key: key, Value: []byte{0, 1, 0}})
	st := play(t, store, newClusters())
	eventually(t, func() error {
		if d := st.describe("pay"); d.ErrorCode != wire.CorruptGlobalTransactionLog.Code {
			return fmt.Errorf("code %d", d.ErrorCode)
		}
		return nil
	})
	put(t, store, "pay", value(txnlog.StateCompleteCommit, "a"))
	st.active()
	if d := st.describe("pay"); d.State != "CompleteCommit" {
		t.Errorf("%+v", d)
	}
}

func TestARequestForAPartitionOfAnotherNodeIsNotCoordinator(t *testing.T) {
	st := play(t, memlog.NewStore(1), newClusters()).active()
	s := st.open("pay", "a", "b")
	st.s.Disown(0)
	if got := s.end(true, time.Second).ErrorCode; got != kerr.NotCoordinator.Code {
		t.Errorf("code %d, want NOT_COORDINATOR", got)
	}
	if got := st.describe("pay").ErrorCode; got != kerr.NotCoordinator.Code {
		t.Errorf("describe: code %d, want NOT_COORDINATOR", got)
	}
	st.s.Own(0)
	st.active()
	decided(t, s.until(true), wire.OutcomeCommitted)
}

// Case 30: a participant that accepts and never answers does not hold up the
// end of the process.
func TestCloseIsBoundedWhileAParticipantNeverAnswers(t *testing.T) {
	c := newClusters()
	c.end = func(ctx context.Context, _ string, p txnlog.Participant, _ bool) gtc.EndAnswer {
		<-ctx.Done()
		return retry(ctx, "", p, true)
	}
	st := play(t, memlog.NewStore(1), c).active()
	s := st.open("pay", "a", "b")
	waiting := s.ending(true, time.Hour)
	eventually(t, func() error {
		if told := c.heard(); len(told) != 2 {
			return fmt.Errorf("told %v", told)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := st.s.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	if resp := <-waiting; resp.ErrorCode != kerr.NotCoordinator.Code && resp.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("who waited was told %d outcome %d, want to ask elsewhere", resp.ErrorCode, resp.Outcome)
	}
}

// A participant that does not even obey its context holds Close up no longer
// than its own.
func TestCloseEndsWithItsContext(t *testing.T) {
	c, free := newClusters(), make(chan struct{})
	c.end = func(_ context.Context, _ string, p txnlog.Participant, _ bool) gtc.EndAnswer {
		<-free
		return done(p)
	}
	st := play(t, memlog.NewStore(1), c).active()
	st.open("pay", "a", "b").ending(true, time.Hour)
	eventually(t, func() error {
		if told := c.heard(); len(told) != 2 {
			return fmt.Errorf("told %v", told)
		}
		return nil
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := st.s.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close = %v, want its context's error", err)
	}
	close(free)
}

// Case 25: decisions, and sessions long past their timeout, in the log of a
// coordinator that starts while no participant answers.
func TestStartUpTellsEveryDecisionAndAbortsNone(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	for i := range 100 {
		put(t, store, fmt.Sprintf("decided-%d", i), value(txnlog.StatePrepareCommit, "a", "b"))
	}
	c.open["a"] = nil
	for i := range 20 {
		id := fmt.Sprintf("overdue-%d", i)
		v := value(txnlog.StateEmpty, "a", "b")
		v.Participants, v.TimeoutMillis, v.UpdatedMillis = nil, 50, 1
		put(t, store, id, v)
		c.open["a"] = append(c.open["a"], gtc.OpenTransaction{ID: id, ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, StartMillis: 1})
	}
	c.end = retry
	st := play(t, store, c, func(o *service.Options) { o.LazyLinger = time.Millisecond })
	eventually(t, func() error { // every one has been refused more than once
		if n := len(c.heard()); n < 500 {
			return fmt.Errorf("%d tries", n)
		}
		return nil
	})
	c.set(func() { c.end = nil })
	eventually(t, func() error {
		for i := range 100 {
			if d := st.describe(fmt.Sprintf("decided-%d", i)); d.State != "CompleteCommit" {
				return fmt.Errorf("%s is %s", d.GlobalTransactionalID, d.State)
			}
		}
		for i := range 20 {
			if d := st.describe(fmt.Sprintf("overdue-%d", i)); d.State != "CompleteAbort" || !d.SessionEnded {
				return fmt.Errorf("%s is %s", d.GlobalTransactionalID, d.State)
			}
		}
		return nil
	})
	for _, told := range c.heard() {
		if strings.HasPrefix(told, "decided") && strings.HasSuffix(told, "abort") || strings.HasPrefix(told, "overdue") && strings.HasSuffix(told, "commit") {
			t.Fatalf("told %q", told)
		}
	}
}

// Case 25: a partition that is lost and regained while it loads keeps what the
// newer load read.
func TestALoadThatWasOvertakenIsNotUsed(t *testing.T) {
	store := memlog.NewStore(1)
	put(t, store, "pay", value(txnlog.StatePrepareCommit, "a", "b"))
	store.FailReads(0, errors.New("slow"))
	st := play(t, store, newClusters())
	st.s.Disown(0)
	put(t, store, "pay", value(txnlog.StateCompleteCommit, "a", "b"))
	put(t, store, "later", value(txnlog.StateCompleteAbort, "a"))
	st.s.Own(0)
	store.FailReads(0, nil)
	st.active()
	if d := st.describe("later"); d.State != "CompleteAbort" {
		t.Errorf("%+v", d)
	}
	if told := st.clusters.heard(); len(told) > 0 {
		t.Errorf("told %v of what is complete", told)
	}
}

// Case 19: what a newer coordinator noted beside a record, and this one does not
// understand, is still there after this one has rewritten it.
func TestUnknownFieldsSurviveARewrite(t *testing.T) {
	store := memlog.NewStore(1)
	v := value(txnlog.StatePrepareCommit, "a", "b")
	v.UnknownTags = map[uint32][]byte{77: []byte("of a newer one")}
	put(t, store, "pay", v)
	st := play(t, store, newClusters(), func(o *service.Options) { o.LazyLinger = time.Millisecond }).active()
	s := &session{st: st, id: "pay", epoch: 1, sequence: 6, refs: []wire.EndGlobalTxnRequestParticipant{
		{ClusterID: "a", ProducerID: 7, ProducerEpoch: 4}, {ClusterID: "b", ProducerID: 7, ProducerEpoch: 4},
	}}
	decided(t, s.until(true), wire.OutcomeCommitted)
	entries, err := store.Entries(0)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) < 3 {
		t.Fatalf("%d records, want the first, its completion and the next decision", len(entries))
	}
	for _, e := range entries {
		if got := string(e.Value.UnknownTags[77]); got != "of a newer one" {
			t.Errorf("offset %d, state %v: the unknown field is %q", e.Offset, e.Value.State, got)
		}
	}
}

// An operator has taken the id out of the log, because its record was damaged. What
// it decided is not known: nothing of it is ended, nobody is told that it aborted, and
// all others are served.
func TestAnIDThatWasTakenOutIsHeuristicUntilItIsForgotten(t *testing.T) {
	store := memlog.NewStore(1)
	key, err := txnlog.AppendKey(nil, "pay")
	if err != nil {
		t.Fatal(err)
	}
	put(t, store, "other", value(txnlog.StateCompleteCommit, "a"))
	store.Inject(0, txnlog.RawRecord{Key: key, Value: []byte{0, 0, 99}})
	c := newClusters()
	c.open["a"] = []gtc.OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5}}
	st := play(t, store, c)
	eventually(t, func() error {
		if d := st.describe("other"); d.ErrorCode != wire.CorruptGlobalTransactionLog.Code {
			return fmt.Errorf("code %d", d.ErrorCode)
		}
		return nil
	})
	doubt := &txnlog.CorruptError{GlobalTransactionalID: "pay", Offset: 1, Reason: "the value is too short"}
	put(t, store, "pay", txnlog.TakenOut(doubt, 0, 1, "ann", time.Now()))
	st.active()
	if d := st.describe("other"); d.State != "CompleteCommit" || d.ErrorCode != 0 {
		t.Errorf("other: %+v", d)
	}
	d := st.describe("pay")
	if len(d.Participants) != 1 || d.Participants[0].State != wire.ParticipantHeuristicUnknown || !strings.Contains(*d.Participants[0].Message, "taken out of the log by ann") {
		t.Errorf("pay: %+v", d)
	}
	begin := func() int16 {
		return st.handle(initRequest("pay", 1, "a", "b")).(*wire.InitGlobalTxnResponse).ErrorCode
	}
	if code := begin(); code != wire.HeuristicOutcome.Code {
		t.Errorf("a session begins with code %d, want HEURISTIC_OUTCOME", code)
	}
	if told := c.heard(); len(told) > 0 {
		t.Errorf("told %v", told)
	}
	if resp := st.resolve("pay", wire.ResolveForget); resp.ErrorCode != 0 {
		t.Errorf("forget: %+v", resp)
	}
	if code := begin(); code != 0 {
		t.Errorf("after forget a session begins with code %d", code)
	}
}
