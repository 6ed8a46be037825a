package conformance

import (
	"slices"
	"strings"
	"time"

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
			ends, s := r.Ends(r.A, nil), r.Open()
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
			a, b, s := r.Ends(r.A, nil), r.Ends(r.B, nil), r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			for p, e := range map[*Participant]*ends{r.A: a, r.B: b} {
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
			r.Ends(r.B, func(_ int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				select {
				case <-release:
				default:
					x.Answer(refuse(kerr.CoordinatorLoadInProgress))
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			req.TimeoutMillis = 500
			resp := r.Ask(req)
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

var votes = []Case{
	{
		ID: "LIFE-40", Clauses: []string{"C-END-9"}, Needs: two,
		Title: "A participant that was not written to counts for nothing", Means: "An application that did not use one of its clusters cannot commit.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			s.Touch(r.B)
			resp := s.End(true)
			r.Check(r.Participant(resp, r.B).State == wire.ParticipantComplete, "the participant without records is %s", stateName(r.Participant(resp, r.B).State))
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{looks("takes an untouched participant for a lost one", func(s *kmsg.DescribeTransactionsResponseTransactionState) {
			if s.State == "Empty" || strings.HasPrefix(s.State, "Complete") {
				s.State = "Dead"
			}
		})},
	},
	{
		ID: "LIFE-41", Clauses: []string{"C-END-9"}, Needs: links,
		Title: "When nothing was written anywhere, commit is told and nothing sent", Means: "Empty transactions fail, or cost requests.",
		Run: func(r *Run) {
			a, b, s := r.Ends(r.A, nil), r.Ends(r.B, nil), r.Open()
			s.Touch(r.A)
			s.Touch(r.B)
			s.End(true)
			n := len(a.All()) + len(b.All())
			r.Check(n == 0, "%d EndTxn were sent for nothing", n)
			r.Becomes(s.ID, wire.StateCompleteCommit)
		},
		Wrong: []wrong.Fault{asked("aborts where there is nothing", flipCommit)},
	},
	{
		ID: "LIFE-42", Clauses: []string{"C-VOTE-4"}, Needs: two,
		Title: "Group offsets alone are part of the transaction", Means: "Offsets are lost: the input is read twice.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			group := s.Topic + "-group"
			s.Producers[r.B].Offset(group, s.Topic, 42)
			s.Touch(r.B)
			s.End(true)
			r.Until("the committed offset", func() (bool, string) {
				got, err := r.B.admin.FetchOffsets(r.ctx, group)
				if err != nil {
					return false, err.Error()
				}
				o, found := got.Lookup(s.Topic, 0)
				return found && o.At == 42, "not there"
			})
		},
		Wrong: []wrong.Fault{wrong.Stalling(looks("takes a participant with offsets only for an empty one", func(s *kmsg.DescribeTransactionsResponseTransactionState) {
			if s.State == "Ongoing" && len(s.Topics) == 1 && s.Topics[0].Topic == "__consumer_offsets" {
				s.State, s.Topics = "Empty", nil
			}
		}))},
	},
	{
		ID: "LIFE-43", Clauses: []string{"C-END-14", "C-END-9"}, Needs: two,
		Title: "A participant that was initialised again makes it abort, and the message names it", Means: "A part of the transaction is lost and the rest committed; or nobody knows why.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Producer(r.A, s.ID, NoTimeout) // somebody else's
			resp := r.Decide(req)
			r.Answered(resp, nil, wire.OutcomeAborted)
			r.Check(strings.Contains(text(resp.ErrorMessage), r.A.ID), "the message does not name the cluster: %q", text(resp.ErrorMessage))
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{
			endsWith("does not say why", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) { resp.ErrorMessage = nil }),
		},
	},
	{
		ID: "LIFE-44", Clauses: []string{"C-PART-1", "C-END-14"}, Needs: two,
		Title: "A transaction that its cluster would age out is refused at the vote", Means: "The cluster aborts a part after the decision to commit.",
		Run: func(r *Run) {
			s := r.openWithTimeout(r.A, 10*time.Minute)
			s.Write("v", r.A, r.B)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeAborted)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{looks("does not look at the timeout", func(s *kmsg.DescribeTransactionsResponseTransactionState) {
			s.TimeoutMillis = int32(NoTimeout.Milliseconds())
		})},
	},
	{
		ID: "LIFE-45", Clauses: []string{"C-VOTE-1"}, Needs: links,
		Title: "A transaction whose topics are hidden from the coordinator is refused at the vote", Means: "Committed is told, and a part is aborted later by the scan.",
		Run: func(r *Run) {
			r.A.OnAnswer(r, func(x *proxy.Exchange) {
				resp, ok := x.Response.(*kmsg.DescribeTransactionsResponse)
				if !ok {
					return
				}
				for i := range resp.TransactionStates {
					if r.ours(resp.TransactionStates[i].TransactionalID) {
						resp.TransactionStates[i].Topics = nil
					}
				}
				x.Changed()
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeAborted)
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{looks("takes no topics for nothing written", func(s *kmsg.DescribeTransactionsResponseTransactionState) {
			if len(s.Topics) == 0 {
				s.State = "Empty"
			}
		})},
	},
	{
		ID: "LIFE-46", Clauses: []string{"C-END-11"}, Needs: links,
		Title: "An abort is sent to every participant that is listed", Means: "A participant stays open, and its readers stand still.",
		Run: func(r *Run) {
			a, b, s := r.Ends(r.A, nil), r.Ends(r.B, nil), r.Open()
			s.Write("v", r.A, r.B)
			s.End(false)
			for _, e := range []*ends{a, b} {
				all := e.All()
				r.Check(len(all) > 0 && !all[0].Commit, "a listed participant got %d EndTxn(abort)", len(all))
			}
		},
		Wrong: []wrong.Fault{wrong.Does("does not tell participants of an abort", true, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 && !req.Commit {
				resp := kmsg.NewPtrEndTxnResponse()
				resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
				x.Answer(resp)
			}
		})},
	},
	{
		ID: "LIFE-47", Clauses: []string{"C-PART-7"}, Needs: two,
		Title: "An abort of what never was is plain", Means: "An abort loops for ever, or raises an alarm for nothing.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			s.Touch(r.B)
			resp := s.End(false)
			r.Check(r.Participant(resp, r.B).State == wire.ParticipantComplete, "the participant without records is %s", stateName(r.Participant(resp, r.B).State))
			s.Write("w", r.A, r.B)
			s.End(true)
			r.Sees(r.B, s.Topic, "w")
		},
		Wrong: []wrong.Fault{endsWith("calls it heuristic", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.Participants[1].State = wire.ParticipantHeuristicUnknown
		})},
	},
	{
		ID: "LIFE-48", Clauses: []string{"C-PART-7"}, Needs: two,
		Title: "An abort of an id that the participant does not know is plain", Means: "An abort loops for ever, or raises an alarm for nothing.",
		Run: func(r *Run) {
			id := r.ID()
			init := r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			req := wire.NewPtrEndGlobalTxnRequest()
			req.GlobalTransactionalID, req.GlobalEpoch, req.Sequence, req.TimeoutMillis = id, init.GlobalEpoch, init.Sequence, 2000
			req.Participants = []wire.EndGlobalTxnRequestParticipant{{ClusterID: r.A.ID, ProducerID: 987654}, {ClusterID: r.B.ID, ProducerID: 987654}}
			r.Answered(r.Decide(req), nil, wire.OutcomeAborted)
		},
		Wrong: []wrong.Fault{wrong.Stalling(takesFor("asks for ever", kerr.InvalidProducerIDMapping.Code, kerr.ConcurrentTransactions.Code)), endsWith("calls it heuristic", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.ErrorCode = wire.HeuristicOutcome.Code
		})},
	},
	{
		ID: "LIFE-49", Clauses: []string{"C-VOTE-5", "C-ATOM-3", "C-RULE-1", "C-REC-1"}, Needs: []Need{NeedParticipants, NeedLinks, NeedHome},
		Title: "Before the first EndTxn the log holds the decision, whole", Means: "A crash between the two EndTxn leaves half a commit, and nobody who knows.",
		Run: func(r *Run) {
			seen := make(chan *logEntry, 100)
			s := r.Open()
			partition := r.partitionOf(s.ID)
			wait := make(chan struct{})
			first := make(chan struct{}, 100)
			r.Ends(r.A, func(int, *proxy.Exchange, *kmsg.EndTxnRequest) { first <- struct{}{}; <-wait })
			r.Ends(r.B, func(int, *proxy.Exchange, *kmsg.EndTxnRequest) { first <- struct{}{}; <-wait })
			s.Write("v", r.A, r.B)
			done := r.Go(func() { s.End(true) })
			select {
			case <-first:
				seen <- r.logged(partition, s.ID)
			case <-r.ctx.Done():
				close(wait)
				r.Failf("no EndTxn came")
			}
			close(wait)
			done()
			got := <-seen
			r.Check(got != nil && got.logValue != nil && got.State == logPrepareCommit && got.Sequence == s.Sequence-1, "the last record of the id is not the decision")
			r.Check(len(got.Participants) == 2, "the decision names %d participants", len(got.Participants))
			for _, p := range got.Participants {
				r.Check(p.AuditTopic == s.Topic && p.StartMs > 0 && p.EndTxn >= 1, "the decision does not say where to audit, since when, or how to end")
			}
		},
		Wrong: []wrong.Fault{{Text: "ends a participant before it has decided", Back: true, Hooks: proxy.Hooks{Answer: endsEarly}}},
	},
}

// endsEarly commits what a look finds open.
func endsEarly(x *proxy.Exchange) {
	resp, ok := x.Response.(*kmsg.DescribeTransactionsResponse)
	if !ok {
		return
	}
	for i := range resp.TransactionStates {
		if s := &resp.TransactionStates[i]; x.Scope(s.TransactionalID) && s.State == "Ongoing" {
			end := kmsg.NewPtrEndTxnRequest()
			end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = 4, s.TransactionalID, s.ProducerID, s.ProducerEpoch, true
			_, _ = x.Ask(end)
		}
	}
}
