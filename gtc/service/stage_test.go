package service_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/memlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clusters are participants that do as told, and remember what they were told.
type clusters struct {
	mu   sync.Mutex
	told []string // "id cluster commit" or "id cluster abort", as it came in
	vote map[string]gtc.VoteCode
	// end answers an EndTxn; nil is EndDone on EndTxn v5.
	end func(ctx context.Context, id string, p txnlog.Participant, commit bool) gtc.EndAnswer
	// below5: they end a single participant by EndTxn v4.
	below5 bool
	// open are what a scan finds on each cluster.
	open      map[string][]gtc.OpenTransaction
	scanFail  error
	connected int // times that Learn was asked
}

func newClusters() *clusters {
	return &clusters{vote: map[string]gtc.VoteCode{}, open: map[string][]gtc.OpenTransaction{}}
}

func (c *clusters) set(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

func (c *clusters) Check(_ context.Context, _ string, ids []string) []gtc.CheckResult {
	results := make([]gtc.CheckResult, len(ids))
	for i, id := range ids {
		results[i].ClusterID = id
	}
	return results
}

func (c *clusters) Vote(_ context.Context, _ string, refs []gtc.ParticipantRef) []gtc.Vote {
	c.mu.Lock()
	defer c.mu.Unlock()
	votes := make([]gtc.Vote, len(refs))
	for i, r := range refs {
		votes[i] = gtc.Vote{Code: c.vote[r.ClusterID], EndTxnVersion: 5, AuditTopic: "t", StartMillis: 1}
	}
	return votes
}

func (c *clusters) End(ctx context.Context, e gtc.EndTxn) gtc.EndAnswer {
	id, p, commit := e.ID, e.Participant, e.Commit
	if c.below5 && e.OnePhase && commit && !e.Fenced {
		return gtc.EndAnswer{Outcome: gtc.EndUnfenced, NextProducerID: -1, NextProducerEpoch: -1}
	}
	what := "abort"
	if commit {
		what = "commit"
	}
	c.mu.Lock()
	c.told = append(c.told, fmt.Sprintf("%s %s %s", id, p.ClusterID, what))
	end := c.end
	c.mu.Unlock()
	answer := done(p)
	if end != nil {
		answer = end(ctx, id, p, commit)
	}
	if answer.Outcome != gtc.EndRetry {
		c.set(func() { c.ended(id, p) })
	}
	return answer
}

// ended takes the transaction off what a scan finds.
func (c *clusters) ended(id string, p txnlog.Participant) {
	for i, o := range c.open[p.ClusterID] {
		if o.ID == id && o.ProducerID == p.ProducerID && o.ProducerEpoch == p.ProducerEpoch {
			c.open[p.ClusterID] = slices.Delete(c.open[p.ClusterID], i, i+1)
			return
		}
	}
}

func done(p txnlog.Participant) gtc.EndAnswer {
	return gtc.EndAnswer{
		Outcome: gtc.EndDone, NextProducerID: p.ProducerID, NextProducerEpoch: p.ProducerEpoch + 1, EndTxnVersion: 5,
	}
}

// retry proves nothing.
func retry(context.Context, string, txnlog.Participant, bool) gtc.EndAnswer {
	return gtc.EndAnswer{Outcome: gtc.EndRetry, NextProducerID: -1, NextProducerEpoch: -1, EndTxnVersion: 5, Detail: "it is away"}
}

func (c *clusters) Scan(_ context.Context, cluster string, known func(string) bool) ([]gtc.OpenTransaction, error) {
	c.mu.Lock()
	open, err := slices.Clone(c.open[cluster]), c.scanFail
	c.mu.Unlock()
	return slices.DeleteFunc(open, func(o gtc.OpenTransaction) bool { return !known(o.ID) }), err
}

func (c *clusters) Aliases() []string { return []string{"a", "b"} }

// Learn says that a cluster of which a test says nothing is away.
func (c *clusters) Learn(_ context.Context, alias string) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.connected++
	if _, there := c.open[alias]; !there {
		return "", errors.New("it is away")
	}
	return alias, nil
}

func (c *clusters) heard() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.told)
}

// stage is one coordinator over a log in memory.
type stage struct {
	t        *testing.T
	s        *service.Service
	log      *memlog.Log
	clusters *clusters
}

// play starts a coordinator on the store; it need not become active.
func play(t *testing.T, store *memlog.Store, c *clusters, change ...func(*service.Options)) *stage {
	t.Helper()
	cfg := gtc.DefaultConfig()
	cfg.RetryBackoffMillis, cfg.RetryBackoffMaxMillis, cfg.ScanIntervalMillis = 1, 10, 10
	o := service.Options{
		Log: store.Open(), Participants: c, Config: cfg, Logger: zerolog.Nop(), Clock: service.SystemClock(),
		ScanInterval: 10 * time.Millisecond, LazyLinger: time.Hour, ReloadBackoff: time.Millisecond,
	}
	for _, f := range change {
		f(&o)
	}
	s, err := service.New(o)
	if err != nil {
		t.Fatal(err)
	}
	st := &stage{t: t, s: s, log: o.Log.(*memlog.Log), clusters: c}
	s.OwnAll()
	t.Cleanup(func() { st.close() })
	return st
}

func (st *stage) close() {
	st.t.Helper()
	st.log.Release(0) // an append that is held would be waited for
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := st.s.Close(ctx); err != nil {
		st.t.Error(err)
	}
	st.log.Close()
}

