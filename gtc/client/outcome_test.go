package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Case 12: kgo's Flush is nil although a record failed.
func TestFailedRecordAbortsEverywhere(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	produce(t, txn, "eu", "b")
	var promised error
	done := make(chan struct{})
	txn.Produce(t.Context(), "us", &kgo.Record{Topic: topic, Value: make([]byte, 3<<20)}, func(_ *kgo.Record, err error) {
		promised = err
		close(done)
	})
	produce(t, txn, "us", "c")
	r, err := txn.Commit(deadline(t, patience))
	<-done
	var record *RecordError
	if !errors.As(err, new(*AbortedError)) || !errors.As(err, &record) {
		t.Fatalf("Commit = %v, want an AbortedError because of a RecordError", err)
	}
	if record.Cluster != "us" || !errors.Is(promised, kerr.MessageTooLarge) || !errors.Is(err, kerr.MessageTooLarge) {
		t.Errorf("cluster %q, promise %v, error %v; want us and MESSAGE_TOO_LARGE", record.Cluster, promised, err)
	}
	if r.Outcome != OutcomeAborted || !r.Complete() {
		t.Errorf("result %+v, want aborted and complete", r)
	}
	for range 2 {
		if _, again := txn.Commit(t.Context()); again.Error() != err.Error() {
			t.Errorf("Commit again: %v, want %v", again, err)
		}
	}
	if _, err := txn.Abort(t.Context()); err != nil {
		t.Errorf("Abort after that: %v, want nil", err)
	}
	if n := e.count(wire.KeyEndGlobalTxn); n != 0 {
		t.Errorf("the coordinator was asked %d times, want never", n)
	}
	txn = begin(t, cl)
	produce(t, txn, "us", "d")
	produce(t, txn, "eu", "d")
	commit(t, txn)
	for _, addr := range []string{e.us.addr, e.eu.addr} {
		if got, want := visible(t, addr), []string{"d"}; !slices.Equal(got, want) {
			t.Errorf("visible %q, want %q", got, want)
		}
	}
}

// What kgo does by itself when a broker has forgotten its producer: it takes a
// new epoch in the middle of the transaction, which aborts what was written,
// and goes on. The rest must not be committed alone.
func TestNoNewProducerEpochInsideATransaction(t *testing.T) {
	e := newEnv(t)
	txn := begin(t, e.open(t))
	if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var once atomic.Bool
	e.us.fake.ControlKey(0, func(req kmsg.Request) (kmsg.Response, error, bool) {
		if !once.CompareAndSwap(false, true) {
			return nil, nil, false
		}
		r := req.(*kmsg.ProduceRequest)
		resp := r.ResponseKind().(*kmsg.ProduceResponse)
		for _, rt := range r.Topics {
			st := kmsg.NewProduceResponseTopic()
			st.Topic, st.TopicID = rt.Topic, rt.TopicID
			for _, rp := range rt.Partitions {
				sp := kmsg.NewProduceResponseTopicPartition()
				sp.Partition, sp.ErrorCode, sp.LogStartOffset = rp.Partition, kerr.UnknownProducerID.Code, 1000
				st.Partitions = append(st.Partitions, sp)
			}
			resp.Topics = append(resp.Topics, st)
		}
		return resp, nil, true
	})
	produce(t, txn, "us", "b")
	produce(t, txn, "eu", "c")
	_, err := txn.Commit(deadline(t, patience))
	if !errors.As(err, new(*AbortedError)) {
		t.Fatalf("Commit = %v, want an AbortedError", err)
	}
	if !once.Load() {
		t.Fatal("the fault was not met")
	}
	if n := e.count(wire.KeyEndGlobalTxn); n != 0 {
		t.Errorf("the coordinator was asked %d times, want never", n)
	}
	for _, addr := range []string{e.us.addr, e.eu.addr} {
		if got := visible(t, addr); len(got) != 0 {
			t.Errorf("visible %q, want nothing", got)
		}
	}
}

