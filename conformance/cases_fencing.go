package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// fencingCases are about who may act for an id, and about requests that meet.
var fencingCases = slices.Concat(sessions, refusals, meetings)

var sessions = []Case{
	{
		ID: "FENCE-01", Clauses: []string{"C-END-5", "C-INIT-1"}, Needs: two,
		Title: "A new session fences the older one", Means: "Two instances of an application commit under one id.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B))
			r.Answered(r.Ask(s.Request(true)), kerr.ProducerFenced, wire.OutcomeUnknown)
		},
		Wrong: []wrong.Fault{hides(kerr.ProducerFenced)},
	},
	{
		ID: "FENCE-02", Clauses: []string{"C-END-5"}, Needs: two,
		Title: "An epoch that was never given is fenced", Means: "A made-up epoch takes an id over.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			req.GlobalEpoch++
			r.Answered(r.Ask(req), kerr.ProducerFenced, wire.OutcomeUnknown)
			s.End(true)
		},
		Wrong: []wrong.Fault{asked("takes any epoch from the present one on", func(req *wire.EndGlobalTxnRequest) { req.GlobalEpoch = 1 })},
	},
	{
		ID: "FENCE-03", Clauses: []string{"C-INIT-3"}, Needs: two,
		Title: "A repeat of InitGlobalTxn gets the same session", Means: "A lost answer fences its own client.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A, r.B)
			first, second := r.InitOK(req), r.InitOK(req)
			r.Check(first.GlobalEpoch == second.GlobalEpoch && first.Sequence == second.Sequence, "the repeat got another epoch or sequence")
		},
		Wrong: []wrong.Fault{wrong.Requests("forgets who has asked", func(req *wire.InitGlobalTxnRequest) bool {
			req.InstanceID[0]++
			req.InstanceID[7] = byte(time.Now().UnixNano())
			return true
		})},
	},
	{
		ID: "FENCE-04", Clauses: []string{"C-INIT-3"}, Needs: two,
		Title: "A repeat of InitGlobalTxn after ends gets the present sequence", Means: "A client goes on with a number that is used up.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			r.Becomes(s.ID, wire.StateCompleteCommit)
			again := r.InitOK(s.Init)
			r.Check(again.GlobalEpoch == s.Epoch && again.Sequence == s.Sequence, "epoch or sequence are not the present ones")
		},
		Wrong: []wrong.Fault{inits("answers what it has answered before", func(_ *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) { resp.Sequence = 7 })},
	},
	{
		ID: "FENCE-05", Clauses: []string{"C-INIT-3"}, Needs: two,
		Title: "A repeat with another timeout is refused", Means: "A client believes in a timeout that does not hold.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A, r.B)
			r.InitOK(req)
			req.TimeoutMillis++
			r.Refused("InitGlobalTxn with another timeout", r.Init(req).ErrorCode, kerr.InvalidRequest)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRequest)},
	},
	{
		ID: "FENCE-06", Clauses: []string{"C-INIT-3"}, Needs: two,
		Title: "A repeat with other clusters is refused", Means: "A client believes in clusters that its session does not have.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A, r.B)
			r.InitOK(req)
			req.ClusterIDs = req.ClusterIDs[:1]
			r.Refused("InitGlobalTxn with other clusters", r.Init(req).ErrorCode, kerr.InvalidRequest)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRequest)},
	},
	{
		ID: "FENCE-07", Clauses: []string{"C-INIT-4"}, Needs: two,
		Title: "A late copy of the predecessor's InitGlobalTxn does not fence the present client", Means: "A delayed message stops a healthy application.",
		Run: func(r *Run) {
			late := r.InitRequest(r.ID(), longEnough, r.A, r.B)
			r.InitOK(late)
			now := r.InitRequest(late.GlobalTransactionalID, longEnough, r.A, r.B)
			epoch := r.InitOK(now).GlobalEpoch
			r.Refused("the predecessor's InitGlobalTxn", r.Init(late).ErrorCode, kerr.ProducerFenced)
			r.Check(r.InitOK(now).GlobalEpoch == epoch, "the present session has another epoch")
		},
		Wrong: []wrong.Fault{hides(kerr.ProducerFenced), wrong.Requests("takes a late copy for a new client", func(req *wire.InitGlobalTxnRequest) bool {
			copy(req.InstanceID[8:], fmt.Sprint(time.Now().UnixNano()%100_000_000))
			return true
		})},
	},
	{
		ID: "FENCE-08", Clauses: []string{"C-END-5"}, Needs: two,
		Title: "A client that was fenced while it waited may still learn its outcome", Means: "A client does not know whether its work is done.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B))
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
		},
		Wrong: []wrong.Fault{repeats("refuses everything of an older epoch", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.ErrorCode, resp.Outcome = kerr.ProducerFenced.Code, wire.OutcomeUnknown
		})},
	},
	{
		ID: "FENCE-09", Clauses: []string{"C-END-5"}, Needs: two,
		Title: "But not one who does not know its participants exactly", Means: "Somebody who guesses is told what an id does.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B))
			req.Participants[0].ProducerEpoch += 5
			r.Answered(r.Ask(req), kerr.ProducerFenced, wire.OutcomeUnknown)
		},
		Wrong: []wrong.Fault{hides(kerr.ProducerFenced)},
	},
	{
		ID: "FENCE-10", Clauses: []string{"C-RULE-3"}, Needs: two,
		Title: "After a new session and its producers nothing of the old one gets in", Means: "A zombie writes into the new instance's transaction.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("old", r.A, r.B)
			n := r.OpenWith(s.ID, longEnough, r.A, r.B)
			code := s.Producers[r.A].TryWrite(s.Topic, "zombie")
			r.Check(code != 0, "the old producer may write")
			n.Write("new", r.A, r.B)
			n.End(true)
			r.Sees(r.A, s.Topic)
			r.Sees(r.A, n.Topic, "new")
		},
		Wrong: []wrong.Fault{recodes(nil, kerr.ProducerFenced)},
	},
	{
		ID: "FENCE-11", Clauses: []string{"C-INIT-2"}, Needs: []Need{NeedParticipants, NeedUnreachable},
		Title: "A session over a cluster that cannot be asked is refused, and changes nothing", Means: "A client writes to clusters whose transactions nobody can end.",
		Run:   func(r *Run) { r.failedCheck(r.s.target.Unreachable, wire.ParticipantNotAvailable) },
		Wrong: []wrong.Fault{hides(wire.ParticipantNotAvailable)},
	},
	{
		ID: "FENCE-12", Clauses: []string{"C-INIT-2"}, Needs: two,
		Title: "A session over a cluster that is not configured is refused, and changes nothing", Means: "A client writes to clusters whose transactions nobody can end.",
		Run:   func(r *Run) { r.failedCheck("nobody-s-cluster", wire.UnknownParticipant) },
		Wrong: []wrong.Fault{hides(wire.UnknownParticipant)},
	},
	{
		ID: "FENCE-13", Clauses: []string{"C-INIT-2"}, Needs: []Need{NeedParticipants, NeedMismatch},
		Title: "A session over an address that answers as another cluster is refused, and changes nothing", Means: "The coordinator ends transactions on the wrong cluster.",
		Run:   func(r *Run) { r.failedCheck(r.s.target.Mismatch, wire.ParticipantClusterIDMismatch) },
		Wrong: []wrong.Fault{hides(wire.ParticipantClusterIDMismatch)},
	},
	{
		ID: "FENCE-14", Clauses: []string{"C-INIT-2", "C-PART-1"}, Needs: []Need{NeedParticipants, NeedClosed},
		Title: "A session over a cluster that has not opted in is refused, and changes nothing", Means: "The cluster aborts a part after the decision to commit.",
		Run:   func(r *Run) { r.failedCheck(r.s.target.Closed, wire.ParticipantNotEnabled) },
		Wrong: []wrong.Fault{hides(wire.ParticipantNotEnabled)},
	},
	{
		ID: "FENCE-15", Clauses: []string{"C-INIT-2"}, Needs: []Need{NeedParticipants, NeedClosed, NeedUnreachable},
		Title: "Of several failed checks the worst is the answer, and each is listed", Means: "An operator mends one cluster after the other.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A)
			req.ClusterIDs = append(req.ClusterIDs, r.s.target.Unreachable, r.s.target.Closed)
			resp := r.Init(req)
			r.Refused("InitGlobalTxn", resp.ErrorCode, wire.ParticipantNotEnabled)
			r.Check(len(resp.ClusterErrors) == 2, "%d clusters are listed as failed, want 2", len(resp.ClusterErrors))
			for _, e := range resp.ClusterErrors {
				r.Refused("the check of a cluster", e.ErrorCode, map[string]error{
					r.s.target.Unreachable: wire.ParticipantNotAvailable, r.s.target.Closed: wire.ParticipantNotEnabled,
				}[e.ClusterID])
			}
		},
		Wrong: []wrong.Fault{recodes(wire.ParticipantNotEnabled, wire.ParticipantNotAvailable)},
	},
	{
		ID: "FENCE-16", Clauses: []string{"C-INIT-2"}, Needs: []Need{NeedParticipants, NeedClosed},
		Title: "The message about a cluster that has not opted in names the setting", Means: "An operator does not know what to do.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A)
			req.ClusterIDs = append(req.ClusterIDs, r.s.target.Closed)
			resp := r.Init(req)
			r.Check(len(resp.ClusterErrors) == 1, "%d clusters are listed as failed, want 1", len(resp.ClusterErrors))
			said := text(resp.ClusterErrors[0].ErrorMessage)
			r.Check(contains(said, "transaction.two.phase.commit.enable") || contains(said, "transaction.max.timeout.ms"), "the message is %q", said)
		},
		Wrong: []wrong.Fault{wrong.Answers("says nothing", func(_ *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) bool {
			for i := range resp.ClusterErrors {
				resp.ClusterErrors[i].ErrorMessage = nil
			}
			return true
		})},
	},
}

