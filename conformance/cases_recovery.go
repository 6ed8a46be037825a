package conformance

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var (
	kills     = []Need{NeedParticipants, NeedKill}
	killLinks = []Need{NeedParticipants, NeedKill, NeedLinks}
)

// recoveryCases are about coordinators that die and come back, and about what
// the log says to the next one.
var recoveryCases = slices.Concat(deaths, logCases)

var deaths = []Case{
	{
		ID: "RECO-01", Clauses: []string{"C-RCV-1", "C-ATOM-6", "C-ATOM-3"}, Needs: killLinks, Alone: true,
		Title: "A decided commit is carried out by the next coordinator", Means: "A crash between two participants tears a transaction.",
		Run: func(r *Run) {
			s, release := r.pending()
			r.crash(release)
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{givesUp()},
	},
	{
		ID: "RECO-02", Clauses: []string{"C-RCV-1", "C-STATE-2"}, Needs: killLinks, Alone: true,
		Title: "A commit whose votes were lost with the coordinator is asked for again, and done", Means: "A client never learns the outcome, or learns a wrong one.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			votes := r.holdVotes(r.B)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			votes.reached()
			r.crash(votes.now)
			told()
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{endsWith("presumes abort of what it does not remember", flipOutcome)},
	},
	{
		ID: "RECO-03", Clauses: []string{"C-ATOM-4", "C-REC-1"}, Needs: kills, Alone: true,
		Title: "An outcome survives the coordinator", Means: "A client that asks after a crash does the work again.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			req := s.Request(true)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			r.crash(nil)
			r.Answered(r.Decide(req), nil, wire.OutcomeCommitted)
			r.Becomes(s.ID, wire.StateCompleteCommit)
		},
		Wrong: []wrong.Fault{repeats("forgets it", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.ErrorCode, resp.Outcome = wire.GlobalTransactionTooOld.Code, wire.OutcomeUnknown
		})},
	},
	{
		ID: "RECO-04", Clauses: []string{"C-INIT-1", "C-STATE-1"}, Needs: kills, Alone: true,
		Title: "A session survives the coordinator", Means: "A crash of the coordinator fences every client.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.crash(nil)
			s.End(true)
			r.Check(r.InitOK(s.Init).GlobalEpoch == s.Epoch, "the session has another epoch")
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{recodes(nil, kerr.ProducerFenced)},
	},
	{
		ID: "RECO-05", Clauses: []string{"C-RCV-1", "C-SCAN-2"}, Needs: []Need{NeedParticipants, NeedKill, NeedLinks, NeedQuickScan}, Alone: true,
		Title: "What was not decided is not ended by a recovery", Means: "Every restart of the coordinator aborts what is healthy.",
		Run: func(r *Run) {
			ends := r.Listen(r.A, nil)
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.crash(nil)
			r.NeverBefore("a healthy transaction is ended", r.scans(r.A, 4), func() (bool, string) { return len(ends.All()) > 0, "an EndTxn came" })
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{{Text: "aborts whatever is open", Back: true, Hooks: proxy.Hooks{Answer: abortsOpen}}},
	},
	{
		ID: "RECO-06", Clauses: []string{"C-RCV-1", "C-END-11"}, Needs: killLinks, Alone: true,
		Title: "A decided abort is carried out by the next coordinator", Means: "Readers of a cluster stand still after a crash.",
		Run: func(r *Run) {
			ends := r.holdEnds(r.B)
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Answered(r.Decision(s.Request(false)), nil, wire.OutcomeAborted)
			r.crash(ends.now)
			r.Becomes(s.ID, wire.StateCompleteAbort)
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{asked("commits where abort was asked", flipCommit)},
	},
	{
		ID: "RECO-07", Clauses: []string{"C-RULE-5", "C-END-10"}, Needs: killLinks, Alone: true,
		Title: "A commit in one phase that was lost with the coordinator is done once, and told", Means: "A commit is lost, or told as aborted.",
		Run: func(r *Run) {
			ends := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A)
			told := r.Go(func() { r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted) })
			ends.reached()
			r.crash(ends.now)
			told()
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{asked("aborts what it does not remember", flipCommit)},
	},
	{
		ID: "RECO-08", Clauses: []string{"C-ATOM-1", "C-INIT-6", "C-MET-1"}, Needs: killLinks, Alone: true,
		Title: "What is torn stays so over a crash", Means: "A restart hides torn data.",
		Run: func(r *Run) {
			s, _ := r.tear()
			r.crash(nil)
			r.Answered(r.Decide(s.Request(true)), wire.HeuristicOutcome, wire.OutcomeCommitted)
			r.Refused("InitGlobalTxn", r.Init(r.InitRequest(s.ID, longEnough, r.A, r.B)).ErrorCode, wire.HeuristicOutcome)
			if r.s.target.Metrics != "" {
				r.Check(r.metric("gtc_heuristic_outcomes") >= 1, "the gauge of torn ids is 0 after a restart")
			}
		},
		Wrong: []wrong.Fault{repeats("forgets it", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) { resp.ErrorCode = 0 })},
	},
	{
		ID: "RECO-09", Clauses: []string{"C-LIVE-1", "C-SCAN-2"}, Needs: []Need{NeedParticipants, NeedKill, NeedQuickScan}, Alone: true,
		Title: "What is left open when client and coordinator die is aborted by the next one", Means: "Readers stand still for ever.",
		Run: func(r *Run) {
			s := r.leaves(r.A, r.B)
			r.crash(nil)
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Stalling(overlooks("never looks"))},
	},
	{
		ID: "RECO-10", Clauses: []string{"C-END-17"}, Needs: []Need{NeedParticipants, NeedKill, NeedLinks, NeedV4}, Alone: true,
		Title: "After a recovery the answer gives no epoch to go on with on transaction.version 1", Means: "The dead coordinator's EndTxn ends the client's next transaction.",
		Run: func(r *Run) {
			ends := r.holdEnds(r.A)
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Answered(r.Decision(s.Request(true)), nil, wire.OutcomeCommitted)
			r.crash(ends.now)
			resp := r.Decide(s.Request(true))
			r.Answered(resp, nil, wire.OutcomeCommitted)
			r.Check(r.Participant(resp, r.A).ProducerID == -1, "a producer id to go on with after a recovery")
		},
		Wrong: []wrong.Fault{endsWith("gives the epoch to go on with", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].ProducerID, resp.Participants[i].ProducerEpoch = req.Participants[i].ProducerID, req.Participants[i].ProducerEpoch
			}
		})},
	},
	{
		ID: "RECO-11", Clauses: []string{"C-ROLE-4", "C-LOG-1"}, Needs: kills, Alone: true,
		Title: "A coordinator that has not read its log yet does not call an id unknown", Means: "A client gives its session up because the coordinator was starting.",
		Run: func(r *Run) {
			s := r.Open()
			started := make(chan struct{})
			began := r.Go(func() { r.crash(nil); close(started) })
			nodes := list(r.s.target.Bootstrap)
			var asked, answers int
			r.Until("an answer after the start", func() (bool, string) {
				select {
				case <-started:
				default:
				}
				asked++ // the id may be any node's after the start
				req := wire.NewPtrDescribeGlobalTransactionsRequest()
				req.GlobalTransactionalIDs = []string{s.ID}
				resp, err := r.front(nodes[asked%len(nodes)], "", req)
				if err != nil {
					return false, err.Error()
				}
				code := resp.(*wire.DescribeGlobalTransactionsResponse).GlobalTransactions[0].ErrorCode
				if slices.Contains(again, code) {
					return false, codeName(code)
				}
				r.Refused("DescribeGlobalTransactions during the start", code, nil)
				answers++
				return answers > 20, "too few answers"
			})
			began()
		},
		Wrong: []wrong.Fault{describesLate()},
	},
	{
		ID: "RECO-12", Clauses: []string{"C-PART-6"}, Needs: []Need{NeedParticipants, NeedKill, NeedV5}, Alone: true,
		Title: "A client goes on with the epoch of an answer over a crash of the coordinator", Means: "Every crash of the coordinator makes all clients initialise again.",
		Run: func(r *Run) {
			s := r.Open()
			for _, v := range []string{"1", "2", "3"} {
				s.Write(v, r.A, r.B)
				s.End(true)
				if v == "1" {
					r.crash(nil)
				}
			}
			r.Sees(r.A, s.Topic, "1", "2", "3")
			r.Sees(r.B, s.Topic, "1", "2", "3")
		},
		Wrong: []wrong.Fault{endsWith("gives the old epoch to go on with", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].ProducerEpoch = req.Participants[i].ProducerEpoch
			}
		})},
	},
	{
		ID: "RECO-13", Clauses: []string{"C-ATOM-4", "C-STATE-5"}, Needs: []Need{NeedParticipants, NeedPause, NeedLinks}, Alone: true,
		Title: "A coordinator that stood still goes on, and its client learns the outcome", Means: "A pause of a machine loses an outcome.",
		Run: func(r *Run) {
			s, release := r.pending()
			r.eachNode("pausing a node", func(n NodeTarget) Action { return n.Pause })
			time.Sleep(500 * time.Millisecond)
			r.eachNode("resuming a node", func(n NodeTarget) Action { return n.Resume })
			release()
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{givesUp()},
	},
	{
		ID: "RECO-14", Clauses: []string{"C-LOG-2", "C-ATOM-4"}, Needs: []Need{NeedParticipants, NeedPause, NeedNodes}, Alone: true,
		Title: "Another node takes over from one that stands still, and that one is fenced", Means: "Two coordinators decide about one id.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			owner, err := r.route(s.ID)
			r.Must(err, "finding the coordinator")
			i := slices.Index(r.s.target.bootstraps(), owner)
			if i < 0 {
				r.NotApplicable("the coordinator's address is none of the nodes' that are named")
			}
			node := r.s.target.Nodes[i]
			r.Must(node.Pause(r.ctx), "pausing the coordinator")
			resume := sync.OnceFunc(func() { _ = node.Resume(context.WithoutCancel(r.ctx)) })
			r.later(resume)
			delete(r.routes, s.ID)
			r.skip = owner
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeCommitted)
			resume()
			r.Until("the one that stood still saying so", func() (bool, string) {
				resp, err := r.front(owner, "", s.Request(false))
				if err != nil {
					return false, err.Error()
				}
				code := codeOf(resp)
				r.Check(code != 0 || resp.(*wire.EndGlobalTxnResponse).Outcome != wire.OutcomeAborted, "the one that stood still says aborted")
				return slices.Contains(again, code), codeName(code)
			})
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{asked("aborts where commit was asked", flipCommit)},
	},
}

// crash kills all nodes and starts them again, with something between.
func (r *Run) crash(between func()) {
	r.eachNode("killing a node", func(n NodeTarget) Action { return n.Kill })
	if between != nil {
		between()
	}
	r.eachNode("starting a node", func(n NodeTarget) Action { return n.Start })
}

// eachNode does not stop half-way when the case's time is over: what is killed or
// frozen then is so for all later cases.
func (r *Run) eachNode(doing string, what func(NodeTarget) Action) {
	r.Note(doing)
	for _, n := range r.s.target.Nodes {
		r.Must(what(n)(context.WithoutCancel(r.ctx)), doing)
	}
}

// describesLate does not know an id at the first answer about it.
func describesLate() wrong.Fault {
	var mu sync.Mutex
	seen := map[string]bool{}
	return describes("knows nothing at first", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
		mu.Lock()
		defer mu.Unlock()
		if !seen[d.GlobalTransactionalID] {
			seen[d.GlobalTransactionalID] = true
			d.ErrorCode = kerr.TransactionalIDNotFound.Code
		}
	})
}
