package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// barrier returns when the shard has taken in everything that came before, and
// what that sent off has had its chance to leave.
func (st *stage) barrier() {
	st.t.Helper()
	for range 20 {
		bad := initRequest("barrier", 1, "a")
		bad.TimeoutMillis = -1
		if code := st.handle(bad).(*wire.InitGlobalTxnResponse).ErrorCode; code != kerr.InvalidTransactionTimeout.Code {
			st.t.Fatalf("the barrier got code %d", code)
		}
	}
}

// R1 and case 17: no EndTxn, and no answer, before the decision is durable.
func TestNothingLeavesBeforeItsRecordIsDurable(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprint("commit ", commit), func(t *testing.T) {
			store := memlog.NewStore(1)
			st := play(t, store, newClusters()).active()
			s := st.open("pay", "a", "b")
			store.Hold(0)
			answer := s.ending(commit, time.Minute)
			st.inFlight(1)
			st.barrier()
			if told := st.clusters.heard(); len(told) > 0 || len(answer) > 0 {
				t.Fatalf("told %v, answered %d, before the decision is durable", told, len(answer))
			}
			st.log.Release(0)
			want := wire.OutcomeAborted
			if commit {
				want = wire.OutcomeCommitted
			}
			decided(t, <-answer, want)
			if n := len(st.clusters.heard()); n != 2 {
				t.Errorf("%d EndTxn, want 2", n)
			}
		})
	}
}

// Case 11 and its mirror: the acknowledgement of the decision is lost. Who waits
// is told to ask again and nothing is sent; the log, read again, says which.
func TestAnAppendOfUnknownFate(t *testing.T) {
	for _, tc := range []struct {
		name    string
		lose    func(*memlog.Log) bool
		again   bool // what the client asks for afterwards
		outcome int8
	}{
		{"landed, asked again", func(l *memlog.Log) bool { return l.LoseAck(0) }, true, wire.OutcomeCommitted},
		{"landed, then abort asked", func(l *memlog.Log) bool { return l.LoseAck(0) }, false, wire.OutcomeCommitted},
		{"absent, then abort asked", func(l *memlog.Log) bool { return l.Fail(0) }, false, wire.OutcomeAborted},
		{"absent, asked again", func(l *memlog.Log) bool { return l.Fail(0) }, true, wire.OutcomeCommitted},
	} {
		t.Run(tc.name, func(t *testing.T) {
			store := memlog.NewStore(1)
			st := play(t, store, newClusters()).active()
			s := st.open("pay", "a", "b")
			store.Hold(0)
			answer := s.ending(true, time.Minute)
			st.inFlight(1)
			if !tc.lose(st.log) {
				t.Fatal("nothing was in flight")
			}
			if resp := <-answer; resp.ErrorCode != kerr.CoordinatorLoadInProgress.Code || resp.Outcome != wire.OutcomeUnknown {
				t.Errorf("who waited was told code %d outcome %d, want to ask again", resp.ErrorCode, resp.Outcome)
			}
			st.log.Release(0)
			decided(t, s.until(tc.again), tc.outcome)
			what := map[int8]string{wire.OutcomeCommitted: "commit", wire.OutcomeAborted: "abort"}[tc.outcome]
			for _, told := range st.clusters.heard() {
				if !strings.HasSuffix(told, what) {
					t.Errorf("told %q, and the outcome is %s", told, what)
				}
			}
			oneDecision(t, store, "pay")
		})
	}
}

func oneDecision(t *testing.T, store *memlog.Store, id string) {
	t.Helper()
	all := states(t, store, id)
	if slices.Contains(all, txnlog.StatePrepareCommit) && slices.Contains(all, txnlog.StatePrepareAbort) {
		t.Errorf("decided both ways: %v", all)
	}
}

// Case 16a: three decisions fail in a row, the next try succeeds, and no id is
// left busy.
func TestADecisionThatCannotBeWrittenIsTakenAgain(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters()).active()
	s := st.open("pay", "a", "b")
	store.Hold(0)
	for range 3 {
		answer := s.ending(true, time.Minute)
		st.inFlight(1)
		st.log.Fail(0)
		if resp := <-answer; resp.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
			t.Fatalf("code %d", resp.ErrorCode)
		}
		st.active()
	}
	if told := st.clusters.heard(); len(told) > 0 {
		t.Errorf("told %v without a decision", told)
	}
	st.log.Release(0)
	decided(t, s.until(true), wire.OutcomeCommitted)
	s.sequence++
	decided(t, s.until(true), wire.OutcomeCommitted)
}

