package assign_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// sleeper stops a node at a named point: its network freezes, as that of a
// process that is stopped, and what reached the point stands still.
type sleeper struct {
	point   string
	mu      sync.Mutex
	asleep  chan struct{} // closed when the point is reached
	wake    chan struct{}
	network *network
}

func newSleeper(point string) *sleeper {
	return &sleeper{point: point, asleep: make(chan struct{}), wake: make(chan struct{})}
}

func (s *sleeper) fault(point string) {
	if point != s.point {
		return
	}
	s.mu.Lock()
	select {
	case <-s.asleep: // once is enough
		s.mu.Unlock()
		return
	default:
	}
	s.network.freeze()
	close(s.asleep)
	s.mu.Unlock()
	<-s.wake
}

func (s *sleeper) awake() {
	close(s.wake)
	s.network.thaw()
}

// session opens a session of both clusters and returns its epoch and sequence.
func session(t *testing.T, n *node, id string, timeout time.Duration) (epoch int32, sequence int64) {
	t.Helper()
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis, req.ClusterIDs, req.InstanceID = id, int32(timeout.Milliseconds()), []string{"a", "b"}, [16]byte{1}
	resp := n.Handle(t.Context(), "", "", req).(*wire.InitGlobalTxnResponse)
	if resp.ErrorCode != 0 {
		t.Fatalf("InitGlobalTxn: %d %v", resp.ErrorCode, resp.ErrorMessage)
	}
	return resp.GlobalEpoch, resp.Sequence
}

func commitRequest(id string, epoch int32, sequence int64) *wire.EndGlobalTxnRequest {
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence, req.Committed, req.TimeoutMillis = id, epoch, sequence, true, 20_000
	for _, c := range []string{"a", "b"} {
		p := wire.NewEndGlobalTxnRequestParticipant()
		p.ClusterID, p.ProducerID, p.ProducerEpoch = c, 7, 3
		req.Participants = append(req.Participants, p)
	}
	return req
}

// takenOver starts a transaction on node 1, which falls asleep at the point
// while it commits, and waits until node 2 has everything.
type takenOver struct {
	one, two       *node
	sleeper        *sleeper
	clusters1      *participants
	clusters2      *participants
	commit         *wire.EndGlobalTxnRequest
	first          chan *wire.EndGlobalTxnResponse // what node 1 answers
	sessionTimeout time.Duration
}

func takeOver(t *testing.T, point string) *takenOver {
	t.Helper()
	h := newHome(t)
	w := &takenOver{
		sleeper: newSleeper(point), clusters1: &participants{}, clusters2: &participants{},
		first: make(chan *wire.EndGlobalTxnResponse, 1), sessionTimeout: time.Second,
	}
	w.one = h.start(t, 1, func(o *service.Options) { o.Participants, o.Fault = w.clusters1, w.sleeper.fault })
	w.sleeper.network = w.one.net
	eventually(t, func() error { return shared(w.one) })
	// It has every partition, so node 2 gets this one by the sleep alone.
	w.two = h.start(t, 2, func(o *service.Options) { o.Participants = w.clusters2 })
	eventually(t, func() error { return shared(w.one, w.two) })

	var id string
	for p := range int32(partitions) {
		if w.one.owns(p) {
			id = idOf(p)
		}
	}
	epoch, sequence := session(t, w.one, id, w.sessionTimeout)
	w.commit = commitRequest(id, epoch, sequence)
	go func() {
		w.first <- w.one.Handle(context.Background(), "", "", w.commit).(*wire.EndGlobalTxnResponse)
	}()
	<-w.sleeper.asleep
	began := time.Now()
	eventually(t, func() error { return shared(w.two) })
	// How long it takes, no busy machine can promise: scripts/bench measures.
	t.Logf("taken over %v after the sleep began (session timeout %v)", time.Since(began), sessionTimeout)
	return w
}

// wakeUp wakes node 1 and waits until it has learned that it has nothing.
func (w *takenOver) wakeUp(t *testing.T) *wire.EndGlobalTxnResponse {
	t.Helper()
	w.sleeper.awake()
	resp := <-w.first
	eventually(t, func() error { return shared(w.one, w.two) })
	return resp
}

// Case 22: node 1 sleeps between the vote and the append of its decision, and
// node 2 aborts the transaction, whose session has timed out meanwhile.
func TestAnOwnerThatSleptBeforeItsAppendIsFencedAndEndsNothing(t *testing.T) {
	w := takeOver(t, "append-prepare-commit/before")
	id := w.commit.GlobalTransactionalID
	w.clusters2.seeOpen(gtc.OpenTransaction{ID: id, ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5, StartMillis: 1})
	eventually(t, func() error {
		if ended := w.clusters2.ended(); !slices.Contains(ended, "abort a") || !slices.Contains(ended, "abort b") {
			return errNotYet(ended)
		}
		return nil
	})
	if resp := w.wakeUp(t); resp.ErrorCode == 0 {
		t.Errorf("node 1 answers %+v, although it has decided nothing", resp)
	}
	if got := fencedCount(t, w.one); got == 0 {
		t.Error("the append of node 1 was not refused")
	}
	if ended := w.clusters1.ended(); len(ended) > 0 {
		t.Errorf("node 1 has sent %v", ended)
	}
	if got := fencedCount(t, w.two); got != 0 {
		t.Errorf("node 2 was fenced %v times: node 1 has taken the partition back", got)
	}
	again := w.two.Handle(t.Context(), "", "", w.commit).(*wire.EndGlobalTxnResponse)
	if again.ErrorCode != 0 || again.Outcome != int8(gtc.OutcomeAborted) {
		t.Errorf("the client is told %d, outcome %d, %v; want abort", again.ErrorCode, again.Outcome, again.ErrorMessage)
	}
	if ended := w.clusters2.ended(); slices.ContainsFunc(ended, func(s string) bool { return s[0] == 'c' }) {
		t.Errorf("node 2 has sent %v", ended)
	}
}

// Case 22, other half: the append is durable when node 1 falls asleep.
func TestAnOwnerThatSleptAfterItsAppendHasDecidedForItsSuccessor(t *testing.T) {
	w := takeOver(t, "append-prepare-commit/after")
	again := w.two.Handle(t.Context(), "", "", w.commit).(*wire.EndGlobalTxnResponse)
	if again.ErrorCode != 0 || again.Outcome != int8(gtc.OutcomeCommitted) {
		t.Errorf("the client is told %d, outcome %d, %v; want commit", again.ErrorCode, again.Outcome, again.ErrorMessage)
	}
	ended := w.clusters2.ended()
	if slices.Sort(ended); !slices.Equal(ended, []string{"commit a", "commit b"}) {
		t.Errorf("node 2 has sent %v", ended)
	}
	w.wakeUp(t)
	for _, sent := range w.clusters1.ended() {
		if sent[0] != 'c' { // late, and the same
			t.Errorf("node 1 has sent %s", sent)
		}
	}
	if got := fencedCount(t, w.two); got != 0 {
		t.Errorf("node 2 was fenced %v times: node 1 has taken the partition back", got)
	}
}
