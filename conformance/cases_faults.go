package conformance

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// shortestPause is a quarter of the reference's first one (C-STATE-4).
const shortestPause = 5 * time.Millisecond

// faultCases are about messages that are lost, late or slow between the
// coordinator and its participants.
var faultCases = []Case{
	{
		ID: "FAULT-01", Clauses: []string{"C-PART-2", "C-ATOM-4"}, Needs: links, Alone: true,
		Title: "A lost answer to EndTxn(commit) is asked for again", Means: "A commit whose answer was lost counts as failed.",
		Run: func(r *Run) {
			r.A.OnAnswer(r, func(x *proxy.Exchange) {
				if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 {
					r.once.Do(x.Cut)
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			resp := r.Decide(s.Request(true))
			r.Answered(resp, nil, wire.OutcomeCommitted)
			r.Check(r.Participant(resp, r.A).State == wire.ParticipantComplete, "the participant is %s", stateName(r.Participant(resp, r.A).State))
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{endsWith("takes a lost answer for an abort", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.ErrorCode, resp.Participants[0].State = wire.HeuristicOutcome.Code, wire.ParticipantHeuristicAbort
		})},
	},
	{
		ID: "FAULT-02", Clauses: []string{"C-ATOM-6", "C-PART-4"}, Needs: links, Alone: true,
		Title: "A lost EndTxn(commit) is sent again", Means: "A participant stays open for ever.",
		Run: func(r *Run) {
			r.Listen(r.A, func(n int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				if n == 1 {
					x.Cut()
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			r.Check(r.State(r.A, s.ID).State != "Ongoing", "the participant is called complete, and its transaction is open")
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{swallows("takes what it could not send for done", func(req *kmsg.EndTxnRequest) bool { return req.Commit })},
	},
	{
		ID: "FAULT-03", Clauses: []string{"C-END-9", "C-END-14", "C-VOTE-2"}, Needs: links, Alone: true,
		Title: "A participant that is away before the decision makes it abort, and the message names it", Means: "A commit is decided that a cluster may not have prepared.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Note("cluster eu is cut off")
			r.later(r.B.link.Mend)
			r.B.link.Cut()
			req := s.Request(true)
			var resp *wire.EndGlobalTxnResponse
			r.Until("the decision", func() (bool, string) {
				resp = r.Ask(req)
				return resp.Outcome != 0, answered(resp)
			})
			r.B.link.Mend()
			r.Answered(resp, nil, wire.OutcomeAborted)
			r.Check(contains(text(resp.ErrorMessage), r.B.ID), "the message does not name the cluster: %q", text(resp.ErrorMessage))
			r.Answered(r.Decide(req), nil, wire.OutcomeAborted)
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{endsWith("decides without it", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.Outcome = wire.OutcomeCommitted
		})},
	},
	{
		ID: "FAULT-04", Clauses: []string{"C-ATOM-6", "C-END-13"}, Needs: links, Alone: true,
		Title: "A participant that is away after the decision is waited for, and completes", Means: "A cluster's outage tears a commit.",
		Run: func(r *Run) {
			cut := r.newHolding()
			r.Listen(r.B, func(n int, _ *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				if n == 1 {
					r.B.link.Cut()
					cut.first <- struct{}{}
				}
			})
			r.later(r.B.link.Mend)
			s := r.Open()
			s.Write("v", r.A, r.B)
			resp := r.Decision(s.Request(true))
			r.Answered(resp, nil, wire.OutcomeCommitted)
			cut.reached()
			r.Check(r.Participant(resp, r.B).State == wire.ParticipantPending, "the participant is %s, want pending", stateName(r.Participant(resp, r.B).State))
			g, found := r.Listed(s.ID)
			r.Check(found && len(g.PendingClusterIDs) == 1 && g.PendingClusterIDs[0] == r.B.ID && g.AgeMillis >= 0, "the list does not name the pending cluster and its age")
			r.B.link.Mend()
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{endsWith("calls it complete", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].State = wire.ParticipantComplete
			}
		})},
	},
	{
		ID: "FAULT-05", Clauses: []string{"C-VOTE-2", "C-LIVE-2"}, Needs: links, Alone: true,
		Title: "A vote that does not come ends as unavailable, and holds nobody else up", Means: "One cluster that hangs stops all applications.",
		Run: func(r *Run) {
			s, other := r.Open(), r.OpenWith(r.ID(), longEnough, r.A)
			s.Write("v", r.A, r.B)
			other.Write("w", r.A)
			votes := r.holdVotes(r.B)
			var decided atomic.Bool
			told := r.Go(func() {
				req := s.Request(true)
				req.TimeoutMillis = int32((3 * r.s.target.RequestTimeout).Milliseconds())
				var resp *wire.EndGlobalTxnResponse
				r.Until("the decision", func() (bool, string) {
					resp = r.Ask(req)
					return resp.Outcome != 0, answered(resp)
				})
				decided.Store(true)
				r.Answered(resp, nil, wire.OutcomeAborted)
			})
			votes.reached()
			other.End(true)
			r.Check(!decided.Load(), "the other transaction waited for the vote")
			r.Sees(r.A, other.Topic, "w")
			told()
			votes.now()
			r.Sees(r.A, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Stalling(wrong.Answers("waits for ever", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			if resp.Outcome != wire.OutcomeAborted {
				return false
			}
			resp.Outcome = wire.OutcomeUnknown
			return true
		})), oneByOne()},
	},
	{
		ID: "FAULT-06", Clauses: []string{"C-STATE-4"}, Needs: links, Alone: true,
		Title: "While one EndTxn is not answered no other one is sent", Means: "Two EndTxn of one transaction race, and on transaction.version 1 the second ends the next one.",
		Run: func(r *Run) {
			h := r.newHolding()
			ends := r.Listen(r.A, func(n int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				if n == 1 {
					h.wait(x)
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			h.reached()
			seen := 0
			r.Never("a second EndTxn", min(2*time.Second, r.s.target.RequestTimeout/3), func() (bool, string) {
				seen += len(ends.All())
				return seen > 1, "it came while the first was not answered"
			})
			h.now()
			told()
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Does("sends each EndTxn twice", true, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 {
				x.AskBeside(req)
			}
		})},
	},
	{
		ID: "FAULT-07", Clauses: []string{"C-STATE-4", "C-PART-4"}, Needs: links,
		Title: "A participant that is busy is asked again and again, with pauses", Means: "A coordinator gives up, or breaks a cluster that is just coming back.",
		Run: func(r *Run) {
			hold := r.newHolding()
			came := make(chan time.Time, 10_000)
			r.Listen(r.A, func(_ int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				if !hold.over() {
					came <- x.Asked
					x.Answer(refuse(kerr.CoordinatorNotAvailable))
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			// Between two tries lies the pause, and what the machine adds to it. So a
			// short one tells, where a number in a time would tell of the machine.
			var last time.Time
			for range 8 {
				select {
				case at := <-came:
					r.Check(at.Sub(last).Abs() >= shortestPause, "it is asked again after less than %v", shortestPause)
					last = at
				case <-r.ctx.Done():
					r.Failf("it was not asked eight times")
				}
			}
			hold.now()
			told()
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Does("asks without pause", true, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 {
				x.AskBeside(slices.Repeat([]kmsg.Request{req}, 20)...)
			}
		})},
	},
	{
		ID: "FAULT-08", Clauses: []string{"C-END-17", "C-PART-9"}, Needs: []Need{NeedParticipants, NeedLinks, NeedV4}, Alone: true,
		Title: "After an EndTxn v4 whose fate is unknown the answer gives no epoch to go on with", Means: "The late EndTxn ends the client's next transaction.",
		Run: func(r *Run) {
			r.Listen(r.A, func(n int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				if n == 1 {
					x.Cut()
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			resp := r.Decide(s.Request(true))
			r.Answered(resp, nil, wire.OutcomeCommitted)
			r.Check(r.Participant(resp, r.A).ProducerID == -1, "a producer id to go on with, although a copy of EndTxn may be under way")
		},
		Wrong: []wrong.Fault{endsWith("gives the epoch to go on with", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].ProducerID, resp.Participants[i].ProducerEpoch = req.Participants[i].ProducerID, req.Participants[i].ProducerEpoch
			}
		})},
	},
	{
		ID: "FAULT-09", Clauses: []string{"C-INIT-2", "C-VOTE-2"}, Needs: links, Alone: true,
		Title: "A session over a cluster that has just gone is refused, and granted when it is back", Means: "A client writes to a cluster whose transactions cannot be ended, or never gets its session.",
		Run: func(r *Run) {
			req := r.InitRequest(r.ID(), longEnough, r.A, r.B)
			r.later(r.B.link.Mend)
			r.B.link.Cut()
			resp := r.Init(req)
			r.B.link.Mend()
			r.Refused("InitGlobalTxn", resp.ErrorCode, wire.ParticipantNotAvailable)
			r.InitOK(req)
		},
		Wrong: []wrong.Fault{hides(wire.ParticipantNotAvailable)},
	},
	{
		ID: "FAULT-10", Clauses: []string{"C-LIVE-2"}, Needs: links, Alone: true,
		Title: "A cluster that is away does not hold up the transactions that do not name it", Means: "One cluster's outage stops all applications.",
		Run: func(r *Run) {
			s := r.OpenWith(r.ID(), longEnough, r.A)
			s.Write("v", r.A)
			r.B.link.Cut()
			defer r.B.link.Mend()
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Stalling(wrong.Answers("waits for all clusters", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			resp.Outcome = wire.OutcomeUnknown
			return true
		}))},
	},
	{
		ID: "FAULT-11", Clauses: []string{"C-END-13", "C-ATOM-5"}, Needs: links, Alone: true,
		Title: "At a deadline before the decision the answer is unknown, and asking again works", Means: "A guess is told in place of an answer.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			votes := r.holdVotes(r.B)
			req := s.Request(true)
			req.TimeoutMillis = 200
			r.Answered(r.Ask(req), nil, wire.OutcomeUnknown)
			votes.now()
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Answers("presumes abort", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			if resp.ErrorCode != 0 || resp.Outcome != 0 {
				return false
			}
			resp.Outcome = wire.OutcomeAborted
			return true
		})},
	},
}

// oneByOne is a coordinator that ends one transaction after the other.
func oneByOne() wrong.Fault {
	turn := make(chan struct{}, 1)
	f := wrong.Does("ends one transaction after the other", false, func(x *proxy.Exchange) {
		if _, ok := x.Request.(*wire.EndGlobalTxnRequest); !ok {
			return
		}
		select {
		case turn <- struct{}{}:
		default:
			x.Act()
			select {
			case turn <- struct{}{}:
			case <-x.Context.Done():
			}
		}
	})
	f.Answer = func(x *proxy.Exchange) {
		if _, ok := x.Request.(*wire.EndGlobalTxnRequest); ok {
			time.AfterFunc(100*time.Millisecond, func() { // the answer comes first
				select {
				case <-turn:
				default:
				}
			})
		}
	}
	return f
}
