package conformance

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// heuristicCases are about participants that end against the decision, and about
// answers that must not be taken for that.
var heuristicCases = slices.Concat(torn, codes())

var torn = []Case{
	{
		ID: "HEUR-01", Clauses: []string{"C-ATOM-1", "C-ATOM-2"}, Needs: links,
		Title: "A participant that somebody aborts after the decision is reported as heuristic", Means: "A torn transaction is told as a success.",
		Run: func(r *Run) {
			_, resp := r.tear()
			a, b := r.Participant(resp, r.A).State, r.Participant(resp, r.B).State
			r.Check(a == wire.ParticipantHeuristicAbort && b == wire.ParticipantComplete, "the participants are %s and %s, want heuristic abort and complete", stateName(a), stateName(b))
		},
		Wrong: []wrong.Fault{
			hides(wire.HeuristicOutcome),
			endsWith("calls every participant complete", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
				for i := range resp.Participants {
					resp.Participants[i].State = wire.ParticipantComplete
				}
			}),
		},
	},
	{
		ID: "HEUR-02", Clauses: []string{"C-ATOM-4", "C-ATOM-1"}, Needs: links,
		Title: "Repeats are told the same, and readers find it so", Means: "A torn transaction is told once and then forgotten.",
		Run: func(r *Run) {
			s, _ := r.tear()
			for range 2 {
				r.Answered(r.Decide(s.Request(true)), wire.HeuristicOutcome, wire.OutcomeCommitted)
			}
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{repeats("tells it once", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) { resp.ErrorCode = 0 })},
	},
	{
		ID: "HEUR-03", Clauses: []string{"C-ATOM-1"}, Needs: links,
		Title: "It is described and listed as heuristic", Means: "Operators do not find what is torn.",
		Run: func(r *Run) {
			s, _ := r.tear()
			d := r.Describe(s.ID)
			i := slices.IndexFunc(d.Participants, func(p wire.DescribeGlobalTransactionsResponseGlobalTransactionParticipant) bool {
				return p.ClusterID == r.A.ID && p.State == wire.ParticipantHeuristicAbort
			})
			r.Check(d.State == wire.StateCompleteCommit && i >= 0, "it is described as %s, without the heuristic participant", d.State)
			r.Check(text(d.Participants[i].Message) != "", "nothing is said of what was seen")
			req := wire.NewPtrListGlobalTransactionsRequest()
			req.HeuristicOnly = true
			got := r.List(req)
			r.Check(len(got) == 1 && got[0].GlobalTransactionalID == s.ID && got[0].Heuristic, "the list of what is torn has %d ids of this case", len(got))
		},
		Wrong: []wrong.Fault{lists("lists nothing as heuristic", func(req *wire.ListGlobalTransactionsRequest) {
			req.HeuristicOnly, req.StateFilters = false, []string{wire.StateDead}
		})},
	},
	{
		ID: "HEUR-04", Clauses: []string{"C-INIT-6"}, Needs: links,
		Title: "A torn id gets no new session", Means: "An application writes on over torn data.",
		Run: func(r *Run) {
			s, _ := r.tear()
			r.Refused("InitGlobalTxn", r.Init(r.InitRequest(s.ID, longEnough, r.A, r.B)).ErrorCode, wire.HeuristicOutcome)
			r.Refused("the repeat of InitGlobalTxn", r.Init(s.Init).ErrorCode, wire.HeuristicOutcome)
		},
		Wrong: []wrong.Fault{wrong.Answers("grants it", func(_ *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) bool {
			resp.ErrorCode, resp.GlobalEpoch, resp.Sequence = 0, 1, max(resp.Sequence, 1)
			return true
		})},
	},
	{
		ID: "HEUR-05", Clauses: []string{"C-END-8"}, Needs: links,
		Title: "A torn id gets no next transaction", Means: "An application writes on over torn data.",
		Run: func(r *Run) {
			s, _ := r.tear()
			req := s.Request(true)
			req.Sequence++
			r.Answered(r.Ask(req), wire.HeuristicOutcome, wire.OutcomeUnknown)
		},
		Wrong: []wrong.Fault{wrong.Answers("begins it", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			if resp.ErrorCode != wire.HeuristicOutcome.Code || resp.Outcome != 0 {
				return false
			}
			resp.ErrorCode = 0
			return true
		})},
	},
	{
		ID: "HEUR-06", Clauses: []string{"C-RES-3"}, Needs: links,
		Title: "Forgotten by an operator the id goes on, and the outcome stays", Means: "A torn id is lost for ever, or its outcome changes.",
		Run: func(r *Run) {
			s, _ := r.tear()
			resp := r.Resolve(s.ID, wire.ResolveForget, nil)
			r.Refused("ResolveGlobalTransaction(forget)", resp.ErrorCode, nil)
			r.Check(resp.State == wire.StateCompleteCommit, "the state after it is %s", resp.State)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
			n := r.OpenWith(s.ID, longEnough, r.A, r.B)
			n.Write("w", r.A, r.B)
			n.End(true)
			r.Sees(r.A, n.Topic, "w")
		},
		Wrong: []wrong.Fault{wrong.Does("answers ok and does nothing", false, func(x *proxy.Exchange) {
			if _, ok := x.Request.(*wire.ResolveGlobalTransactionRequest); ok {
				resp := wire.NewPtrResolveGlobalTransactionResponse()
				resp.State = wire.StateCompleteCommit
				x.Answer(resp)
			}
		})},
	},
	{
		ID: "HEUR-07", Clauses: []string{"C-ATOM-2", "C-PART-3"}, Needs: []Need{NeedParticipants, NeedLinks, NeedV5, NeedHistory},
		Title: "A participant that somebody commits after an abort was decided is a heuristic commit", Means: "Aborted is told, and readers see a half of it.",
		Run: func(r *Run) {
			hold := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Answered(r.Decision(s.Request(false)), nil, wire.OutcomeAborted)
			hold.reached()
			outsider := *s.Producers[r.A]
			r.Check(outsider.End(true) == 0, "the outsider could not commit")
			hold.now()
			resp := r.Decide(s.Request(false))
			r.Answered(resp, wire.HeuristicOutcome, wire.OutcomeAborted)
			r.Check(r.Participant(resp, r.A).State == wire.ParticipantHeuristicCommit, "the participant is %s", stateName(r.Participant(resp, r.A).State))
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{hides(wire.HeuristicOutcome)},
	},
	{
		ID: "HEUR-08", Clauses: []string{"C-PART-3", "C-PART-6"}, Needs: links,
		Title: "A participant that somebody ended as decided is complete, and no alarm", Means: "Operators are called for nothing.",
		Run: func(r *Run) {
			hold := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Answered(r.Decision(s.Request(true)), nil, wire.OutcomeCommitted)
			hold.reached()
			outsider := *s.Producers[r.A]
			r.Check(outsider.End(true) == 0, "the outsider could not commit")
			hold.now()
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{endsWith("takes it for heuristic", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			if resp.Participants[0].State == wire.ParticipantComplete {
				resp.ErrorCode = wire.HeuristicOutcome.Code
			}
		})},
	},
	{
		ID: "HEUR-09", Clauses: []string{"C-RULE-5", "C-PART-3"}, Needs: []Need{NeedParticipants, NeedLinks, NeedHistory},
		Title: "With one participant its own abort is the outcome", Means: "Committed is told of what is not there.",
		Run: func(r *Run) {
			hold := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A)
			req := s.Request(true)
			told := r.Go(func() { r.Answered(r.Decide(req), nil, wire.OutcomeAborted) })
			hold.reached()
			outsider := *s.Producers[r.A]
			r.Check(outsider.End(false) == 0, "the outsider could not abort")
			hold.now()
			told()
			r.Sees(r.A, s.Topic)
		},
		Wrong: []wrong.Fault{endsWith("answers what was asked", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.Outcome = wire.OutcomeCommitted
		})},
	},
	{
		ID: "HEUR-10", Clauses: []string{"C-END-18", "C-ATOM-5"}, Needs: links,
		Title: "When nobody can tell how the only participant ended, no outcome is told, and the id goes on", Means: "A guess is told, or an id stands still for nothing.",
		Run: func(r *Run) {
			hold := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A)
			req := s.Request(true)
			told := r.Go(func() {
				resp := r.Decide(req)
				r.Answered(resp, wire.GlobalTransactionTooOld, wire.OutcomeUnknown)
				r.Check(r.Participant(resp, r.A).State == wire.ParticipantHeuristicUnknown, "the participant is %s", stateName(r.Participant(resp, r.A).State))
			})
			hold.reached()
			r.Producer(r.A, s.ID, NoTimeout)
			r.Producer(r.A, s.ID, NoTimeout)
			hold.now()
			told()
			r.OpenWith(s.ID, longEnough, r.A, r.B)
		},
		Wrong: []wrong.Fault{wrong.Answers("presumes abort", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			if resp.ErrorCode == 0 {
				return false
			}
			resp.ErrorCode, resp.Outcome = 0, wire.OutcomeAborted
			return true
		})},
	},
	{
		ID: "HEUR-11", Clauses: []string{"C-RES-4", "C-ATOM-6"}, Needs: links,
		Title: "A cluster that an operator gives up is heuristic unknown, and the decision stays", Means: "An id is blocked for ever by a cluster that is gone, or its decision is lost.",
		Run: func(r *Run) {
			s, release := r.pending()
			scanned := r.scans(r.B, 1)
			// A scan that saw it open would take the cluster for back again.
			r.B.OnAnswer(r, func(x *proxy.Exchange) {
				x.Scope = r.ours
				unseen(x)
			})
			r.awaits("the end of the scan that was under way", scanned)
			r.Refused("ResolveGlobalTransaction(give up)", r.Resolve(s.ID, wire.ResolveGiveUp, &r.B.ID).ErrorCode, nil)
			resp := r.Decide(s.Request(true))
			r.Answered(resp, wire.HeuristicOutcome, wire.OutcomeCommitted)
			r.Check(r.Participant(resp, r.B).State == wire.ParticipantHeuristicUnknown, "the participant is %s", stateName(r.Participant(resp, r.B).State))
			r.Refused("InitGlobalTxn", r.Init(r.InitRequest(s.ID, longEnough, r.A, r.B)).ErrorCode, wire.HeuristicOutcome)
			release()
		},
		Wrong: []wrong.Fault{hides(wire.HeuristicOutcome)},
	},
	{
		ID: "HEUR-12", Clauses: []string{"C-RES-4"}, Needs: []Need{NeedParticipants, NeedLinks, NeedQuickScan},
		Title: "If it comes back before that is forgotten, a decided commit is told to it after all", Means: "A commit is lost because somebody was impatient.",
		Run: func(r *Run) {
			s, release := r.pending()
			r.Refused("ResolveGlobalTransaction(give up)", r.Resolve(s.ID, wire.ResolveGiveUp, &r.B.ID).ErrorCode, nil)
			// A scan has seen it open, and it is being told again.
			r.Becomes(s.ID, wire.StatePrepareCommit)
			release()
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{endsWith("leaves it torn", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.ErrorCode = wire.HeuristicOutcome.Code
		})},
	},
	{
		ID: "HEUR-13", Clauses: []string{"C-RES-2"}, Needs: links,
		Title: "A retry by an operator asks what is pending", Means: "An operator's command has no effect.",
		Run: func(r *Run) {
			s, release := r.pending()
			r.Refused("ResolveGlobalTransaction(retry)", r.Resolve(s.ID, wire.ResolveRetry, nil).ErrorCode, nil)
			release()
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Refused("ResolveGlobalTransaction(retry) when all is done", r.Resolve(s.ID, wire.ResolveRetry, nil).ErrorCode, kerr.InvalidTxnState)
		},
		Wrong: []wrong.Fault{hides(kerr.InvalidTxnState)},
	},
	{
		ID: "HEUR-14", Clauses: []string{"C-MET-1"}, Needs: []Need{NeedParticipants, NeedLinks, NeedMetrics}, Alone: true,
		Title: "What is torn is counted, until it is forgotten", Means: "No alarm fires for torn data.",
		Run: func(r *Run) {
			// What other cases have left may be found torn meanwhile.
			atLeast := func(name string, want float64) float64 {
				got := r.metric(name)
				if got < want {
					r.Failf("%s is %v, want %v at least", name, got, want)
				}
				return got
			}
			total, now := r.metric("gtc_heuristic_outcomes_total"), r.metric("gtc_heuristic_outcomes")
			s, _ := r.tear()
			if _, found := r.Listed(s.ID); !found {
				r.Failf("the torn id is not listed")
			}
			atLeast("gtc_heuristic_outcomes_total", total+1)
			torn := atLeast("gtc_heuristic_outcomes", now+1)
			r.Refused("ResolveGlobalTransaction(forget)", r.Resolve(s.ID, wire.ResolveForget, nil).ErrorCode, nil)
			r.Until("gtc_heuristic_outcomes", func() (bool, string) {
				return r.metric("gtc_heuristic_outcomes") < torn, "it does not go down again"
			})
		},
		Wrong: []wrong.Fault{takesForDone("does not notice it"), wrong.Stalling(wrong.Does("forgets nothing", false, func(x *proxy.Exchange) {
			if _, ok := x.Request.(*wire.ResolveGlobalTransactionRequest); ok {
				x.Answer(wire.NewPtrResolveGlobalTransactionResponse())
			}
		}))},
	},
	{
		ID: "HEUR-15", Clauses: []string{"C-MET-2"}, Needs: []Need{NeedParticipants, NeedLinks, NeedMetrics}, Alone: true,
		Title: "What is pending for the session's timeout is counted as in doubt", Means: "No alarm fires while readers stand still.",
		Run: func(r *Run) {
			inDoubt := func() float64 { return r.metric(`gtc_transactions_open{phase="in_doubt"}`) }
			was := inDoubt()
			h := r.holdEnds(r.B)
			s := r.decidedInTime()
			r.Until("the gauge of what is in doubt", func() (bool, string) { return inDoubt() > was, "it does not go up" })
			h.now()
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Until("the gauge of what is in doubt", func() (bool, string) { return inDoubt() == was, "it does not go down" })
		},
		Wrong: []wrong.Fault{wrong.Stalling(swallows("takes what it did not tell for complete", func(req *kmsg.EndTxnRequest) bool { return req.Commit }))},
	},
}

