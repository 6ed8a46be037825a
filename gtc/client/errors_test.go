package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// calls are those on a transaction, for those that wait for another.
var calls = map[string]func(*Txn, context.Context) (Result, error){
	"Commit": (*Txn).Commit, "Abort": (*Txn).Abort, "Wait": (*Txn).Wait, "WaitVisible": (*Txn).WaitVisible,
}

// held starts a Commit that stays where its cluster or coordinator holds it, and
// ends it, and the hold, with the test.
func held(t *testing.T, txn *Txn, release func()) {
	t.Helper()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = txn.Commit(t.Context()) })
	t.Cleanup(wg.Wait)
	t.Cleanup(release)
}

// A wait for another call's lock says what that one has done: while it still
// flushes nothing was asked.
func TestAWaitForACallThatFlushesHasAskedNothing(t *testing.T) {
	e := newEnv(t)
	release, flushing := make(chan struct{}), make(chan struct{})
	e.us.fake.ControlKey(0, func(kmsg.Request) (kmsg.Response, error, bool) {
		close(flushing)
		e.us.fake.SleepControl(func() { <-release })
		return nil, nil, false
	})
	txn := begin(t, e.open(t))
	produce(t, txn, "us", "a")
	held(t, txn, func() { close(release) })
	<-flushing
	for !txn.endedNow() {
		time.Sleep(time.Millisecond)
	}
	for name, call := range calls {
		var unknown *UnknownOutcomeError
		if _, err := call(txn, deadline(t, 20*time.Millisecond)); !errors.As(err, &unknown) || unknown.Asked || unknown.Final {
			t.Errorf("%s = %v, want an UnknownOutcomeError that was not asked", name, err)
		}
	}
}

func (t *Txn) endedNow() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended
}

// While it waits for the coordinator's answer, it was asked.
func TestAWaitForACallThatAsksWasAsked(t *testing.T) {
	e := newEnv(t)
	release, asked := make(chan struct{}), make(chan struct{})
	e.endHook = func(n int, _ *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if n == 1 {
			close(asked)
		}
		<-release
		return nil, true
	}
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	held(t, txn, func() { close(release) })
	<-asked
	for name, call := range calls {
		var unknown *UnknownOutcomeError
		if _, err := call(txn, deadline(t, 20*time.Millisecond)); !errors.As(err, &unknown) || !unknown.Asked {
			t.Errorf("%s = %v, want an UnknownOutcomeError that was asked", name, err)
		}
	}
	if next, err := cl.Begin(deadline(t, 20*time.Millisecond)); next != nil || !errors.Is(err, context.DeadlineExceeded) || errors.As(err, new(*UnknownOutcomeError)) {
		t.Errorf("Begin = %v, want the end of its context", err)
	}
}

// While another call waits for what is pending or not yet visible, the outcome
// is known, and Commit and Abort say it at once.
func TestACallThatWaitsDoesNotHideTheOutcome(t *testing.T) {
	e := newEnv(t)
	var back atomic.Bool
	e.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		resp := wire.NewPtrEndGlobalTxnResponse()
		resp.Outcome = wire.OutcomeCommitted
		for _, p := range req.Participants {
			resp.Participants = append(resp.Participants, wire.EndGlobalTxnResponseParticipant{
				ClusterID: p.ClusterID, State: wire.ParticipantPending, ProducerID: -1, ProducerEpoch: -1,
			})
		}
		return resp, !back.Load()
	}
	txn := begin(t, e.open(t))
	produce(t, txn, "us", "a")
	if _, err := txn.Commit(deadline(t, patience)); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = txn.Wait(t.Context()) })
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { back.Store(true) })
	for asked := e.count(wire.KeyEndGlobalTxn); e.count(wire.KeyEndGlobalTxn) == asked; {
		time.Sleep(time.Millisecond) // until it has the lock
	}
	if r, err := txn.Commit(deadline(t, 20*time.Millisecond)); err != nil || r.Outcome != OutcomeCommitted {
		t.Errorf("Commit = %+v, %v, want committed", r, err)
	}
	if r, err := txn.Abort(deadline(t, 20*time.Millisecond)); !errors.Is(err, ErrCommitted) || r.Outcome != OutcomeCommitted {
		t.Errorf("Abort = %+v, %v, want ErrCommitted", r, err)
	}
	for name, call := range map[string]func(*Txn, context.Context) (Result, error){"Wait": (*Txn).Wait, "WaitVisible": (*Txn).WaitVisible} {
		var pending *PendingError
		_, err := call(txn, deadline(t, 20*time.Millisecond))
		if !errors.As(err, &pending) || pending.Outcome != OutcomeCommitted || !slices.Equal(pending.Clusters, []string{"us"}) {
			t.Errorf("%s = %v, want a PendingError for us", name, err)
		}
	}
}