// A client that slept while another took the id over finds its records refused
// and aborts. Below transaction.version 2 kgo would do that by InitProducerId,
// for which Kafka aborts what the other one has open: voted on and decided,
// perhaps. (R3: InitGlobalTxn comes first, and refuses it.)
func TestAbortOfASleeperLeavesTheOtherClientAlone(t *testing.T) {
	e := newEnv(t)
	below2 := kversion.Stable()
	below2.SetMaxKeyVersion(0, 11)
	below2.SetMaxKeyVersion(keyEndTxn, 4)
	versions := kgo.MaxVersions(below2)
	o := e.options()
	o.Clusters["us"] = Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(e.us.addr), versions}}
	sleeper := open(t, o)
	txn := begin(t, sleeper)
	if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	other, err := kgo.NewClient(kgo.SeedBrokers(e.us.addr), versions, kgo.TransactionalID(o.GlobalTransactionalID))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err = other.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err = other.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte("b")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	inits := e.us.inits.Load()
	produce(t, txn, "us", "c")
	r, err := txn.Commit(deadline(t, patience))
	if !errors.As(err, new(*AbortedError)) || !r.Complete() {
		t.Fatalf("Commit = %+v, %v, want an AbortedError and nothing pending", r, err)
	}
	if got := e.us.inits.Load(); got != inits {
		t.Errorf("the sleeper sent %d InitProducerId", got-inits)
	}
	if err = other.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Errorf("the other client's commit: %v", err)
	}
	if got, want := visible(t, e.us.addr), []string{"b"}; !slices.Equal(got, want) {
		t.Errorf("visible %q, want %q", got, want)
	}
}

// The same request is sent until there is an answer, to whoever coordinates.
func TestCommitAsksAgain(t *testing.T) {
	loading := kerr.CoordinatorLoadInProgress.Code
	for name, fault := range map[string]func(e env){
		"answer lost":           func(e env) { e.dropAnswer = func(n int) bool { return n <= 2 } },
		"not the coordinator":   func(e env) { e.endHook = first(2, kerr.NotCoordinator.Code) },
		"loading":               func(e env) { e.endHook = first(3, loading) },
		"not available":         func(e env) { e.endHook = first(2, kerr.CoordinatorNotAvailable.Code) },
		"previous one pending":  func(e env) { e.endHook = first(2, kerr.ConcurrentTransactions.Code) },
		"participant away":      func(e env) { e.endHook = first(2, wire.ParticipantNotAvailable.Code) },
		"not decided":           func(e env) { e.endHook = first(2, 0) },
		"request lost":          func(e env) { e.endHook = breakFirst(2) },
		"coordinator not found": func(e env) { e.endHook, e.findHook = breakFirst(1), findFails(e, 3) },
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			cl := e.open(t)
			fault(e)
			for i := range 2 {
				txn := begin(t, cl)
				produce(t, txn, "us", fmt.Sprint(i))
				produce(t, txn, "eu", fmt.Sprint(i))
				commit(t, txn)
			}
			if n := e.count(wire.KeyEndGlobalTxn); n < 3 {
				t.Errorf("%d EndGlobalTxn, want the first one repeated", n)
			}
			for _, c := range []participantCluster{e.us, e.eu} {
				if got, want := visible(t, c.addr), []string{"0", "1"}; !slices.Equal(got, want) {
					t.Errorf("%s shows %q, want %q", c.name, got, want)
				}
				if got := c.endTxns.Load(); got != 2 {
					t.Errorf("%s got %d EndTxn, want 2", c.name, got)
				}
			}
		})
	}
}

type endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool)

func first(times int, code int16) endHook {
	return func(n int, _ *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		return refusal(code), n <= times
	}
}

func breakFirst(times int) endHook {
	return func(n int, _ *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) { return nil, n <= times }
}

// findFails fails the look-ups that follow the first one.
func findFails(e env, times int) func(int) (*wire.FindCoordinatorResponse, bool) {
	return func(n int) (*wire.FindCoordinatorResponse, bool) {
		resp := wire.NewPtrFindCoordinatorResponse()
		resp.Coordinators = []wire.FindCoordinatorResponseCoordinator{{
			Key: "payments-7", ErrorCode: kerr.CoordinatorNotAvailable.Code,
		}}
		return resp, n > 1 && n <= 1+times
	}
}

