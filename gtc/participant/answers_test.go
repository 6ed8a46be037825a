package participant

import (
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// scripted is a cluster whose transaction coordinator says what the test says.
type scripted struct {
	c    *kfake.Cluster
	code int16 // to EndTxn
	seen kmsg.DescribeTransactionsResponseTransactionState
	ends int
}

func newScripted(t *testing.T) (*scripted, *Clusters) {
	t.Helper()
	s := &scripted{c: fake(t, "A")}
	s.state("CompleteCommit", 7, 4, 1000)
	answer(s.c, keyEndTxn, func(req *kmsg.EndTxnRequest) kmsg.Response {
		s.ends++
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		resp.ErrorCode = s.code
		if s.code == 0 && req.Version >= verdict.EndTxnBumps {
			resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
		}
		return resp
	})
	answer(s.c, 65, func(req *kmsg.DescribeTransactionsRequest) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		for _, id := range req.TransactionalIDs {
			st := s.seen
			st.TransactionalID = id
			resp.TransactionStates = append(resp.TransactionStates, st)
		}
		return resp
	})
	return s, drive(t, at("a", s.c.ListenAddrs()...))
}

func (s *scripted) state(state string, pid int64, epoch int16, start int64) {
	s.seen = kmsg.NewDescribeTransactionsResponseTransactionState()
	s.seen.State, s.seen.ProducerID, s.seen.ProducerEpoch, s.seen.StartTimestamp = state, pid, epoch, start
	s.seen.TimeoutMillis = verdict.Unlimited
}

// branch is the participant transaction of these tests: producer id 7, epoch 3,
// begun at 1000.
func branch(version int16) txnlog.Participant {
	return txnlog.Participant{
		ClusterID: "A", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: version,
		AuditTopic: "t", StartMillis: 1000,
	}
}

// fresh forgets earlier ends, as a vote does.
func fresh(c *Clusters, p txnlog.Participant) {
	k := attemptKey{hashOf("tid"), p.ProducerID, p.ProducerEpoch}
	c.all[0].attempts.mu.Lock()
	delete(c.all[0].attempts.m, k)
	c.all[0].attempts.mu.Unlock()
	c.all[0].attempts.voted(k, p.StartMillis, 0)
}

func TestEveryRowOfTheAnswerTable(t *testing.T) {
	s, c := newScripted(t)
	for _, row := range verdict.Answers {
		for _, version := range []int16{verdict.EndTxnBumps, verdict.EndTxnKeeps} {
			for _, commit := range []bool{true, false} {
				name := row.Name
				s.code = row.Code
				want := map[bool]map[int16]verdict.Verdict{
					true:  {5: row.CommitV5, 4: row.CommitV4},
					false: {5: row.AbortV5, 4: row.AbortV4},
				}[commit][version]
				t.Run(fmt.Sprintf("%s/v%d/commit=%v", name, version, commit), func(t *testing.T) {
					p := branch(version)
					fresh(c, p)
					s.ends = 0
					// What the state proves is committed, so a row that must
					// be proved comes out as that.
					s.state("CompleteCommit", 7, map[int16]int16{5: 4, 4: 3}[version], 1000)
					ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: p, Commit: commit})
					checkVerdict(t, want, ans, commit, s.ends)
					if ans.EndTxnVersion != version {
						t.Errorf("version %d, want %d", ans.EndTxnVersion, version)
					}
				})
			}
		}
	}
}

func checkVerdict(t *testing.T, want verdict.Verdict, ans gtc.EndAnswer, commit bool, ends int) {
	t.Helper()
	if ans.Uncertain {
		t.Error("uncertain, though it was answered")
	}
	switch want {
	case verdict.Done:
		if ans.Outcome != gtc.EndDone || ends != 1 {
			t.Errorf("outcome %d after %d EndTxn (%s), want done after 1", ans.Outcome, ends, ans.Detail)
		}
	case verdict.Retry:
		if ans.Outcome != gtc.EndRetry || ends != 1 {
			t.Errorf("outcome %d after %d EndTxn (%s), want retry after 1", ans.Outcome, ends, ans.Detail)
		}
	case verdict.Alarm:
		if ans.Outcome != gtc.EndRetry || ends != 1 {
			t.Errorf("outcome %d after %d EndTxn (%s), want retry after 1", ans.Outcome, ends, ans.Detail)
		}
		contains(t, ans.Detail, "operator")
	case verdict.Prove:
		outcome := gtc.EndCommitted
		if commit {
			outcome = gtc.EndDone
		}
		// v4 looks before it asks again, and sees that it is not open.
		if ans.Outcome != outcome || ends < 1 || ends > 2 {
			t.Errorf("outcome %d after %d EndTxn (%s), want %d", ans.Outcome, ends, ans.Detail, outcome)
		}
	}
}