// failedCheck asks for a session over A and a cluster that must fail its check.
func (r *Run) failedCheck(cluster string, want error) {
	id := r.ID()
	before := r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
	req := r.InitRequest(id, longEnough, r.A)
	req.ClusterIDs = append(req.ClusterIDs, cluster)
	resp := r.Init(req)
	r.Refused("InitGlobalTxn", resp.ErrorCode, want)
	r.Check(len(resp.ClusterErrors) == 1 && resp.ClusterErrors[0].ClusterID == cluster, "the cluster that failed is not listed, or another is")
	d := r.Describe(id)
	r.Check(d.GlobalEpoch == before.GlobalEpoch && len(d.ClusterIDs) == 2, "the session was changed")
}

var refusals = []Case{
	badInit("FENCE-20", "a timeout of 0", kerr.InvalidTransactionTimeout, "C-INIT-8", func(_ *Run, req *wire.InitGlobalTxnRequest) { req.TimeoutMillis = 0 }),
	badInit("FENCE-21", "a negative timeout", kerr.InvalidTransactionTimeout, "C-INIT-8", func(_ *Run, req *wire.InitGlobalTxnRequest) { req.TimeoutMillis = -5 }),
	badInit("FENCE-22", "a timeout above the maximum", kerr.InvalidTransactionTimeout, "C-INIT-8", func(r *Run, req *wire.InitGlobalTxnRequest) {
		req.TimeoutMillis = int32(r.s.target.MaxTimeout.Milliseconds()) + 1
	}),
	badInit("FENCE-23", "no cluster", kerr.InvalidRequest, "C-INIT-9", func(_ *Run, req *wire.InitGlobalTxnRequest) { req.ClusterIDs = nil }),
	badInit("FENCE-24", "more than 32 clusters", kerr.InvalidRequest, "C-INIT-9", func(_ *Run, req *wire.InitGlobalTxnRequest) {
		for i := range 32 {
			req.ClusterIDs = append(req.ClusterIDs, fmt.Sprint("cluster-", i))
		}
	}),
	badInit("FENCE-25", "a cluster named twice", kerr.InvalidRequest, "C-INIT-9", func(_ *Run, req *wire.InitGlobalTxnRequest) {
		req.ClusterIDs = append(req.ClusterIDs, req.ClusterIDs[0])
	}),
	badInit("FENCE-26", "an empty cluster id", kerr.InvalidRequest, "C-INIT-9", func(_ *Run, req *wire.InitGlobalTxnRequest) {
		req.ClusterIDs = append(req.ClusterIDs, "")
	}),
	badInit("FENCE-27", "a zero instance id", kerr.InvalidRequest, "C-INIT-9", func(_ *Run, req *wire.InitGlobalTxnRequest) { req.InstanceID = [16]byte{} }),
	{
		ID: "FENCE-28", Clauses: []string{"C-INIT-9"}, Needs: two,
		Title: "InitGlobalTxn of an empty id is refused", Means: "Clients without a name share one.",
		Run: func(r *Run) {
			req := r.InitRequest("", longEnough, r.A, r.B)
			resp, err := r.front(r.s.target.first(), "", req)
			r.Must(err, "InitGlobalTxn")
			r.Refused("InitGlobalTxn of an empty id", codeOf(resp), kerr.InvalidRequest)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRequest)},
	},
	{
		ID: "FENCE-29", Clauses: []string{"C-INIT-8"}, Needs: two,
		Title: "A timeout of just the maximum is accepted", Means: "Configured limits are not those that hold.",
		Run: func(r *Run) {
			r.InitOK(r.InitRequest(r.ID(), r.s.target.MaxTimeout, r.A, r.B))
		},
		Wrong: []wrong.Fault{wrong.Answers("refuses it", func(_ *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) bool {
			resp.ErrorCode = kerr.InvalidTransactionTimeout.Code
			return true
		})},
	},
}

func badInit(id, what string, want error, clause string, change func(*Run, *wire.InitGlobalTxnRequest)) Case {
	return Case{
		ID: id, Clauses: []string{clause}, Needs: two,
		Title: "InitGlobalTxn with " + what + " is refused", Means: "A broken client gets a session that cannot work.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A, r.B)
			change(r, req)
			r.Refused("InitGlobalTxn with "+what, r.Init(req).ErrorCode, want)
			r.Refused("DescribeGlobalTransactions", r.Describe(req.GlobalTransactionalID).ErrorCode, kerr.TransactionalIDNotFound)
		},
		Wrong: []wrong.Fault{hides(want)},
	}
}