func TestVoteAgainstCommitIsAnAbort(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	reason := "not prepared: cluster-eu: fenced"
	e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if n > 1 {
			return nil, false
		}
		copied := *req
		copied.Committed = false
		resp := e.endGlobalTxn(t.Context(), &copied)
		resp.ErrorMessage = &reason
		return resp, true
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	produce(t, txn, "eu", "a")
	r, err := txn.Commit(deadline(t, patience))
	if !errors.As(err, new(*AbortedError)) || !strings.Contains(err.Error(), reason) {
		t.Fatalf("Commit = %v, want an AbortedError with the coordinator's reason", err)
	}
	if r.Reason != reason || !r.Complete() {
		t.Errorf("result %+v", r)
	}
	txn = begin(t, cl)
	produce(t, txn, "us", "b")
	commit(t, txn)
	if got := e.us.inits.Load(); got != 1 {
		t.Errorf("us got %d InitProducerId, want 1: an abort by the coordinator is adopted as well", got)
	}
	if got, want := visible(t, e.us.addr), []string{"b"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}

// Case 9: the deadline passes while the coordinator decides, and the abort that
// follows is told which outcome won. No EndTxn of the client leaves.
func TestAbortAfterCommitReturnsTheOutcomeThatWon(t *testing.T) {
	for _, committed := range []bool{true, false} {
		t.Run(fmt.Sprintf("committed=%v", committed), func(t *testing.T) {
			e := newEnv(t)
			cl := e.open(t)
			e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
				if n == 1 && committed {
					e.endGlobalTxn(context.Background(), req)
				}
				return refusal(0), n == 1 || req.Committed
			}
			txn := begin(t, cl)
			produce(t, txn, "us", "a")
			produce(t, txn, "eu", "a")
			_, err := txn.Commit(expiresWhen(t, func() bool { return e.count(wire.KeyEndGlobalTxn) > 1 })) // the first one is answered
			var unknown *UnknownOutcomeError
			if !errors.As(err, &unknown) || !unknown.Asked || unknown.Final {
				t.Fatalf("Commit = %v, want an UnknownOutcomeError that was asked", err)
			}
			if _, err := cl.Begin(t.Context()); !errors.Is(err, ErrTxnOpen) {
				t.Errorf("Begin = %v, want ErrTxnOpen", err)
			}
			want := []string{"a"}
			wantAbort, wantOutcome := ErrCommitted, OutcomeCommitted
			if !committed {
				want, wantAbort, wantOutcome = nil, nil, OutcomeAborted
			}
			for range 3 {
				r, err := txn.Abort(deadline(t, patience))
				if !errors.Is(err, wantAbort) || r.Outcome != wantOutcome {
					t.Fatalf("Abort = %v, %v, want %v, %v", r.Outcome, err, wantOutcome, wantAbort)
				}
				r, err = txn.Commit(deadline(t, patience))
				if errors.As(err, new(*AbortedError)) == committed || r.Outcome != wantOutcome {
					t.Fatalf("Commit = %v, %v, want %v", r.Outcome, err, wantOutcome)
				}
			}
			for _, c := range []participantCluster{e.us, e.eu} {
				if got := c.endTxns.Load(); got != 1 {
					t.Errorf("%s got %d EndTxn, want 1", c.name, got)
				}
				if got := visible(t, c.addr); !slices.Equal(got, want) {
					t.Errorf("%s shows %q, want %q", c.name, got, want)
				}
			}
		})
	}
}