// Case 16b: only the completion fails. Nobody is told another outcome, and it
// is written later.
func TestACompletionThatCannotBeWrittenIsWrittenLater(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters(), func(o *service.Options) { o.LazyLinger = time.Millisecond }).active()
	s := st.open("pay", "a", "b")
	store.Hold(0)
	answer := s.ending(true, time.Minute)
	st.inFlight(1)
	st.log.Ack(0)
	decided(t, <-answer, wire.OutcomeCommitted)
	st.inFlight(1) // the completion
	st.log.Fail(0)
	st.log.Release(0)
	eventually(t, func() error {
		all := states(t, store, "pay")
		if last := all[len(all)-1]; last != txnlog.StateCompleteCommit {
			return fmt.Errorf("the log says %v last", last)
		}
		return nil
	})
	decided(t, s.until(true), wire.OutcomeCommitted)
	for _, told := range st.clusters.heard() {
		if !strings.HasSuffix(told, "commit") {
			t.Errorf("told %q", told)
		}
	}
}

// Case 16c: a thousand sessions that could not be written have moved the epoch
// by none.
func TestSessionsThatCannotBeWrittenUseUpNoEpoch(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters(), func(o *service.Options) { o.ReloadBackoff = time.Microsecond }).active()
	first := st.open("pay", "a")
	store.Hold(0)
	for range 1000 {
		answer := make(chan int16, 1)
		st.active()
		go func() { answer <- st.handle(initRequest("pay", 2, "a")).(*wire.InitGlobalTxnResponse).ErrorCode }()
		for len(answer) == 0 && !st.log.Fail(0) {
			time.Sleep(10 * time.Microsecond)
		}
		if code := <-answer; code != kerr.CoordinatorLoadInProgress.Code {
			t.Fatalf("code %d", code)
		}
	}
	st.log.Release(0)
	var resp *wire.InitGlobalTxnResponse
	eventually(t, func() error {
		resp = st.handle(initRequest("pay", 2, "a")).(*wire.InitGlobalTxnResponse)
		return kerr.ErrorForCode(resp.ErrorCode)
	})
	if resp.GlobalEpoch != first.epoch+1 {
		t.Errorf("epoch %d after %d, want one more", resp.GlobalEpoch, first.epoch)
	}
}

// Case 22: the owner is paused between its check and its append. The next one
// is asked for an abort; the first one's commit is refused by the log, and it
// sends nothing more.
func TestAFencedOwnerSendsNothing(t *testing.T) {
	store := memlog.NewStore(1)
	paused := play(t, store, newClusters(), func(o *service.Options) { o.ReloadBackoff = time.Hour }).active()
	s := paused.open("pay", "a", "b")
	store.Hold(0)
	answer := s.ending(true, time.Minute)
	paused.inFlight(1)

	next := play(t, store, newClusters()).active()
	next.log.Release(0)
	decided(t, s.on(next).until(false), wire.OutcomeAborted)

	paused.log.Ack(0) // it wakes up
	if resp := <-answer; resp.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("code %d outcome %d, want to ask again", resp.ErrorCode, resp.Outcome)
	}
	if told := paused.clusters.heard(); len(told) > 0 {
		t.Errorf("the fenced owner told %v", told)
	}
	decided(t, s.on(next).until(true), wire.OutcomeAborted)
	oneDecision(t, store, "pay")
}

// A one-phase commit has no record before it. Below EndTxn v5 a superseded owner
// would so commit what a client, asleep as long as it, writes after the next
// owner's scan has aborted the beginning.
func TestASupersededOwnerSendsNoOnePhaseCommitBelowV5(t *testing.T) {
	store, c := memlog.NewStore(1), newClusters()
	c.below5 = true
	old := play(t, store, c, func(o *service.Options) { o.ReloadBackoff = time.Hour }).active()
	s := old.open("pay", "a")
	before := old.log.Stats()
	decided(t, s.end(true, time.Minute), wire.OutcomeCommitted)
	if forced := old.log.Stats().Appends - before.Appends; forced != 1 {
		t.Errorf("%d appends before the EndTxn, want 1", forced)
	}
	s.sequence++
	play(t, store, newClusters()).active()
	if resp := s.end(true, time.Minute); resp.ErrorCode != kerr.CoordinatorLoadInProgress.Code {
		t.Errorf("code %d outcome %d, want to ask again", resp.ErrorCode, resp.Outcome)
	}
	if told := c.heard(); len(told) != 1 {
		t.Errorf("told %v, want only the commit of before", told)
	}
}