// A known outcome is not called unknown because nothing more is learned of it.
func TestAPendingTransactionIsNotCalledUnknown(t *testing.T) {
	for name, code := range map[string]int16{
		"no answer": 0, "fenced": kerr.ProducerFenced.Code, "forgotten": wire.GlobalTransactionTooOld.Code,
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
				if n > 1 {
					return refusal(code), true
				}
				resp := wire.NewPtrEndGlobalTxnResponse()
				resp.Outcome = wire.OutcomeCommitted
				resp.Participants = []wire.EndGlobalTxnResponseParticipant{{
					ClusterID: req.Participants[0].ClusterID, State: wire.ParticipantPending, ProducerID: -1, ProducerEpoch: -1,
				}}
				return resp, true
			}
			txn := begin(t, e.open(t))
			produce(t, txn, "us", "a")
			if _, err := txn.Commit(deadline(t, patience)); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				var pending *PendingError
				_, err := txn.Wait(deadline(t, 200*time.Millisecond))
				if !errors.As(err, &pending) || errors.As(err, new(*UnknownOutcomeError)) || pending.Outcome != OutcomeCommitted {
					t.Errorf("Wait = %v, want a PendingError and no word of an unknown outcome", err)
				}
				if fenced := errors.As(err, new(*FencedError)); fenced != (name == "fenced") {
					t.Errorf("Wait = %v", err)
				}
			}
		})
	}
}

// A context that ends while the coordinator is looked for has asked nothing, so
// the client may abort by itself.
func TestACoordinatorThatIsNotFoundWasNotAsked(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	e.findHook = func(int) (*wire.FindCoordinatorResponse, bool) { return nil, true }
	coord := cl.slots[0].session.coord
	coord.mu.Lock()
	node := coord.node
	coord.mu.Unlock()
	coord.forget(node)
	var unknown *UnknownOutcomeError
	if _, err := txn.Commit(deadline(t, 100*time.Millisecond)); !errors.As(err, &unknown) || unknown.Asked {
		t.Fatalf("Commit = %v, want an UnknownOutcomeError that was not asked", err)
	}
	if r, err := txn.Abort(deadline(t, patience)); err != nil || !r.Complete() {
		t.Fatalf("Abort = %+v, %v, want aborted", r, err)
	}
	if n := e.count(wire.KeyEndGlobalTxn); n != 0 {
		t.Errorf("the coordinator was asked %d times", n)
	}
}

// kgo may write a request after its caller was told that nothing was asked. It
// then names nobody, which the coordinator refuses.
func TestAQuestionThatWasGivenUpNamesNobody(t *testing.T) {
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.Committed = globalID, true
	req.Participants = []wire.EndGlobalTxnRequestParticipant{{ClusterID: "us", ProducerID: 1}}
	read := func(c *askedCopy) *wire.EndGlobalTxnRequest {
		got := wire.NewPtrEndGlobalTxnRequest()
		if err := got.ReadFrom(c.AppendTo(nil)); err != nil {
			t.Fatal(err)
		}
		return got
	}
	q := &question{request: req}
	if !q.withdraw() || q.mayHaveLeft() {
		t.Fatal("it may have left")
	}
	if got := read(&askedCopy{req, q}); len(got.Participants) != 0 {
		t.Errorf("it names %v", got.Participants)
	}
	q = &question{request: req}
	if got := read(&askedCopy{req, q}); len(got.Participants) != 1 {
		t.Errorf("it names %v", got.Participants)
	}
	if q.withdraw() || !q.mayHaveLeft() {
		t.Error("what has left was given up")
	}
}

// Begin and Close wait for one another, and say that they have done nothing.
func TestAWaitForTheClientSaysThatNothingWasDone(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	if err := cl.lock.acquire(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := cl.Begin(deadline(t, 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Begin = %v", err)
	}
	if err := cl.Close(deadline(t, 10*time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Close = %v", err)
	}
	cl.lock.release()
	commit(t, begin(t, cl))
}
