package conformance

import (
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var numbers = []Case{
	{
		ID: "LIFE-20", Clauses: []string{"C-INIT-1"}, Needs: two,
		Title: "Each session raises the global epoch by one", Means: "An older client is not fenced.",
		Run: func(r *Run) {
			id := r.ID()
			first := r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			second := r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			r.Check(second.GlobalEpoch == first.GlobalEpoch+1, "the second session's epoch is %d above the first's", second.GlobalEpoch-first.GlobalEpoch)
		},
		Wrong: []wrong.Fault{inits("gives every session the same epoch", func(_ *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) { resp.GlobalEpoch = 1 })},
	},
	{
		ID: "LIFE-21", Clauses: []string{"C-INIT-1", "C-STATE-1"}, Needs: two,
		Title: "The session is recorded as it was answered", Means: "A coordinator that takes over does not know the session.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), 54321*time.Millisecond, r.A, r.B)
			resp := r.InitOK(req)
			d := r.Describe(req.GlobalTransactionalID)
			r.Refused("DescribeGlobalTransactions", d.ErrorCode, nil)
			r.Check(d.GlobalEpoch == resp.GlobalEpoch && d.Sequence == resp.Sequence-1 && d.TimeoutMillis == 54321 && !d.SessionEnded,
				"epoch, sequence, timeout or end of the session are not as answered")
			want := slices.Sorted(slices.Values([]string{r.A.ID, r.B.ID}))
			r.Check(slices.Equal(slices.Sorted(slices.Values(d.ClusterIDs)), want), "the clusters are not those asked for")
			r.Check(d.State == wire.StateEmpty, "the state is %s, want Empty", d.State)
		},
		Wrong: []wrong.Fault{describes("forgets the timeout", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) { d.TimeoutMillis = 60_000 })},
	},
	{
		ID: "LIFE-22", Clauses: []string{"C-END-1"}, Needs: two,
		Title: "Sequences go on by one, over sessions too", Means: "A transaction is taken for another one.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			s.Write("w", r.A, r.B)
			s.End(false)
			again := r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B))
			r.Check(again.Sequence == s.Sequence, "the next sequence is %d off", again.Sequence-s.Sequence)
		},
		Wrong: []wrong.Fault{inits("counts anew in each session", func(_ *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) { resp.Sequence = 1 })},
	},
	{
		ID: "LIFE-23", Clauses: []string{"C-END-3"}, Needs: two,
		Title: "A smaller sequence than the last is refused as too old", Means: "A late question about an old transaction gets the answer of another one.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			req.Sequence--
			r.Answered(r.Ask(req), wire.GlobalTransactionTooOld, wire.OutcomeUnknown)
		},
		Wrong: []wrong.Fault{hides(wire.GlobalTransactionTooOld)},
	},
	{
		ID: "LIFE-24", Clauses: []string{"C-END-3"}, Needs: two,
		Title: "A sequence with a gap before it is taken as the next", Means: "A client whose coordinator lost a lazy record can never go on.",
		Run: func(r *Run) {
			s := r.Open()
			s.Sequence += 3
			s.Write("v", r.A, r.B)
			s.End(true)
			d := r.Describe(s.ID)
			r.Check(d.Sequence == s.Sequence-1, "the last sequence is not the one asked for")
		},
		Wrong: []wrong.Fault{asked("takes no sequence but the next", func(req *wire.EndGlobalTxnRequest) { req.Sequence -= 4 })},
	},
	{
		ID: "LIFE-36", Clauses: []string{"C-END-3"}, Needs: two,
		Title: "A sequence more than a million above the last is refused, and the id goes on", Means: "One wrong number makes an id useless for ever.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			for _, far := range []int64{s.Sequence + 1_000_000, math.MaxInt64} {
				req := s.Request(true)
				req.Sequence = far
				r.Refused("EndGlobalTxn with a number too far ahead", r.Ask(req).ErrorCode, kerr.InvalidRequest)
			}
			s.Sequence += 999_999
			s.End(true)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Answers("takes any number", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			if resp.ErrorCode != kerr.InvalidRequest.Code {
				return false
			}
			resp.ErrorCode, resp.Outcome = 0, wire.OutcomeCommitted
			return true
		})},
	},
	{
		ID: "LIFE-25", Clauses: []string{"C-END-4"}, Needs: two,
		Title: "A repeat with another set of participants is refused, the first stands", Means: "A participant slips in after the decision, or out.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			less := *req
			less.Participants = less.Participants[:1]
			r.Answered(r.Ask(&less), kerr.InvalidRequest, wire.OutcomeUnknown)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRequest)},
	},
	malformedEnd("LIFE-26", "no participant", kerr.InvalidRequest, func(req *wire.EndGlobalTxnRequest) { req.Participants = nil }),
	malformedEnd("LIFE-27", "a cluster named twice", kerr.InvalidRequest, func(req *wire.EndGlobalTxnRequest) {
		req.Participants = append(req.Participants, req.Participants[0])
	}),
	malformedEnd("LIFE-28", "a negative producer id", kerr.InvalidRequest, func(req *wire.EndGlobalTxnRequest) { req.Participants[0].ProducerID = -1 }),
	malformedEnd("LIFE-29", "a negative producer epoch", kerr.InvalidRequest, func(req *wire.EndGlobalTxnRequest) { req.Participants[0].ProducerEpoch = -1 }),
	malformedEnd("LIFE-30", "a cluster that is not of the session", wire.UnknownParticipant, func(req *wire.EndGlobalTxnRequest) {
		req.Participants[0].ClusterID = "nobody-s-cluster"
	}),
	{
		ID: "LIFE-31", Clauses: []string{"C-INIT-10", "C-END-2"}, Needs: two,
		Title: "A new session can still ask for the outcome of the last one", Means: "A restarted client never learns what became of its last transaction.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			req.GlobalEpoch = r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B)).GlobalEpoch
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
		},
		Wrong: []wrong.Fault{repeats("forgets the last transaction with its session", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.ErrorCode, resp.Outcome = wire.GlobalTransactionTooOld.Code, wire.OutcomeUnknown
		})},
	},
	{
		ID: "LIFE-32", Clauses: []string{"C-ATOM-5", "C-ROLE-4"}, Needs: two,
		Title: "An id that there is not is called unknown, with no outcome", Means: "A guess is told in place of an answer.",
		Run: func(r *Run) {
			req := wire.NewPtrEndGlobalTxnRequest()
			req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence, req.TimeoutMillis = r.ID(), 1, 1, 1000
			req.Participants = []wire.EndGlobalTxnRequestParticipant{{ClusterID: r.A.ID, ProducerID: 1}, {ClusterID: r.B.ID, ProducerID: 1}}
			r.Answered(r.Ask(req), kerr.TransactionalIDNotFound, wire.OutcomeUnknown)
			r.Refused("DescribeGlobalTransactions of an unknown id", r.Describe(req.GlobalTransactionalID).ErrorCode, kerr.TransactionalIDNotFound)
		},
		Wrong: []wrong.Fault{wrong.Answers("presumes abort of what it does not know", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			resp.ErrorCode, resp.Outcome = 0, wire.OutcomeAborted
			return true
		})},
	},
	{
		ID: "LIFE-33", Clauses: []string{"C-RULE-4"}, Needs: two,
		Title: "A client that has not asked aborts by itself, and the sequence is not used up", Means: "Presumed abort costs a request, or shifts the numbers.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("x", r.A, r.B)
			for _, p := range []*Participant{r.A, r.B} {
				code := s.Producers[p].End(false)
				r.Check(code == 0, "the client's own abort is answered %s", codeName(code))
			}
			s.Write("v", r.A, r.B)
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{recodes(nil, wire.GlobalTransactionTooOld)},
	},
}

// openWithTimeout is Open, but the producer on p has a timeout of its own, and
// that from the first: kfake keeps the one that an id came with.
func (r *Run) openWithTimeout(p *Participant, timeout time.Duration) *Session {
	s := r.bare(r.ID(), longEnough, r.A, r.B)
	for _, q := range []*Participant{r.A, r.B} {
		own := NoTimeout
		if q == p {
			own = timeout
		}
		s.Producers[q] = r.Producer(q, s.ID, own)
	}
	return s
}

// malformedEnd is a request that must neither be sent on nor recorded.
func malformedEnd(id, what string, want error, change func(*wire.EndGlobalTxnRequest)) Case {
	return Case{
		ID: id, Clauses: []string{"C-END-7"}, Needs: two,
		Title: "EndGlobalTxn with " + what + " is refused", Means: "A broken request ends somebody's transaction.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			change(req)
			r.Answered(r.Ask(req), want, wire.OutcomeUnknown)
			d := r.Describe(s.ID)
			r.Check(d.Sequence == s.Sequence-1, "something was recorded")
			s.End(true) // as if it had never been
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{hides(want)},
	}
}