// Case 22: paused after its append and before its EndTxn. The next owner finds
// the commit.
func TestTheNextOwnerFindsTheDecisionOfOneThatPausedAfterIt(t *testing.T) {
	store, c, resume := memlog.NewStore(1), newClusters(), make(chan struct{})
	c.end = func(_ context.Context, _ string, p txnlog.Participant, _ bool) gtc.EndAnswer {
		<-resume
		return done(p)
	}
	paused := play(t, store, c, func(o *service.Options) { o.ReloadBackoff = time.Hour }).active()
	s := paused.open("pay", "a", "b")
	s.ending(true, time.Minute)
	eventually(t, func() error {
		if len(c.heard()) < 2 {
			return fmt.Errorf("told %v", c.heard())
		}
		return nil
	})
	next := play(t, store, newClusters()).active()
	decided(t, s.on(next).until(false), wire.OutcomeCommitted)
	if told := next.clusters.heard(); !slices.Contains(told, "pay a commit") || !slices.Contains(told, "pay b commit") || len(told) != 2 {
		t.Errorf("the next owner told %v, want the commit to both", told)
	}
	close(resume)
	oneDecision(t, store, "pay")
}

// Case 9: a commit whose append takes long, and an abort from the same client
// after its deadline. There is one outcome, and repeats get it.
func TestCommitThenAbortFromOneClientHasOneOutcome(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters()).active()
	s := st.open("pay", "a", "b")
	store.Hold(0)
	began := time.Now()
	resp := s.end(true, 200*time.Millisecond)
	if resp.ErrorCode != 0 || resp.Outcome != wire.OutcomeUnknown {
		t.Errorf("at the deadline: code %d outcome %d, want outcome unknown", resp.ErrorCode, resp.Outcome)
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("the answer to a deadline of 200 ms took %v", took)
	}
	abort := s.ending(false, time.Minute)
	st.barrier()
	st.log.Release(0)
	decided(t, <-abort, wire.OutcomeCommitted)
	for range 3 {
		decided(t, s.end(true, time.Minute), wire.OutcomeCommitted)
		decided(t, s.end(false, time.Minute), wire.OutcomeCommitted)
	}
	oneDecision(t, store, "pay")
}

// Lazy records cost no write of their own: they ride with the next forced one,
// the newest of each id. A coordinator that ends in order leaves none behind.
func TestLazyRecordsRideAlong(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters()).active()
	s := st.open("pay", "a", "b")
	before := st.log.Stats()
	decided(t, s.end(true, time.Minute), wire.OutcomeCommitted)
	now := st.log.Stats()
	if appends, records := now.Appends-before.Appends, now.Records-before.Records; appends != 1 || records != 1 {
		t.Errorf("a commit made %d appends of %d records, want 1 of 1", appends, records)
	}
	s.sequence++
	decided(t, s.end(true, time.Minute), wire.OutcomeCommitted)
	then := st.log.Stats()
	if appends, records := then.Appends-now.Appends, then.Records-now.Records; appends != 1 || records != 2 {
		t.Errorf("the next commit made %d appends of %d records, want 1 of 2: completion of the first with its decision", appends, records)
	}
	logged(t, store, "pay", txnlog.StateEmpty, txnlog.StatePrepareCommit, txnlog.StateCompleteCommit, txnlog.StatePrepareCommit)
	st.close()
	logged(t, store, "pay", txnlog.StateEmpty, txnlog.StatePrepareCommit, txnlog.StateCompleteCommit, txnlog.StatePrepareCommit, txnlog.StateCompleteCommit)
}

// largest wraps a log and remembers the longest names that came in one append.
type largest struct {
	txnlog.Log
	tombstones, names atomic.Int64
}

func (l *largest) Claim(ctx context.Context, partition int32, replay func(txnlog.Entry) error) (txnlog.Writer, error) {
	w, err := l.Log.Claim(ctx, partition, replay)
	return measured{w, l}, err
}

type measured struct {
	txnlog.Writer
	l *largest
}

func (w measured) Append(records []txnlog.Record, done func(error)) {
	n := int64(0)
	for _, r := range records {
		n += int64(len(r.GlobalTransactionalID))
		if r.Value == nil {
			w.l.tombstones.Add(1)
		}
	}
	w.l.names.Store(max(w.l.names.Load(), n)) // one goroutine, that of the shard
	w.Writer.Append(records, done)
}

