package conformance

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Session is one InitGlobalTxn and a producer on each of its clusters.
type Session struct {
	ID        string
	Epoch     int32
	Sequence  int64 // of the next transaction
	Topic     string
	Init      *wire.InitGlobalTxnRequest
	Producers map[*Participant]*Producer

	r       *Run
	written []*Participant // since the last end, in the order of writing
}

// longEnough is the timeout of sessions that do not time out.
const longEnough = 5 * time.Minute

// InitRequest is a request for a new session.
func (r *Run) InitRequest(id string, timeout time.Duration, ps ...*Participant) *wire.InitGlobalTxnRequest {
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID, req.TimeoutMillis = id, int32(timeout.Milliseconds())
	for _, p := range ps {
		req.ClusterIDs = append(req.ClusterIDs, p.ID)
	}
	_, _ = rand.Read(req.InstanceID[:])
	return req
}

// Init asks for a session.
func (r *Run) Init(req *wire.InitGlobalTxnRequest) *wire.InitGlobalTxnResponse {
	return r.Coordinator(req.GlobalTransactionalID, req).(*wire.InitGlobalTxnResponse)
}

// notYet are the answers to InitGlobalTxn that say nothing of the request: an
// end is under way, or a cluster did not answer in time.
var notYet = []int16{kerr.ConcurrentTransactions.Code, wire.ParticipantNotAvailable.Code}

// InitOK asks for a session until there is no other end under way, and fails
// unless it gets one.
func (r *Run) InitOK(req *wire.InitGlobalTxnRequest) (resp *wire.InitGlobalTxnResponse) {
	r.Until("InitGlobalTxn", func() (bool, string) {
		resp = r.Init(req)
		return !slices.Contains(notYet, resp.ErrorCode), codeName(resp.ErrorCode) + clusterErrors(resp)
	})
	r.Check(resp.ErrorCode == 0, "InitGlobalTxn answered %s%s, want ok", codeName(resp.ErrorCode), clusterErrors(resp))
	return resp
}

func clusterErrors(resp *wire.InitGlobalTxnResponse) string {
	var b strings.Builder
	for _, e := range resp.ClusterErrors {
		b.WriteString("; a cluster: " + codeName(e.ErrorCode) + " " + text(e.ErrorMessage))
	}
	return b.String()
}

// Open opens a session of a new id over A and B, and a topic on both.
func (r *Run) Open() *Session { return r.OpenWith(r.ID(), longEnough, r.A, r.B) }

// OpenWith opens a session of an id over some participants.
func (r *Run) OpenWith(id string, timeout time.Duration, ps ...*Participant) *Session {
	s := r.bare(id, timeout, ps...)
	for _, p := range ps {
		s.Producers[p] = r.Producer(p, id, NoTimeout)
	}
	return s
}

// bare is a session without producers yet.
func (r *Run) bare(id string, timeout time.Duration, ps ...*Participant) *Session {
	s := &Session{ID: id, r: r, Init: r.InitRequest(id, timeout, ps...), Producers: map[*Participant]*Producer{}, Topic: r.Topic(ps...)}
	resp := r.InitOK(s.Init)
	s.Epoch, s.Sequence = resp.GlobalEpoch, resp.Sequence
	return s
}

// Write writes one record to each participant.
func (s *Session) Write(value string, ps ...*Participant) {
	for _, p := range ps {
		s.Producers[p].Write(s.Topic, value)
		s.Touch(p)
	}
}

// tryWrite is Write that says whether every participant has taken its record.
func (s *Session) tryWrite(value string, ps ...*Participant) bool {
	for _, p := range ps {
		if s.Producers[p].TryWrite(s.Topic, value) != 0 {
			return false
		}
		s.Touch(p)
	}
	return true
}

// Touch lists a participant in the next end.
func (s *Session) Touch(p *Participant) {
	if !slices.Contains(s.written, p) {
		s.written = append(s.written, p)
	}
}