// tear is a session whose commit was decided, complete on B, and aborted on A by
// an outsider, and the answer that says so.
func (r *Run) tear() (*Session, *wire.EndGlobalTxnResponse) {
	hold := r.holdEnds(r.A)
	s := r.Open()
	s.Write("v", r.A, r.B)
	r.Answered(r.Decision(s.Request(true)), nil, wire.OutcomeCommitted)
	hold.reached()
	r.Note("somebody initialises the id at participant " + r.A.Name)
	r.Producer(r.A, s.ID, NoTimeout)
	hold.now()
	resp := r.Decide(s.Request(true))
	r.Answered(resp, wire.HeuristicOutcome, wire.OutcomeCommitted)
	return s, resp
}

// metric is the sum of a metric's samples; with labels, of those that have them.
func (r *Run) metric(name string) (sum float64) {
	req, err := http.NewRequestWithContext(r.ctx, http.MethodGet, r.s.target.Metrics, http.NoBody)
	r.Must(err, "asking for the metrics")
	resp, err := http.DefaultClient.Do(req)
	r.Must(err, "asking for the metrics")
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	r.Must(err, "asking for the metrics")
	for _, m := range regexp.MustCompile(`(?m)^`+regexp.QuoteMeta(name)+`(?:\{[^}]*\})? (\S+)$`).FindAllSubmatch(body, -1) {
		v, err := strconv.ParseFloat(string(m[1]), 64)
		r.Must(err, "reading a metric")
		sum += v
	}
	return sum
}