// Many ids that expire together are not one append: above the topic's
// max.message.bytes it would be refused, the term end, and the next one fail at
// the same.
func TestManyTombstonesAreNotOneAppend(t *testing.T) {
	const ids = 40
	store := memlog.NewStore(1)
	c := newClusters()
	c.set(func() { c.open["a"] = nil }) // a is scanned, and has nothing open
	log := &largest{Log: store.Open()}
	cfg := gtc.DefaultConfig()
	cfg.ExpirationMillis = 2000
	s, err := service.New(service.Options{
		Log: log, Participants: c, Config: cfg, Logger: zerolog.Nop(), ScanInterval: 10 * time.Millisecond, LazyLinger: time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	s.OwnAll()
	defer func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		log.Close()
	}()
	eventually(t, func() error {
		if active, _ := s.Loaded(); active != 1 {
			return errors.New("it does not load")
		}
		return nil
	})
	for i := range ids {
		name := fmt.Sprintf("%d%s", i, strings.Repeat("x", 30_000))
		resp := s.Handle(t.Context(), "", "", initRequest(name, 1, "a")).(*wire.InitGlobalTxnResponse)
		if resp.ErrorCode != 0 {
			t.Fatalf("InitGlobalTxn: %v", kerr.ErrorForCode(resp.ErrorCode))
		}
	}
	eventually(t, func() error {
		if n := log.tombstones.Load(); n != ids {
			return fmt.Errorf("%d tombstones, want %d", n, ids)
		}
		return nil
	})
	if n := log.names.Load(); n > 200_000 {
		t.Errorf("one append had names of %d bytes", n)
	}
}

// What is lazy and lost is asked again, and told no other way.
func TestALostCompletionIsToldAgain(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters(), func(o *service.Options) { o.ReloadBackoff = time.Hour }).active()
	s := st.open("pay", "a", "b")
	decided(t, s.end(true, time.Minute), wire.OutcomeCommitted)
	next := play(t, store, newClusters(), func(o *service.Options) { o.LazyLinger = time.Millisecond }).active()
	eventually(t, func() error {
		if d := next.describe("pay"); d.State != "CompleteCommit" {
			return fmt.Errorf("state %s", d.State)
		}
		return nil
	})
	if told := next.clusters.heard(); len(told) != 2 || strings.Contains(fmt.Sprint(told), "abort") {
		t.Errorf("told %v, want the commit to both once more", told)
	}
	s = s.on(next)
	s.sequence++
	decided(t, s.until(true), wire.OutcomeCommitted)
}

// An effect waits for the records of its own id, and not for another's.
func TestAnIDDoesNotWaitForTheRecordOfAnother(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters()).active()
	slow, fast := st.open("slow", "a", "b"), st.open("fast", "a")
	store.Hold(0)
	answer := slow.ending(true, time.Minute)
	st.inFlight(1)
	decided(t, fast.end(true, time.Minute), wire.OutcomeCommitted) // one phase: no record before its answer
	decided(t, fast.end(true, time.Minute), wire.OutcomeCommitted)
	if len(answer) > 0 {
		t.Error("the slow one was answered before its decision was durable")
	}
	// A query shows all ids, so it waits for all.
	described := make(chan string, 1)
	go func() { described <- st.describe("fast").State }()
	st.barrier()
	if len(described) > 0 {
		t.Error("a query was answered with what is not durable")
	}
	st.log.Release(0)
	decided(t, <-answer, wire.OutcomeCommitted)
	if state := <-described; state != "CompleteCommit" {
		t.Errorf("fast is %s", state)
	}
}

// An answer that waits for the log is not forgotten when the log fails: who asks
// is told to ask again (or, if he came late, what the log says).
func TestADescriptionThatWaitsForALostRecordIsAnswered(t *testing.T) {
	store := memlog.NewStore(1)
	st := play(t, store, newClusters()).active()
	s := st.open("pay", "a", "b")
	store.Hold(0)
	ended := s.ending(true, time.Minute)
	st.inFlight(1)
	described := make(chan wire.DescribeGlobalTransactionsResponseGlobalTransaction, 1)
	go func() { described <- st.describe("pay") }()
	select {
	case d := <-described:
		t.Fatalf("told %s before it is durable", d.State)
	case <-time.After(50 * time.Millisecond):
	}
	if !st.log.Fail(0) {
		t.Fatal("nothing was in flight")
	}
	select {
	case d := <-described:
		if d.ErrorCode != kerr.CoordinatorLoadInProgress.Code && d.State != wire.StateEmpty {
			t.Errorf("code %d state %q, want COORDINATOR_LOAD_IN_PROGRESS", d.ErrorCode, d.State)
		}
	case <-time.After(patience):
		t.Error("no answer")
	}
	<-ended
}
