package conformance

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var meetings = []Case{
	{
		ID: "FENCE-40", Clauses: []string{"C-INIT-5"}, Needs: links,
		Title: "No new session while a decision has pending participants", Means: "A restarted client's InitProducerId aborts what was decided.",
		Run: func(r *Run) {
			s, release := r.pending()
			r.Refused("InitGlobalTxn", r.Init(r.InitRequest(s.ID, longEnough, r.A, r.B)).ErrorCode, kerr.ConcurrentTransactions)
			r.Refused("the repeat of InitGlobalTxn", r.Init(s.Init).ErrorCode, kerr.ConcurrentTransactions)
			release()
			r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B))
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{hides(kerr.ConcurrentTransactions)},
	},
	{
		ID: "FENCE-41", Clauses: []string{"C-END-8"}, Needs: links,
		Title: "No next transaction while a decision has pending participants", Means: "Two transactions of an id are decided at once.",
		Run: func(r *Run) {
			s, release := r.pending()
			req := s.Request(true)
			req.Sequence++
			r.Answered(r.Ask(req), kerr.ConcurrentTransactions, wire.OutcomeUnknown)
			release()
			r.Becomes(s.ID, wire.StateCompleteCommit)
		},
		Wrong: []wrong.Fault{hides(kerr.ConcurrentTransactions)},
	},
	{
		ID: "FENCE-42", Clauses: []string{"C-INIT-7", "C-STATE-3"}, Needs: links, Alone: true,
		Title: "A new session while votes are taken drops them, and fences who asked", Means: "The old client's transaction is committed under the new one's feet.",
		Run: func(r *Run) {
			a, s := r.Listen(r.A, nil), r.Open()
			s.Write("v", r.A, r.B)
			release := r.holdVotes(r.B)
			told := r.Go(func() {
				req := s.Request(true)
				req.TimeoutMillis = 30_000
				r.Answered(r.Ask(req), kerr.ProducerFenced, wire.OutcomeUnknown)
			})
			release.reached()
			// Over A alone: its check at B may stand behind the held look.
			r.InitOK(r.InitRequest(s.ID, longEnough, r.A))
			told()
			release.now()
			for _, req := range a.All() {
				r.Check(!req.Commit, "the dropped votes led to a commit")
			}
		},
		Wrong: []wrong.Fault{hides(kerr.ProducerFenced)},
	},
	{
		ID: "FENCE-43", Clauses: []string{"C-INIT-5"}, Needs: links,
		Title: "No new session while an end in one phase is in flight", Means: "A restarted client's InitProducerId meets a commit on its way.",
		Run: func(r *Run) {
			hold := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			hold.reached()
			r.Refused("InitGlobalTxn", r.Init(r.InitRequest(s.ID, longEnough, r.A, r.B)).ErrorCode, kerr.ConcurrentTransactions)
			hold.now()
			told()
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{hides(kerr.ConcurrentTransactions)},
	},
	{
		ID: "FENCE-44", Clauses: []string{"C-END-12", "C-ATOM-4"}, Needs: links, Alone: true,
		Title: "An abort asked while votes are taken wins, and both are told aborted", Means: "Two requests get two outcomes.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			release := r.holdVotes(r.B)
			told := r.Go(func() {
				req := s.Request(true)
				req.TimeoutMillis = 30_000
				r.Answered(r.Decide(req), nil, wire.OutcomeAborted)
			})
			release.reached()
			r.Answered(r.Decide(s.Request(false)), nil, wire.OutcomeAborted)
			release.now()
			told()
			r.Sees(r.A, s.Topic)
		},
		Wrong: []wrong.Fault{endsWith("answers each what it asked for", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			if req.Committed {
				resp.Outcome = wire.OutcomeCommitted
			}
		})},
	},
	{
		ID: "FENCE-45", Clauses: []string{"C-END-12", "C-ATOM-6"}, Needs: links,
		Title: "An abort asked after the decision to commit is told committed", Means: "A decided commit is turned round.",
		Run: func(r *Run) {
			s, release := r.pending()
			resp := r.Ask(s.Request(false))
			r.Answered(resp, nil, wire.OutcomeCommitted)
			release()
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{endsWith("answers what was asked", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			if !req.Committed {
				resp.Outcome = wire.OutcomeAborted
			}
		})},
	},
	{
		ID: "FENCE-46", Clauses: []string{"C-END-12", "C-RULE-5"}, Needs: links,
		Title: "An abort asked after a commit in one phase was sent is told what the participant did", Means: "Aborted is told, and the commit arrives.",
		Run: func(r *Run) {
			hold := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			hold.reached()
			abort := s.Request(false)
			abort.TimeoutMillis = 200
			r.Answered(r.Ask(abort), nil, wire.OutcomeUnknown)
			hold.now()
			told()
			r.Answered(r.Decide(s.Request(false)), nil, wire.OutcomeCommitted)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Answers("guesses abort when asked to", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			if req.Committed || resp.ErrorCode != 0 {
				return false
			}
			resp.Outcome = wire.OutcomeAborted
			return true
		})},
	},
	{
		ID: "FENCE-47", Clauses: []string{"C-END-4"}, Needs: links,
		Title: "A larger sequence while an end is under way has to wait", Means: "A late copy of an old request refuses its client's next transaction.",
		Run: func(r *Run) {
			hold := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			hold.reached()
			next := s.Request(true)
			next.Sequence += 2
			r.Answered(r.Ask(next), kerr.ConcurrentTransactions, wire.OutcomeUnknown)
			hold.now()
			told()
		},
		Wrong: []wrong.Fault{recodes(kerr.ConcurrentTransactions, kerr.InvalidRequest)},
	},
	{
		ID: "FENCE-48", Clauses: []string{"C-END-4"}, Needs: links, Alone: true,
		Title: "Another set of participants while an end is under way is refused", Means: "A participant slips in after the votes.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			release := r.holdVotes(r.B)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			release.reached()
			less := s.Request(true)
			less.Participants = less.Participants[:1]
			r.Answered(r.Ask(less), kerr.InvalidRequest, wire.OutcomeUnknown)
			release.now()
			told()
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidRequest)},
	},
	{
		ID: "FENCE-49", Clauses: []string{"C-ATOM-4", "C-STATE-4"}, Needs: links,
		Title: "The same request sent at once from several connections is carried out once", Means: "A repeat ends a transaction twice.",
		Run: func(r *Run) {
			a, s := r.Listen(r.A, nil), r.Open()
			s.Write("v", r.A, r.B)
			var waits []func()
			for range 5 {
				req := s.Request(true)
				waits = append(waits, r.Go(func() { r.Answered(r.Decide(req), nil, wire.OutcomeCommitted) }))
			}
			for _, wait := range waits {
				wait()
			}
			n := len(a.All())
			r.Check(n == 1, "%d EndTxn were sent to a participant, want 1", n)
		},
		Wrong: []wrong.Fault{wrong.Does("ends it twice", true, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 {
				_, _ = x.Ask(req)
			}
		})},
	},
	{
		ID: "FENCE-50", Clauses: []string{"C-END-13"}, Needs: links,
		Title: "Sixteen may wait for one transaction, and no more", Means: "A broken client that asks and asks fills the coordinator's memory.",
		Run: func(r *Run) {
			const all, mayWait = 24, 16
			s := r.Open()
			s.Write("v", r.A, r.B)
			hold := r.holdEnds(r.B)
			told := make(chan *wire.EndGlobalTxnResponse, all)
			var waits []func()
			for range all {
				req := s.Request(true)
				req.TimeoutMillis = 30_000 // until all have come, on any machine
				waits = append(waits, r.Go(func() { told <- r.Ask(req) }))
			}
			r.awaits("answers to all but those that may wait", func() bool { return len(told) >= all-mayWait })
			for range all - mayWait {
				r.Answered(<-told, kerr.ConcurrentTransactions, wire.OutcomeUnknown)
			}
			hold.now()
			for _, wait := range waits {
				wait()
			}
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
		},
		Wrong: []wrong.Fault{hides(kerr.ConcurrentTransactions)},
	},
	{
		ID: "FENCE-51", Clauses: []string{"C-RES-1", "C-ATOM-6"}, Needs: links,
		Title: "An operator cannot abort what is decided", Means: "A decided commit is turned round by hand.",
		Run: func(r *Run) {
			s, release := r.pending()
			r.Refused("ResolveGlobalTransaction(abort)", r.Resolve(s.ID, wire.ResolveAbort, nil).ErrorCode, kerr.InvalidTxnState)
			release()
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidTxnState)},
	},
	{
		ID: "FENCE-52", Clauses: []string{"C-RES-1"}, Needs: links, Alone: true,
		Title: "An operator's abort while votes are taken decides", Means: "An operator's command has no effect.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			release := r.holdVotes(r.B)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeAborted) })
			release.reached()
			r.Refused("ResolveGlobalTransaction(abort)", r.Resolve(s.ID, wire.ResolveAbort, nil).ErrorCode, nil)
			release.now()
			told()
			r.Sees(r.A, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Answers("does nothing", func(_ *wire.ResolveGlobalTransactionRequest, resp *wire.ResolveGlobalTransactionResponse) bool {
			resp.ErrorCode = kerr.InvalidTxnState.Code
			return true
		})},
	},
}