// Request asks to end the transaction of what was written, and holds the answer
// for up to two seconds.
func (s *Session) Request(commit bool) *wire.EndGlobalTxnRequest {
	req := wire.NewPtrEndGlobalTxnRequest()
	req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence = s.ID, s.Epoch, s.Sequence
	req.Committed, req.TimeoutMillis = commit, 2000
	for _, p := range s.written {
		req.Participants = append(req.Participants, s.Producers[p].Ref())
	}
	return req
}

// Ask sends a request once, whatever is answered.
func (r *Run) Ask(req *wire.EndGlobalTxnRequest) *wire.EndGlobalTxnResponse {
	return r.Coordinator(req.GlobalTransactionalID, req).(*wire.EndGlobalTxnResponse)
}

// Decision sends a request, with a short time for the answer, until it is
// refused or an outcome is told, whoever is pending then.
func (r *Run) Decision(req *wire.EndGlobalTxnRequest) (resp *wire.EndGlobalTxnResponse) {
	brief := *req
	brief.TimeoutMillis = 200
	r.Until("the decision", func() (bool, string) {
		resp = r.Ask(&brief)
		return resp.Outcome != wire.OutcomeUnknown || resp.ErrorCode != 0 && resp.ErrorCode != kerr.ConcurrentTransactions.Code, answered(resp)
	})
	return resp
}

// Decide sends a request until it is refused, or every participant has ended.
func (r *Run) Decide(req *wire.EndGlobalTxnRequest) (resp *wire.EndGlobalTxnResponse) {
	r.Until("EndGlobalTxn", func() (bool, string) {
		resp = r.Ask(req)
		if resp.ErrorCode == kerr.ConcurrentTransactions.Code {
			return false, codeName(resp.ErrorCode)
		}
		pending := slices.ContainsFunc(resp.Participants, func(p wire.EndGlobalTxnResponseParticipant) bool { return p.State == wire.ParticipantPending })
		return resp.ErrorCode != 0 || resp.Outcome != 0 && !pending, answered(resp)
	})
	return resp
}

// End ends the transaction, fails unless the answer is the outcome without
// error, and goes on to the next one.
func (s *Session) End(commit bool) *wire.EndGlobalTxnResponse {
	resp := s.r.Decide(s.Request(commit))
	want := wire.OutcomeAborted
	if commit {
		want = wire.OutcomeCommitted
	}
	s.r.Answered(resp, nil, want)
	s.Next(resp)
	return resp
}

// Next takes what the answer gives to go on with.
func (s *Session) Next(resp *wire.EndGlobalTxnResponse) {
	s.Sequence++
	s.written = nil
	for _, got := range resp.Participants {
		for p, q := range s.Producers {
			switch {
			case p.ID != got.ClusterID:
			case got.ProducerID >= 0:
				q.PID, q.Epoch = got.ProducerID, got.ProducerEpoch
			default:
				s.Producers[p] = s.r.Producer(p, s.ID, NoTimeout)
			}
		}
	}
}

// Answered fails unless the answer has the code and the outcome.
func (r *Run) Answered(resp *wire.EndGlobalTxnResponse, code error, outcome int8) {
	got := wire.ErrorForCode(resp.ErrorCode)
	if !errors.Is(got, code) || resp.Outcome != outcome {
		r.Failf("EndGlobalTxn answered %s; want %s, outcome %s", answered(resp), errName(code), outcomeName(outcome))
	}
}

// Refused fails unless the code is that of the error.
func (r *Run) Refused(what string, code int16, want error) {
	if !errors.Is(wire.ErrorForCode(code), want) {
		r.Failf("%s answered %s, want %s", what, codeName(code), errName(want))
	}
}