// active waits until the partition is served.
func (st *stage) active() *stage {
	st.t.Helper()
	eventually(st.t, func() error {
		if active, owned := st.s.Loaded(); active != owned {
			return errors.New("it does not load")
		}
		return nil
	})
	return st
}

// session is the client's side of one id.
type session struct {
	st       *stage
	id       string
	epoch    int32
	sequence int64
	refs     []wire.EndGlobalTxnRequestParticipant
}

func initRequest(id string, instance byte, ids ...string) *wire.InitGlobalTxnRequest {
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis, req.ClusterIDs, req.InstanceID = id, 60_000, ids, [16]byte{instance}
	return req
}

// open opens a session over the clusters and names a transaction on each.
func (st *stage) open(id string, ids ...string) *session {
	st.t.Helper()
	resp := st.handle(initRequest(id, 1, ids...)).(*wire.InitGlobalTxnResponse)
	if resp.ErrorCode != 0 {
		st.t.Fatalf("InitGlobalTxn: %v", kerr.ErrorForCode(resp.ErrorCode))
	}
	s := &session{st: st, id: id, epoch: resp.GlobalEpoch, sequence: resp.Sequence}
	for _, c := range ids {
		s.refs = append(s.refs, wire.EndGlobalTxnRequestParticipant{ClusterID: c, ProducerID: 7, ProducerEpoch: 3})
	}
	return s
}

func (st *stage) handle(req kmsg.Request) kmsg.Response {
	return st.s.Handle(st.t.Context(), "", "", req)
}

// on is the session at another coordinator.
func (s *session) on(st *stage) *session {
	o := *s
	o.st = st
	return &o
}

func (s *session) request(commit bool, patience time.Duration) *wire.EndGlobalTxnRequest {
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence, req.Committed = s.id, s.epoch, s.sequence, commit
	req.TimeoutMillis, req.Participants = int32(patience.Milliseconds()), s.refs
	return req
}

// end asks once.
func (s *session) end(commit bool, patience time.Duration) *wire.EndGlobalTxnResponse {
	return s.st.handle(s.request(commit, patience)).(*wire.EndGlobalTxnResponse)
}

// endPending asks for a commit that a participant keeps waiting: again until it
// is decided, and then without waiting for the participant.
func (s *session) endPending() (resp *wire.EndGlobalTxnResponse) {
	s.st.t.Helper()
	eventually(s.st.t, func() error {
		if resp = s.end(true, 10*time.Millisecond); resp.ErrorCode == 0 && resp.Outcome == wire.OutcomeUnknown {
			return errors.New("not decided")
		}
		return nil
	})
	return resp
}

// ending asks once, elsewhere.
func (s *session) ending(commit bool, patience time.Duration) <-chan *wire.EndGlobalTxnResponse {
	answer := make(chan *wire.EndGlobalTxnResponse, 1)
	go func() { answer <- s.end(commit, patience) }()
	return answer
}

// until repeats the request for as long as the answer says to.
func (s *session) until(commit bool) *wire.EndGlobalTxnResponse {
	s.st.t.Helper()
	var resp *wire.EndGlobalTxnResponse
	eventually(s.st.t, func() error {
		resp = s.end(commit, time.Second)
		err := kerr.ErrorForCode(resp.ErrorCode)
		if kerr.IsRetriable(err) || errors.Is(err, kerr.ConcurrentTransactions) || err == nil && resp.Outcome == wire.OutcomeUnknown {
			return fmt.Errorf("still %w", err)
		}
		return nil
	})
	return resp
}

// decided is what a plain answer says: the outcome, and no error.
func decided(t *testing.T, resp *wire.EndGlobalTxnResponse, outcome int8) {
	t.Helper()
	if resp.ErrorCode != 0 || resp.Outcome != outcome {
		t.Errorf("answer %v outcome %d, want outcome %d", kerr.ErrorForCode(resp.ErrorCode), resp.Outcome, outcome)
	}
}

// inFlight waits until n batches are on their way to the log.
func (st *stage) inFlight(n int) {
	st.t.Helper()
	eventually(st.t, func() error {
		if got := st.log.InFlight(0); got != n {
			return fmt.Errorf("%d batches in flight, want %d", got, n)
		}
		return nil
	})
}

// states are the states of the id's records in the log, in order.
func states(t *testing.T, store *memlog.Store, id string) []txnlog.State {
	t.Helper()
	entries, err := store.Entries(0)
	if err != nil {
		t.Fatal(err)
	}
	var all []txnlog.State
	for _, e := range entries {
		if e.GlobalTransactionalID == id && e.Value != nil {
			all = append(all, e.Value.State)
		}
	}
	return all
}

// logged waits until the states of the id's records are these.
func logged(t *testing.T, store *memlog.Store, id string, want ...txnlog.State) {
	t.Helper()
	eventually(t, func() error {
		if got := states(t, store, id); !slices.Equal(got, want) {
			return fmt.Errorf("the log has states %v of %s, want %v", got, id, want)
		}
		return nil
	})
}

func (st *stage) describe(id string) wire.DescribeGlobalTransactionsResponseGlobalTransaction {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	return st.handle(req).(*wire.DescribeGlobalTransactionsResponse).GlobalTransactions[0]
}

func (st *stage) list() *wire.ListGlobalTransactionsResponse {
	return st.handle(wire.NewPtrListGlobalTransactionsRequest()).(*wire.ListGlobalTransactionsResponse)
}
