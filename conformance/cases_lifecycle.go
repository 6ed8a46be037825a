package conformance

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var links = []Need{NeedParticipants, NeedLinks}

// lifecycleCases are sessions and ends of transactions that nothing disturbs.
var lifecycleCases = slices.Concat(outcomes, numbers, votes, looksAtThem)

var outcomes = []Case{
	{
		ID: "LIFE-01", Clauses: []string{"C-ATOM-1", "C-END-9"}, Needs: two,
		Title: "A commit over two clusters is visible on both", Means: "A part of a committed transaction is lost.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Sends("ends participants the other way", flipEndTxn), asked("aborts where commit was asked", flipCommit)},
	},
	{
		ID: "LIFE-02", Clauses: []string{"C-ATOM-1", "C-END-11"}, Needs: two,
		Title: "An abort over two clusters is visible on none", Means: "Readers see what was taken back.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(false)
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{asked("commits where abort was asked", flipCommit)},
	},
	{
		ID: "LIFE-03", Clauses: []string{"C-END-10", "C-RULE-5"}, Needs: two,
		Title: "A commit of one participant is visible there", Means: "A transaction over one cluster is lost.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{asked("aborts where commit was asked", flipCommit)},
	},
	{
		ID: "LIFE-04", Clauses: []string{"C-END-11"}, Needs: two,
		Title: "An abort of one participant is not visible", Means: "Readers see what was taken back.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			s.End(false)
			r.Sees(r.A, s.Topic)
		},
		Wrong: []wrong.Fault{asked("commits where abort was asked", flipCommit)},
	},
	{
		ID: "LIFE-05", Clauses: []string{"C-ATOM-4", "C-END-2"}, Needs: two,
		Title: "A repeat of a commit is told the same", Means: "A client that asks again does the work again.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			for range 3 {
				r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			}
		},
		Wrong: []wrong.Fault{repeats("forgets what it has answered", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.ErrorCode, resp.Outcome = wire.GlobalTransactionTooOld.Code, wire.OutcomeUnknown
		})},
	},
	{
		ID: "LIFE-06", Clauses: []string{"C-END-2", "C-END-12"}, Needs: two,
		Title: "An abort asked for after a commit is told committed", Means: "A client believes that nothing happened, and does the work twice.",
		Run:   func(r *Run) { r.asksBack(true) },
		Wrong: []wrong.Fault{repeats("answers what was asked last", flipOutcome)},
	},
	{
		ID: "LIFE-07", Clauses: []string{"C-END-2", "C-END-12"}, Needs: two,
		Title: "A commit asked for after an abort is told aborted", Means: "A client believes that its work is done, and nothing is there.",
		Run:   func(r *Run) { r.asksBack(false) },
		Wrong: []wrong.Fault{repeats("answers what was asked last", flipOutcome)},
	},
	{
		ID: "LIFE-08", Clauses: []string{"C-PART-6", "C-CLI-5"}, Needs: []Need{NeedParticipants, NeedV5},
		Title: "The answer carries the next producer epoch (EndTxn v5)", Means: "The client's next transaction is fenced, or it has to initialise each time.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			was := s.Producers[r.A].Ref()
			got := r.Participant(s.End(true), r.A)
			r.Check(got.ProducerID == was.ProducerID && got.ProducerEpoch == was.ProducerEpoch+1, "the producer epoch to go on with is not the next one")
			s.Write("w", r.A, r.B)
			s.End(true)
			r.Sees(r.A, s.Topic, "v", "w")
		},
		Wrong: []wrong.Fault{endsWith("gives the old epoch to go on with", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].ProducerEpoch = req.Participants[i].ProducerEpoch
			}
		})},
	},
	{
		ID: "LIFE-09", Clauses: []string{"C-PART-6", "C-END-16"}, Needs: []Need{NeedParticipants, NeedV4},
		Title: "The answer carries the same producer epoch (EndTxn v4), or none", Means: "The client's next transaction is fenced.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			was := s.Producers[r.A].Ref()
			got := r.Participant(s.End(true), r.A)
			r.Check(got.ProducerID == -1 || got.ProducerID == was.ProducerID && got.ProducerEpoch == was.ProducerEpoch, "the producer epoch to go on with is not the same one")
			s.Write("w", r.A, r.B)
			s.End(true)
			r.Sees(r.A, s.Topic, "v", "w")
		},
		Wrong: []wrong.Fault{endsWith("gives the next epoch to go on with", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].ProducerEpoch++
			}
		})},
	},
	{
		ID: "LIFE-10", Clauses: []string{"C-END-17"}, Needs: []Need{NeedParticipants, NeedV4},
		Title: "One phase with EndTxn v4 gives no epoch to go on with", Means: "A late copy of the coordinator's EndTxn ends the client's next transaction.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			got := r.Participant(s.End(true), r.A)
			r.Check(got.ProducerID == -1, "a producer id to go on with after one phase on EndTxn v4")
		},
		Wrong: []wrong.Fault{endsWith("gives the epoch to go on with", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.Participants[0].ProducerID, resp.Participants[0].ProducerEpoch = req.Participants[0].ProducerID, req.Participants[0].ProducerEpoch
		})},
	},
	{
		ID: "LIFE-11", Clauses: []string{"C-VIS-1", "C-END-9"}, Needs: two,
		Title: "A participant called complete has accepted the outcome", Means: "Complete means nothing; a client goes on too early.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
			for _, p := range []*Participant{r.A, r.B} {
				// Empty is what kfake shows, which ends a transaction at once.
				got := r.State(p, s.ID).State
				r.Check(slices.Contains([]string{"PrepareCommit", "CompleteCommit", "Empty"}, got), "participant %s is called complete and says %s", p.Name, got)
			}
		},
		Wrong: []wrong.Fault{{Text: "calls a participant complete without having told it", Back: true, Hooks: proxy.Hooks{Request: func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 {
				resp := kmsg.NewPtrEndTxnResponse()
				resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
				x.Answer(resp)
			}
		}}}},
	},
	{
		ID: "LIFE-12", Clauses: []string{"C-END-10"}, Needs: links,
		Title: "One participant is asked to commit at once, in one phase", Means: "A transaction over one cluster pays for what it does not need.",
		Run: func(r *Run) {
			ends, s := r.Listen(r.A, nil), r.Open()
			s.Write("v", r.A)
			s.End(true)
			all := ends.All()
			r.Check(len(all) == 1 && all[0].Commit && all[0].ProducerID == s.Init1(r.A).ProducerID, "%d EndTxn were sent, want one commit", len(all))
		},
		Wrong: []wrong.Fault{wrong.Does("ends it twice", true, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 {
				_, _ = x.Ask(req)
			}
		})},
	},
	{
		ID: "LIFE-13", Clauses: []string{"C-VOTE-3", "C-PART-5"}, Needs: links,
		Title: "EndTxn has the version of the finalized transaction.version", Means: "The application's own end is fenced, and its client stuck (measured).",
		Run: func(r *Run) {
			a, b, s := r.Listen(r.A, nil), r.Listen(r.B, nil), r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			for p, e := range map[*Participant]*Ends{r.A: a, r.B: b} {
				got := e.First().Version
				r.Check(got == p.EndTxn || got < 5 && p.EndTxn < 5, "EndTxn version %d at a participant of version %d", got, p.EndTxn)
			}
		},
		Wrong: []wrong.Fault{wrong.Sends("chooses the version by ApiVersions", func(req *kmsg.EndTxnRequest) bool {
			if req.ProducerID < 0 {
				return false
			}
			req.Version = 9 - req.Version // 5 and 4
			return true
		})},
	},
	{
		ID: "LIFE-14", Clauses: []string{"C-RULE-2", "C-PART-8"}, Needs: links,
		Title: "Nothing but EndTxn with producer id and epoch ends a transaction", Means: "A late InitProducerId of the coordinator aborts a decided transaction.",
		Run: func(r *Run) {
			bad := make(chan string, 100)
			for _, p := range []*Participant{r.A, r.B} {
				p.OnRequest(r, func(x *proxy.Exchange) {
					switch x.Request.(type) {
					case *kmsg.InitProducerIDRequest, *wire.InitProducerIDRequestV6:
						bad <- "InitProducerId"
					}
				})
			}
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			s.Write("w", r.A, r.B)
			s.End(false)
			r.InitOK(r.InitRequest(s.ID, longEnough, r.A, r.B))
			select {
			case what := <-bad:
				r.Failf("the coordinator sends %s to a participant", what)
			default:
			}
		},
		Wrong: []wrong.Fault{wrong.Does("initialises producers of the id", true, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 {
				initialise := kmsg.NewPtrInitProducerIDRequest()
				initialise.Version, initialise.TransactionalID, initialise.TransactionTimeoutMillis = 4, &req.TransactionalID, 60_000
				_, _ = x.Ask(initialise)
			}
		})},
	},
	{
		ID: "LIFE-15", Clauses: []string{"C-END-13", "C-ATOM-6"}, Needs: links,
		Title: "At the deadline the answer says what is pending, and it completes by itself", Means: "A client waits for ever for a cluster that is away.",
		Run: func(r *Run) {
			release := make(chan struct{})
			r.Listen(r.B, func(_ int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				select {
				case <-release:
				default:
					x.Answer(refuse(kerr.CoordinatorLoadInProgress))
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			resp := r.Decision(s.Request(true))
			r.Answered(resp, nil, wire.OutcomeCommitted)
			r.Check(r.Participant(resp, r.B).State == wire.ParticipantPending, "participant eu is %s, want pending", stateName(r.Participant(resp, r.B).State))
			close(release)
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{endsWith("calls a pending participant complete", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].State = wire.ParticipantComplete
			}
		})},
	},
}

// asksBack ends a transaction and asks for the opposite.
func (r *Run) asksBack(commit bool) {
	s := r.Open()
	s.Write("v", r.A, r.B)
	req := s.Request(commit)
	first := r.Decide(req)
	r.Check(first.ErrorCode == 0, "EndGlobalTxn answered %s", answered(first))
	req.Committed = !commit
	r.Answered(r.Decide(req), nil, map[bool]int8{true: wire.OutcomeCommitted, false: wire.OutcomeAborted}[commit])
}

// Init1 is the name of the participant's present producer.
func (s *Session) Init1(p *Participant) wire.EndGlobalTxnRequestParticipant {
	return s.Producers[p].Ref()
}