// A code that the table does not name, invented later perhaps, proves nothing.
func TestACodeNotInTheTableIsRetried(t *testing.T) {
	s, c := newScripted(t)
	listed := make(map[int16]bool)
	for _, row := range verdict.Answers {
		listed[row.Code] = true
	}
	for code := int16(-1); code <= 200; code++ {
		if listed[code] {
			continue
		}
		s.code = code
		for _, version := range []int16{verdict.EndTxnBumps, verdict.EndTxnKeeps} {
			for _, commit := range []bool{true, false} {
				p := branch(version)
				fresh(c, p)
				if ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: p, Commit: commit}); ans.Outcome != gtc.EndRetry {
					t.Errorf("%v, v%d, commit=%v: outcome %d, want retry", kerr.ErrorForCode(code), version, commit, ans.Outcome)
				}
			}
		}
	}
}

// A fatal answer of a deposed coordinator is not believed: the second answer,
// after a new look-up and over a fresh connection, is the one that counts.
func TestAFatalAnswerIsAskedForTwice(t *testing.T) {
	for _, version := range []int16{verdict.EndTxnBumps, verdict.EndTxnKeeps} {
		for _, row := range verdict.Answers {
			if row.CommitV5 != verdict.Prove {
				continue
			}
			s, c := newScripted(t)
			s.state("Ongoing", 7, 3, 1000)
			var first *kmsg.EndTxnRequest
			answer(s.c, keyEndTxn, func(req *kmsg.EndTxnRequest) kmsg.Response {
				resp := req.ResponseKind().(*kmsg.EndTxnResponse)
				if first == nil {
					first, resp.ErrorCode = req, row.Code
				}
				return resp
			})
			fresh(c, branch(version))
			ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: branch(version), Commit: true})
			if ans.Outcome != gtc.EndDone {
				t.Errorf("v%d %s, then NONE: outcome %d (%s), want done", version, row.Name, ans.Outcome, ans.Detail)
			}
		}
	}
}

// Below EndTxn v5 the epoch does not name a single transaction, so the one-phase
// commit waits for the proof that the coordinator is not superseded.
func TestAOnePhaseCommitBelowV5IsSentOnlyWhenFenced(t *testing.T) {
	for _, tc := range []struct {
		version int16
		end     gtc.EndTxn
		want    gtc.EndOutcome
		sent    int
	}{
		{verdict.EndTxnKeeps, gtc.EndTxn{Commit: true, OnePhase: true}, gtc.EndUnfenced, 0},
		{verdict.EndTxnKeeps, gtc.EndTxn{Commit: true, OnePhase: true, Fenced: true}, gtc.EndDone, 1},
		{verdict.EndTxnKeeps, gtc.EndTxn{OnePhase: true}, gtc.EndDone, 1},
		{verdict.EndTxnKeeps, gtc.EndTxn{Commit: true}, gtc.EndDone, 1},
		{verdict.EndTxnBumps, gtc.EndTxn{Commit: true, OnePhase: true}, gtc.EndDone, 1},
	} {
		s, c := newScripted(t)
		s.state("Ongoing", 7, 3, 1000)
		e := tc.end
		e.ID, e.Participant = "tid", branch(tc.version)
		if ans := c.End(t.Context(), e); ans.Outcome != tc.want || s.ends != tc.sent {
			t.Errorf("%+v: outcome %d (%s) and %d EndTxn, want %d and %d", tc.end, ans.Outcome, ans.Detail, s.ends, tc.want, tc.sent)
		}
	}
}