// Case 35: decided is not yet visible, the result says so, and Wait waits.
func TestPendingParticipant(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	var back atomic.Bool
	e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if back.Load() {
			return nil, false
		}
		resp := wire.NewPtrEndGlobalTxnResponse()
		resp.Outcome = wire.OutcomeCommitted
		for _, p := range req.Participants {
			resp.Participants = append(resp.Participants, wire.EndGlobalTxnResponseParticipant{
				ClusterID: p.ClusterID, State: wire.ParticipantPending, ProducerID: -1, ProducerEpoch: -1,
			})
		}
		return resp, true
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	r, err := txn.Commit(deadline(t, patience))
	if err != nil || r.Outcome != OutcomeCommitted || r.Complete() || !slices.Equal(r.Pending(), []string{"us"}) {
		t.Fatalf("Commit = %+v, %v, want committed and waiting for us", r, err)
	}
	var pending *PendingError
	if _, err = cl.Begin(deadline(t, 200*time.Millisecond)); !errors.As(err, &pending) || !slices.Equal(pending.Clusters, []string{"us"}) {
		t.Fatalf("Begin = %v, want a PendingError for us", err)
	}
	if got := e.us.inits.Load(); got != 1 {
		t.Fatalf("us got %d InitProducerId while the outcome was open there, want 1", got)
	}
	back.Store(true)
	if r, err = txn.Wait(deadline(t, patience)); err != nil || !r.Complete() {
		t.Fatalf("Wait = %+v, %v, want complete", r, err)
	}
	if got, want := visible(t, e.us.addr), []string{"a"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
	txn = begin(t, cl)
	produce(t, txn, "us", "b")
	commit(t, txn)
}

// Committed stays committed: that the coordinator does not say it again to a
// client that was fenced since does not make the outcome unknown.
func TestWhatWasToldStays(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if n > 1 {
			return refusal(kerr.ProducerFenced.Code), true
		}
		resp := wire.NewPtrEndGlobalTxnResponse()
		resp.Outcome = wire.OutcomeCommitted
		resp.Participants = []wire.EndGlobalTxnResponseParticipant{{
			ClusterID: req.Participants[0].ClusterID, State: wire.ParticipantPending, ProducerID: -1, ProducerEpoch: -1,
		}}
		return resp, true
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	if _, err := txn.Commit(deadline(t, patience)); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Wait(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
		t.Errorf("Wait = %v, want a FencedError", err)
	}
	if r, err := txn.Commit(deadline(t, patience)); err != nil || r.Outcome != OutcomeCommitted {
		t.Errorf("Commit again = %+v, %v, want committed as before", r, err)
	}
}

// A participant whose producer cannot go on is initialised again, after
// InitGlobalTxn.
func TestProducerIsInitialisedAgainWhenTheReplySaysSo(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if n > 1 {
			return nil, false
		}
		resp := *e.endGlobalTxn(t.Context(), req)
		resp.Participants = slices.Clone(resp.Participants)
		for i := range resp.Participants {
			if p := &resp.Participants[i]; p.ClusterID == e.eu.id {
				p.ProducerID, p.ProducerEpoch = -1, -1
			}
		}
		return &resp, true
	}
	for i := range 2 {
		txn := begin(t, cl)
		produce(t, txn, "us", fmt.Sprint(i))
		produce(t, txn, "eu", fmt.Sprint(i))
		commit(t, txn)
	}
	if us, eu := e.us.inits.Load(), e.eu.inits.Load(); us != 1 || eu != 2 {
		t.Errorf("InitProducerId: us %d, eu %d, want 1 and 2", us, eu)
	}
	if got := e.count(wire.KeyInitGlobalTxn); got != 2 {
		t.Errorf("%d InitGlobalTxn, want 2", got)
	}
	for _, c := range []participantCluster{e.us, e.eu} {
		if got, want := visible(t, c.addr), []string{"0", "1"}; !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", c.name, got, want)
		}
	}
}

func TestHeuristicOutcome(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	var forgotten atomic.Bool
	e.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if req.Sequence > 1 {
			return nil, false
		}
		resp := *e.endGlobalTxn(t.Context(), req)
		if forgotten.Load() {
			return &resp, true
		}
		resp.ErrorCode = wire.HeuristicOutcome.Code
		resp.Participants = slices.Clone(resp.Participants)
		resp.Participants[0].State = wire.ParticipantHeuristicAbort
		resp.Participants[0].ProducerID = -1
		return &resp, true
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	produce(t, txn, "eu", "a")
	_, err := txn.Commit(deadline(t, patience))
	var heuristic *HeuristicError
	if !errors.As(err, &heuristic) || heuristic.Result.Outcome != OutcomeCommitted {
		t.Fatalf("Commit = %v, want a HeuristicError of a commit", err)
	}
	if p := heuristic.Result.Participants[0]; p.Cluster != "eu" || p.State != ParticipantHeuristicAbort {
		t.Errorf("first participant %+v, want eu, heuristic abort", p)
	}
	if _, err := cl.Begin(deadline(t, patience)); !errors.As(err, new(*HeuristicError)) {
		t.Fatalf("Begin = %v, want the HeuristicError until it is forgotten", err)
	}
	forgotten.Store(true)
	txn = begin(t, cl)
	produce(t, txn, "eu", "b")
	commit(t, txn)
}