// codes are cases about single answers to EndTxn: the answer comes twice in the
// participant's place, and then the participant itself is heard.
func codes() (all []Case) {
	n := 30
	for _, code := range []*kerr.Error{
		kerr.ConcurrentTransactions, kerr.NotCoordinator, kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.RequestTimedOut,
		kerr.UnknownServerError, kerr.TransactionalIDAuthorizationFailed, kerr.ClusterAuthorizationFailed, kerr.UnsupportedVersion, kerr.InvalidRequest,
		kerr.KafkaStorageError,
	} {
		all = append(all, answeredTwice(n, code, "C-PART-4", "ends nothing: it is asked again", "A participant is left open, or called heuristic, because a broker was busy."))
		n++
	}
	for _, code := range []*kerr.Error{
		kerr.InvalidTxnState, kerr.ProducerFenced, kerr.InvalidProducerEpoch, kerr.InvalidProducerIDMapping, kerr.UnknownProducerID, kerr.TransactionalIDNotFound,
	} {
		all = append(all, answeredTwice(n, code, "C-PART-2", "is looked into, and not believed", "A broker that answers from a stale cache turns a commit into an alarm, or into nothing."))
		n++
	}
	return all
}

func answeredTwice(n int, code *kerr.Error, clause, what, means string) Case {
	return Case{
		ID: fmt.Sprintf("HEUR-%d", n), Clauses: []string{clause, "C-PART-3"}, Needs: links,
		Title: code.Message + " from EndTxn " + what, Means: means,
		Run: func(r *Run) {
			var conns []uint64
			ends := r.Listen(r.A, func(i int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) {
				if i <= 2 {
					conns = append(conns, x.Conn)
					x.Answer(refuse(code))
				}
			})
			s := r.Open()
			s.Write("v", r.A, r.B)
			resp := r.Decide(s.Request(true))
			r.Answered(resp, nil, wire.OutcomeCommitted)
			r.Check(r.State(r.A, s.ID).State != "Ongoing", "the participant is called %s, and its transaction is open", stateName(r.Participant(resp, r.A).State))
			r.Sees(r.A, s.Topic, "v")
			got := len(ends.All())
			r.Check(got >= 3, "%d EndTxn were sent, and two of them refused", got)
			if clause == "C-PART-2" {
				r.Check(conns[0] != conns[1], "the second question went over the same connection")
			}
		},
		Wrong: []wrong.Fault{takesFor("takes it for done", code.Code, 0)},
	}
}