// Of an only participant, which is ended without a look before, a coordinator
// that died may have sent the commit, and only the cluster knows. Counter-
// example: it was committed, the coordinator died before it could tell, the
// client repeats the request or asks to abort: neither "nobody can tell" nor
// "aborted" is true.
func TestWhatAnEarlierCoordinatorCommittedInOnePhase(t *testing.T) {
	s, c := newScripted(t)
	for _, tc := range []struct {
		state           string
		epoch           int16
		version, code   int16
		commit          gtc.EndOutcome
		abort, abortTwo gtc.EndOutcome // abortTwo: one of several
	}{
		{"CompleteCommit", 3, 4, kerr.InvalidTxnState.Code, gtc.EndDone, gtc.EndCommitted, gtc.EndDone},
		{"CompleteAbort", 3, 4, kerr.InvalidTxnState.Code, gtc.EndAborted, gtc.EndDone, gtc.EndDone},
		// It may be the abort of the session after: see verdict.View.
		{"CompleteAbort", 4, 4, kerr.ProducerFenced.Code, gtc.EndUnknown, gtc.EndUnknown, gtc.EndDone},
		{"CompleteCommit", 4, 5, kerr.InvalidTxnState.Code, gtc.EndDone, gtc.EndCommitted, gtc.EndCommitted},
		{"CompleteAbort", 4, 5, kerr.InvalidTxnState.Code, gtc.EndAborted, gtc.EndDone, gtc.EndDone},
		{"Empty", 5, 4, kerr.ProducerFenced.Code, gtc.EndUnknown, gtc.EndUnknown, gtc.EndDone},
		{"Empty", 5, 5, kerr.ProducerFenced.Code, gtc.EndUnknown, gtc.EndUnknown, gtc.EndDone},
	} {
		p := branch(tc.version)
		p.AuditTopic, p.StartMillis = "", 0
		s.code = tc.code
		s.state(tc.state, 7, tc.epoch, 1000)
		for _, ask := range []struct {
			commit, sole bool
			want         gtc.EndOutcome
		}{{true, true, tc.commit}, {false, true, tc.abort}, {false, false, tc.abortTwo}} {
			if ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: p, Commit: ask.commit, OnePhase: ask.sole, Fenced: true}); ans.Outcome != ask.want {
				t.Errorf("v%d %s at epoch %d, commit=%v, only one=%v: outcome %d (%s), want %d",
					tc.version, tc.state, tc.epoch, ask.commit, ask.sole, ans.Outcome, ans.Detail, ask.want)
			}
		}
	}
}

// twoBrokers is a cluster whose transaction coordinator is whom the function says.
func twoBrokers(t *testing.T, coordinator func() int32) *kfake.Cluster {
	a := fake(t, "A", kfake.NumBrokers(2))
	answer(a, 10, func(req *kmsg.FindCoordinatorRequest) kmsg.Response {
		node := coordinator()
		resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
		host, port, err := net.SplitHostPort(a.ListenAddrs()[node])
		if err != nil {
			t.Error(err)
		}
		n, err := strconv.ParseInt(port, 10, 32)
		if err != nil {
			t.Error(err)
		}
		for _, key := range req.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, kmsg.FindCoordinatorResponseCoordinator{Key: key, NodeID: node, Host: host, Port: int32(n)})
		}
		return resp
	})
	return a
}