// With one participant its own answer is the outcome, and it can be lost.
func TestHeuristicOutcomeWithoutDecision(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	e.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		resp := refusal(wire.HeuristicOutcome.Code)
		resp.Participants = []wire.EndGlobalTxnResponseParticipant{{
			ClusterID: req.Participants[0].ClusterID, State: wire.ParticipantHeuristicUnknown, ProducerID: -1, ProducerEpoch: -1,
		}}
		return resp, true
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	r, err := txn.Commit(deadline(t, patience))
	if !errors.As(err, new(*HeuristicError)) || r.Outcome != OutcomeUnknown {
		t.Fatalf("Commit = %v, %v, want a HeuristicError, outcome unknown", r.Outcome, err)
	}
	if _, err := txn.Abort(t.Context()); !errors.As(err, new(*HeuristicError)) {
		t.Errorf("Abort = %v, want the same", err)
	}
}

func TestFencedByAnotherClient(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	e.takeOver()
	inits := e.us.inits.Load()
	for range 2 {
		if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
			t.Fatalf("Commit = %v, want a FencedError", err)
		}
	}
	for range 2 {
		if _, err := cl.Begin(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
			t.Fatalf("Begin = %v, want a FencedError", err)
		}
	}
	if got := e.us.inits.Load(); got != inits {
		t.Errorf("a fenced client sent %d InitProducerId", got-inits)
	}
}

// The session ended by its timeout and nobody else has the id: the client goes
// on under a new instance.
func TestSessionEndedByTimeoutIsReopened(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	produce(t, txn, "eu", "a")
	e.endSession()
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
		t.Fatalf("Commit = %v, want a FencedError", err)
	}
	txn = begin(t, cl)
	produce(t, txn, "us", "b")
	produce(t, txn, "eu", "b")
	commit(t, txn)
	for _, c := range []participantCluster{e.us, e.eu} {
		if got, want := visible(t, c.addr), []string{"b"}; !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", c.name, got, want)
		}
	}
}

// A session that ended by its timeout does not follow what becomes of a
// transaction that it never heard of: "aborted, pending" stays the answer, and
// is no reason to wait.
func TestAbortThatStaysPendingIsNotWaitedFor(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	var over atomic.Bool
	e.endHook = func(_ int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
		if over.Load() {
			return nil, false
		}
		e.mu.Lock()
		e.of(globalID).sequence = req.Sequence
		e.mu.Unlock()
		resp := wire.NewPtrEndGlobalTxnResponse()
		resp.Outcome = wire.OutcomeAborted
		for _, p := range req.Participants {
			resp.Participants = append(resp.Participants, wire.EndGlobalTxnResponseParticipant{
				ClusterID: p.ClusterID, State: wire.ParticipantPending, ProducerID: -1, ProducerEpoch: -1,
			})
		}
		return resp, true
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	produce(t, txn, "eu", "a")
	e.endSession()
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) {
		t.Fatalf("Commit = %v, want an AbortedError", err)
	}
	first := txn
	txn = begin(t, cl)
	over.Store(true)
	if _, err := first.Wait(deadline(t, patience)); err != nil { // nor does it ask any more
		t.Errorf("Wait for the first = %v", err)
	}
	produce(t, txn, "us", "b")
	produce(t, txn, "eu", "b")
	commit(t, txn)
	for _, c := range []participantCluster{e.us, e.eu} {
		if got, want := visible(t, c.addr), []string{"b"}; !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", c.name, got, want)
		}
	}
}

// A client that was idle makes itself known to the coordinator, which may have
// forgotten the id, before it writes what only the coordinator would abort. Its
// producers are as good as before.
func TestAnIdleClientAsksForItsSessionAgain(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	for i, want := range []int{1, 2, 2} {
		if i == 1 {
			cl.slots[0].session.granted = momentOf(time.Now().Add(-grantedFor / 2))
		}
		txn := begin(t, cl)
		if got := e.count(wire.KeyInitGlobalTxn); got != want {
			t.Errorf("transaction %d: %d InitGlobalTxn, want %d", i, got, want)
		}
		produce(t, txn, "us", fmt.Sprint(i))
		commit(t, txn)
	}
	if got := e.us.inits.Load(); got != 1 {
		t.Errorf("%d InitProducerId, want 1", got)
	}
}

