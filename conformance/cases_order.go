package conformance

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// orderCases are requests that are wrong in more than one way.
var orderCases = []Case{
	{
		ID: "LIFE-34", Clauses: []string{"C-WIRE-4"}, Needs: two,
		Title: "Of several refusals the first in the protocol's order is answered", Means: "A client that is fenced takes itself for one that has made a mistake, or waits for ever.",
		Run: func(r *Run) {
			old := r.Open()
			old.Write("x", r.A, r.B)
			s := r.OpenWith(old.ID, longEnough, r.A)
			s.Write("v", r.A)
			end := func(want error, change func(*wire.EndGlobalTxnRequest)) {
				req := s.Request(true)
				change(req)
				r.Answered(r.Ask(req), want, wire.OutcomeUnknown)
			}
			elsewhere := wire.EndGlobalTxnRequestParticipant{ClusterID: r.B.ID, ProducerID: 1}
			// A field that is wrong, an id that is not known, an epoch that is
			// over, a number that is over, a cluster that is none of the session's.
			end(kerr.InvalidRequest, func(req *wire.EndGlobalTxnRequest) {
				req.GlobalTransactionalID, req.GlobalEpoch, req.Participants = r.ID(), 0, nil
			})
			end(kerr.TransactionalIDNotFound, func(req *wire.EndGlobalTxnRequest) { req.GlobalTransactionalID, req.GlobalEpoch = r.ID(), 0 })
			end(kerr.ProducerFenced, func(req *wire.EndGlobalTxnRequest) {
				req.GlobalEpoch, req.Sequence = old.Epoch, 1
				req.Participants = append(req.Participants, elsewhere)
			})
			end(wire.GlobalTransactionTooOld, func(req *wire.EndGlobalTxnRequest) {
				req.Sequence = 1
				req.Participants = append(req.Participants, elsewhere)
			})
			bad := *old.Init
			bad.TimeoutMillis = 0
			r.Refused("InitGlobalTxn of the session before, with a timeout of 0", r.Init(&bad).ErrorCode, kerr.InvalidTransactionTimeout)
			bad = *old.Init
			bad.ClusterIDs = append([]string{"no such cluster"}, bad.ClusterIDs...)
			r.Refused("InitGlobalTxn of the session before, with an unknown cluster", r.Init(&bad).ErrorCode, kerr.ProducerFenced)
			s.End(true)
		},
		Wrong: []wrong.Fault{recodes(kerr.ProducerFenced, wire.UnknownParticipant)},
	},
	{
		ID: "LIFE-35", Clauses: []string{"C-END-4", "C-WIRE-4"}, Needs: links,
		Title: "While an end is under way, smaller and larger numbers and other lists are refused, and it goes on", Means: "A late copy takes the place of a client's present transaction.",
		Run: func(r *Run) {
			h := r.holdEnds(r.A)
			s := r.OpenWith(r.ID(), longEnough, r.A)
			s.Write("v", r.A)
			s.Sequence++ // as after a one-phase end whose record was lost
			req := s.Request(true)
			req.TimeoutMillis = int32((30 * time.Second).Milliseconds())
			wait := r.Go(func() { r.Answered(r.Decide(req), nil, wire.OutcomeCommitted) })
			h.reached()
			// A cluster that is none of the session's is the last to be refused.
			foreign := append(slices.Clone(req.Participants), wire.EndGlobalTxnRequestParticipant{ClusterID: r.B.ID, ProducerID: 1})
			for _, c := range []struct {
				number int64
				list   []wire.EndGlobalTxnRequestParticipant
				want   error
			}{
				{req.Sequence - 1, req.Participants, kerr.InvalidRequest},
				{req.Sequence + 1, req.Participants, kerr.ConcurrentTransactions},
				{req.Sequence - 1, foreign, kerr.InvalidRequest},
				{req.Sequence, foreign, kerr.InvalidRequest},
				{req.Sequence + 1, foreign, kerr.ConcurrentTransactions},
			} {
				other := *req
				other.Sequence, other.Participants, other.TimeoutMillis = c.number, c.list, 0
				r.Answered(r.Ask(&other), c.want, wire.OutcomeUnknown)
			}
			h.now()
			wait()
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{
			hides(kerr.InvalidRequest), hides(kerr.ConcurrentTransactions), refusesForeignFirst(kerr.InvalidRequest), refusesForeignFirst(kerr.ConcurrentTransactions),
		},
	},
}

// refusesForeignFirst is a target that looks at the clusters of a list before it
// looks at what is under way.
func refusesForeignFirst(before error) wrong.Fault {
	return wrong.Answers("looks at the clusters before what is refused with "+errName(before),
		func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			if resp.ErrorCode != codeFor(before) || len(req.Participants) < 2 {
				return false
			}
			resp.ErrorCode = wire.UnknownParticipant.Code
			return true
		})
}