// Two brokers take the id for theirs. What the look sees and what EndTxn v4 ends are of
// one of them: the deposed one shows the transaction open that the other has ended,
// and under the same epoch the next one is open there.
func TestTheLookAndTheEndAreOfOneBroker(t *testing.T) {
	const deposed, now = 0, 1
	var found, endsThere atomic.Int32
	a := twoBrokers(t, func() int32 {
		if found.Add(1) > 1 {
			return deposed
		}
		return now
	})
	answer(a, 65, func(req *kmsg.DescribeTransactionsRequest) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID, st.State, st.ProducerID, st.ProducerEpoch, st.StartTimestamp = "tid", "Ongoing", 7, 3, 2000
		if a.CurrentNode() == deposed {
			st.StartTimestamp = 1000
		}
		st.TimeoutMillis = verdict.Unlimited
		resp.TransactionStates = append(resp.TransactionStates, st)
		return resp
	})
	answer(a, keyEndTxn, func(req *kmsg.EndTxnRequest) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.EndTxnResponse)
		if a.CurrentNode() == deposed {
			resp.ErrorCode = kerr.NotCoordinator.Code
		} else {
			endsThere.Add(1)
		}
		return resp
	})
	c := drive(t, at("a", a.ListenAddrs()...))
	if _, err := c.all[0].session(t.Context()); err != nil { // and by it the cluster's id
		t.Fatal(err)
	}
	s, err := c.all[0].endSession(t.Context(), "tid")
	if err != nil {
		t.Fatal(err)
	}
	// A scan that finds the id at the other broker, between any two steps.
	answer(a, 18, func(*kmsg.ApiVersionsRequest) kmsg.Response {
		s.coordinatedBy("tid", []int32{deposed})
		return nil
	})
	for range 3 {
		if ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: branch(verdict.EndTxnKeeps), Commit: true}); ans.Outcome != gtc.EndRetry {
			t.Errorf("%+v, want to be told again", ans)
		}
	}
	if n := endsThere.Load(); n != 0 {
		t.Errorf("%d EndTxn where the next transaction is open", n)
	}
	if found.Load() < 2 {
		t.Error("the coordinator was looked up once, so nothing was tested")
	}
}

// The session for ends still knows the former transaction coordinator, which has the
// commit of the transaction before in its cache and answers NONE to EndTxn v4 without
// an append. The one that showed this transaction open to the vote is another.
func TestAnEndBelowV5IsCarriedOutWhereItIsOpen(t *testing.T) {
	const deposed, now = 0, 1
	var found, endsThere atomic.Int32
	a := twoBrokers(t, func() int32 {
		if found.Add(1) > 1 {
			return now
		}
		return deposed
	})
	answer(a, 65, func(req *kmsg.DescribeTransactionsRequest) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
		st := kmsg.NewDescribeTransactionsResponseTransactionState()
		st.TransactionalID, st.ProducerID, st.ProducerEpoch, st.TimeoutMillis = "tid", 7, 3, verdict.Unlimited
		if st.State, st.StartTimestamp = "CompleteCommit", 500; a.CurrentNode() == now {
			st.State, st.StartTimestamp = "Ongoing", 1000
			st.Topics = []kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: "t", Partitions: []int32{0}}}
		}
		resp.TransactionStates = append(resp.TransactionStates, st)
		return resp
	})
	answer(a, keyEndTxn, func(req *kmsg.EndTxnRequest) kmsg.Response {
		if a.CurrentNode() == now {
			endsThere.Add(1)
		}
		return req.ResponseKind()
	})
	c := drive(t, at("a", a.ListenAddrs()...))
	if _, err := c.all[0].session(t.Context()); err != nil { // and by it the cluster's id
		t.Fatal(err)
	}
	s, err := c.all[0].endSession(t.Context(), "tid")
	if err != nil {
		t.Fatal(err)
	}
	if node, err := s.coordinator(t.Context(), "tid"); err != nil || node != deposed {
		t.Fatalf("coordinator %d, %v, want the one that is deposed", node, err)
	}
	p := branch(verdict.EndTxnKeeps)
	if v := c.Vote(t.Context(), "tid", []gtc.ParticipantRef{{ClusterID: "A", ProducerID: 7, ProducerEpoch: 3}}); v[0].Code != gtc.VotePrepared {
		t.Fatalf("%+v, want prepared", v[0])
	}
	for range 3 {
		ans := c.End(t.Context(), gtc.EndTxn{ID: "tid", Participant: p, Commit: true})
		if ans.Outcome == gtc.EndRetry {
			continue
		}
		if ans.Outcome != gtc.EndDone || endsThere.Load() == 0 {
			t.Fatalf("%+v after %d EndTxn where it is open, want done after one", ans, endsThere.Load())
		}
		return
	}
	t.Error("not ended in three tries")
}