// Begin is not what the coordinator counts from: the cluster hears of a
// transaction with its first record or offset. If that came a week later the id
// may be forgotten, and nobody would end it if this client died.
func TestATransactionThatBeginsTooLateIsRefused(t *testing.T) {
	for name, late := range map[string]moment{
		"asleep":    momentOf(time.Now().Add(-grantedFor - time.Minute)),
		"suspended": {mono: time.Now(), wall: time.Now().Round(0).Add(-grantedFor - time.Minute)},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			cl := e.open(t)
			for what, first := range map[string]func(*Txn) error{
				"record": func(txn *Txn) error {
					return txn.ProduceSync(t.Context(), "us", kgo.StringRecord("late")).FirstErr()
				},
				"offset": func(txn *Txn) error {
					g := Group{clusterID: txn.session.participants[0].clusterID, id: "g", generation: noGeneration}
					return txn.CommitOffsets(t.Context(), g, map[string]map[int32]kgo.EpochOffset{"t": {0: {}}})
				},
			} {
				txn := begin(t, cl)
				txn.granted = late
				if err := first(txn); !errors.Is(err, ErrTxnOld) {
					t.Errorf("the first %s: %v, want ErrTxnOld", what, err)
				}
				if _, err := txn.Commit(deadline(t, patience)); !errors.Is(err, ErrTxnOld) || !aborted(err) {
					t.Errorf("Commit after the %s = %v, want aborted for it", what, err)
				}
			}
			txn := begin(t, cl)
			produce(t, txn, "us", "a")
			txn.granted = late // only the first counts
			produce(t, txn, "us", "b")
			commit(t, txn)
			if got, want := visible(t, e.us.addr), []string{"a", "b"}; !slices.Equal(got, want) {
				t.Errorf("us shows %q, want %q", got, want)
			}
		})
	}
}

func aborted(err error) bool { return errors.As(err, new(*AbortedError)) }

// What is not remembered at one coordinator may be under way to another: one that
// has lost the partition, and does not know, answers from memory. When the next
// producer is initialised, that copy has been carried out or is fenced.
func TestAnOutcomeThatIsLostEndsTheSession(t *testing.T) {
	for _, code := range []int16{wire.GlobalTransactionTooOld.Code, kerr.TransactionalIDNotFound.Code} {
		for _, touched := range [][]string{{"us"}, {"us", "eu"}} {
			t.Run(fmt.Sprint(code, touched), func(t *testing.T) {
				e := newEnv(t)
				cl := e.open(t)
				epoch := cl.slots[0].session.epoch
				var first *wire.EndGlobalTxnRequest
				e.endHook = func(n int, req *wire.EndGlobalTxnRequest) (*wire.EndGlobalTxnResponse, bool) {
					if n == 1 {
						first = req
					}
					return refusal(code), n == 1
				}
				txn := begin(t, cl)
				for _, c := range touched {
					produce(t, txn, c, "a")
				}
				var unknown *UnknownOutcomeError
				for range 2 {
					if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, &unknown) || !unknown.Final {
						t.Fatalf("Commit = %v, want a final UnknownOutcomeError", err)
					}
				}
				inits := e.us.inits.Load()
				txn = begin(t, cl)
				if got := e.us.inits.Load(); got != inits {
					t.Errorf("%d InitProducerId in Begin, want the producer initialised when it is used", got-inits)
				}
				if got := e.count(wire.KeyInitGlobalTxn); got != 3 {
					t.Errorf("%d InitGlobalTxn, want one for the session of before, which asks whether the id is ours, and one for a new one", got)
				}
				copied := *first
				if got := e.endGlobalTxn(t.Context(), &copied); got.ErrorCode != kerr.ProducerFenced.Code {
					t.Fatalf("a copy of the first EndGlobalTxn is answered code %d, want PRODUCER_FENCED", got.ErrorCode)
				}
				for _, c := range []string{"us", "eu"} {
					produce(t, txn, c, "b")
				}
				commit(t, txn)
				if got := cl.slots[0].session.epoch; got != epoch+1 {
					t.Errorf("global epoch %d, want %d", got, epoch+1)
				}
				for _, c := range []participantCluster{e.us, e.eu} {
					if got, want := visible(t, c.addr), []string{"b"}; !slices.Equal(got, want) {
						t.Errorf("%s shows %q, want %q", c.name, got, want)
					}
				}
			})
		}
	}
}