// Participant finds a cluster in the answer.
func (r *Run) Participant(resp *wire.EndGlobalTxnResponse, p *Participant) wire.EndGlobalTxnResponseParticipant {
	for _, got := range resp.Participants {
		if got.ClusterID == p.ID {
			return got
		}
	}
	r.Failf("the answer to EndGlobalTxn does not name participant %s", p.Name)
	return wire.EndGlobalTxnResponseParticipant{}
}

// Describe asks for all that the coordinator knows of an id.
func (r *Run) Describe(id string) wire.DescribeGlobalTransactionsResponseGlobalTransaction {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	resp := r.Coordinator(id, req).(*wire.DescribeGlobalTransactionsResponse)
	r.Check(len(resp.GlobalTransactions) == 1, "DescribeGlobalTransactions of one id has %d answers", len(resp.GlobalTransactions))
	return resp.GlobalTransactions[0]
}

// Becomes waits until the id is in the state.
func (r *Run) Becomes(id, state string) (d wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
	r.Until("waiting for state "+state, func() (bool, string) {
		d = r.Describe(id)
		return d.ErrorCode == 0 && d.State == state, strings.TrimSpace(d.State + " " + codeName(d.ErrorCode))
	})
	return d
}

// Resolve is an operator's word; on a target with principals it is the
// operator's.
func (r *Run) Resolve(id string, action int8, cluster *string) *wire.ResolveGlobalTransactionResponse {
	req := wire.NewPtrResolveGlobalTransactionRequest()
	req.GlobalTransactionalID, req.Action, req.ClusterID = id, action, cluster
	principal := ""
	if r.s.target.Principals["operator"] != nil {
		principal = "operator"
	}
	return r.As(principal, id, req).(*wire.ResolveGlobalTransactionResponse)
}

// List asks every node, and returns what concerns this case.
func (r *Run) List(req *wire.ListGlobalTransactionsRequest) (all []wire.ListGlobalTransactionsResponseGlobalTransaction) {
	for _, addr := range r.s.target.bootstraps() {
		r.Until("ListGlobalTransactions", func() (bool, string) {
			resp, err := r.front(addr, "", req)
			if err != nil {
				return false, err.Error()
			}
			got := resp.(*wire.ListGlobalTransactionsResponse)
			for i := range got.GlobalTransactions {
				if g := got.GlobalTransactions[i]; r.ours(g.GlobalTransactionalID) {
					all = append(all, g)
				}
			}
			return got.ErrorCode == 0, codeName(got.ErrorCode)
		})
	}
	return all
}

// Listed finds an id in ListGlobalTransactions.
func (r *Run) Listed(id string) (wire.ListGlobalTransactionsResponseGlobalTransaction, bool) {
	for _, g := range r.List(wire.NewPtrListGlobalTransactionsRequest()) {
		if g.GlobalTransactionalID == id {
			return g, true
		}
	}
	return wire.ListGlobalTransactionsResponseGlobalTransaction{}, false
}

// --- words -----------------------------------------------------------------------

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func errName(err error) string {
	if err == nil {
		return "ok"
	}
	if e, ok := errors.AsType[*wire.Error](err); ok {
		return e.Name
	}
	if e, ok := errors.AsType[*kerr.Error](err); ok {
		return e.Message
	}
	return err.Error()
}

func codeName(code int16) string { return errName(wire.ErrorForCode(code)) }

func outcomeName(o int8) string {
	return []string{"unknown", "committed", "aborted", "none that there is"}[min(max(o, 0), 3)]
}

func stateName(s int8) string {
	names := []string{"pending", "complete", "heuristic commit", "heuristic abort", "heuristic unknown"}
	if s < 0 || int(s) >= len(names) {
		return fmt.Sprintf("state %d", s)
	}
	return names[s]
}

func answered(resp *wire.EndGlobalTxnResponse) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, outcome %s", codeName(resp.ErrorCode), outcomeName(resp.Outcome))
	for _, p := range resp.Participants {
		b.WriteString(", a participant " + stateName(p.State))
	}
	return b.String()
}