// The new session is a question of one's own id: what another client has taken over
// meanwhile is not taken back.
func TestALostOutcomeDoesNotTakeTheIDBack(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	e.endHook = first(1, kerr.TransactionalIDNotFound.Code)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*UnknownOutcomeError)) {
		t.Fatalf("Commit = %v, want an UnknownOutcomeError", err)
	}
	e.takeOver()
	for range 2 {
		if _, err := cl.Begin(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
			t.Errorf("Begin = %v, want a FencedError", err)
		}
	}
	if got := e.us.inits.Load(); got != 1 {
		t.Errorf("us got %d InitProducerId, want none after the other client's", got)
	}
}

// A new session that could not be opened is still what the next Begin needs.
func TestALostOutcomeIsNotForgottenByABeginThatFails(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	before := cl.slots[0].session.instance
	e.endHook = first(1, kerr.TransactionalIDNotFound.Code)
	var granted [16]byte
	refuse := []int{2, 4} // the question of the present session, and the opening of the new one
	e.initHook = func(n int, req *wire.InitGlobalTxnRequest) (*wire.InitGlobalTxnResponse, bool) {
		resp := wire.NewPtrInitGlobalTxnResponse()
		resp.ErrorCode = wire.HeuristicOutcome.Code
		if slices.Contains(refuse, n) {
			return resp, true
		}
		granted = req.InstanceID
		return nil, false
	}
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	produce(t, txn, "eu", "a")
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*UnknownOutcomeError)) {
		t.Fatalf("Commit = %v, want an UnknownOutcomeError", err)
	}
	for range refuse {
		if _, err := cl.Begin(deadline(t, patience)); !errors.As(err, new(*HeuristicError)) {
			t.Fatalf("Begin = %v, want a HeuristicError", err)
		}
	}
	txn = begin(t, cl)
	if granted == before {
		t.Error("the transaction begins in the session whose outcome is lost")
	}
	produce(t, txn, "us", "b")
	commit(t, txn)
}

// An answer that is an error proves nothing, so there is no local abort.
func TestOtherErrorLeavesTheOutcomeUnknown(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	e.endHook = first(1, kerr.InvalidRequest.Code)
	txn := begin(t, cl)
	produce(t, txn, "us", "a")
	var unknown *UnknownOutcomeError
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, &unknown) || !unknown.Asked || unknown.Final {
		t.Fatalf("Commit = %v, want an UnknownOutcomeError", err)
	}
	if got := e.us.endTxns.Load(); got != 0 {
		t.Fatalf("us got %d EndTxn, want none", got)
	}
	commit(t, txn) // asked again
}

// The abort of a client needs no cluster's answer: the outcome is known, and
// the next transaction begins with a producer that is initialised again.
func TestAbortThatAClusterCannotBeTold(t *testing.T) {
	e := newEnv(t)
	cl := e.open(t)
	var away atomic.Bool
	e.us.fake.ControlKey(keyEndTxn, func(kmsg.Request) (kmsg.Response, error, bool) {
		e.us.fake.KeepControl()
		return nil, errors.New("away"), away.Load()
	})
	txn := begin(t, cl)
	for _, c := range []string{"us", "eu"} {
		if err := txn.ProduceSync(t.Context(), c, &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	away.Store(true)
	var told time.Time
	r, err := txn.Abort(expiresWhen(t, func() bool { // time enough for eu's answer to come back
		if told.IsZero() && e.eu.endTxns.Load() > 0 {
			told = time.Now()
		}
		return !told.IsZero() && time.Since(told) > 2*time.Second
	}))
	if err != nil || r.Outcome != OutcomeAborted || !slices.Equal(r.Pending(), []string{"us"}) {
		t.Fatalf("Abort = %+v, %v, want aborted, us pending", r, err)
	}
	away.Store(false)
	txn = begin(t, cl)
	produce(t, txn, "us", "b")
	produce(t, txn, "eu", "b")
	commit(t, txn)
	if got := e.count(wire.KeyInitGlobalTxn); got != 2 {
		t.Errorf("%d InitGlobalTxn, want another one before the producer is initialised", got)
	}
	for _, c := range []participantCluster{e.us, e.eu} {
		if got, want := visible(t, c.addr), []string{"b"}; !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", c.name, got, want)
		}
	}
}

// Case 4: at the ceiling of the epochs the reply carries another producer id,
// and the client goes on with it.
func TestProducerIDRotation(t *testing.T) {
	e := newEnv(t)
	us := e.clusters[e.us.id]
	ask := kmsg.NewPtrInitProducerIDRequest()
	ask.TransactionalID, ask.TransactionTimeoutMillis = kmsg.StringPtr("payments-7"), 60_000
	was, err := ask.RequestWith(t.Context(), us)
	if err != nil {
		t.Fatal(err)
	}
	for epoch := was.ProducerEpoch; epoch < 32764; { // empty aborts; the last two steps are the client's
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch = "payments-7", was.ProducerID, epoch
		resp, err := req.RequestWith(t.Context(), us)
		if err != nil || resp.ErrorCode != 0 {
			t.Fatalf("abort at epoch %d: %v, code %d", epoch, err, resp.ErrorCode)
		}
		epoch = resp.ProducerEpoch
	}
	inits := e.us.inits.Load()
	cl := e.open(t)
	ids := map[int64]bool{}
	var want []string
	for i := range 4 {
		txn := begin(t, cl)
		ids[cl.slots[0].session.participant("us").producerID] = true
		v := fmt.Sprint(i)
		want = append(want, v)
		produce(t, txn, "us", v)
		produce(t, txn, "eu", v)
		commit(t, txn)
	}
	if len(ids) != 2 || !ids[was.ProducerID] {
		t.Errorf("producer ids %v, want %d and another one", ids, was.ProducerID)
	}
	if got := e.us.inits.Load() - inits; got != 1 {
		t.Errorf("%d InitProducerId, want 1", got)
	}
	if got := visible(t, e.us.addr); !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}

// Whoever knows the producer id and epoch can commit a transaction that this
// client then aborts. That is told, and not taken for an abort.
func TestAbortOfWhatSomebodyElseCommitted(t *testing.T) {
	for name, c := range map[string]struct {
		opts   []kgo.Opt
		commit bool // by the outsider; else it aborts
		ended  func(*Txn) (Result, error)
	}{
		"abort":             {nil, true, func(t *Txn) (Result, error) { return t.Abort(context.Background()) }},
		"failed commit":     {nil, true, func(t *Txn) (Result, error) { t.fail(errors.New("x")); return t.Commit(context.Background()) }},
		"abort below":       {[]kgo.Opt{below2()}, true, func(t *Txn) (Result, error) { return t.Abort(context.Background()) }},
		"aborted, abort":    {nil, false, func(t *Txn) (Result, error) { return t.Abort(context.Background()) }},
		"aborted, v4 abort": {[]kgo.Opt{below2()}, false, func(t *Txn) (Result, error) { return t.Abort(context.Background()) }},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t)
			o := e.options()
			o.Clusters["us"] = Cluster{ClientOpts: append(c.opts, kgo.SeedBrokers(e.us.addr))}
			cl := open(t, o)
			txn := begin(t, cl)
			for _, name := range []string{"us", "eu"} {
				if err := txn.ProduceSync(t.Context(), name, &kgo.Record{Topic: topic, Value: []byte("a")}).FirstErr(); err != nil {
					t.Fatal(err)
				}
			}
			p := cl.slots[0].session.participant("us")
			outsider := kmsg.NewPtrEndTxnRequest()
			outsider.TransactionalID, outsider.ProducerID, outsider.ProducerEpoch, outsider.Commit = p.id, p.producerID, p.producerEpoch, c.commit
			resp, err := outsider.RequestWith(t.Context(), plain(t, e.us.addr, c.opts...))
			if err != nil || resp.ErrorCode != 0 {
				t.Fatalf("EndTxn of the outsider: %+v, %v", resp, err)
			}
			r, err := c.ended(txn)
			var heuristic *HeuristicError
			if errors.As(err, &heuristic) != c.commit || r.Outcome != OutcomeAborted {
				t.Fatalf("%+v, %v", r, err)
			}
			want := ParticipantComplete
			if c.commit {
				want = ParticipantHeuristicCommit
			}
			if got := r.Participants; len(got) != 2 || got[0].State != ParticipantComplete || got[1].State != want {
				t.Errorf("participants %+v, want us %v", got, want)
			}
			txn = begin(t, cl) // the application has been told, and may go on
			produce(t, txn, "us", "b")
			commit(t, txn)
		})
	}
}
