package conformance

import (
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var (
	scans     = []Need{NeedParticipants, NeedQuickScan}
	scanLinks = []Need{NeedParticipants, NeedQuickScan, NeedLinks}
)

// short is a timeout that a test waits for, long one whose end a target must
// wait for on a machine that is busy, too.
const (
	short = 500 * time.Millisecond
	long  = 3 * time.Second
)

// timeoutCases are about what nobody asks about any more.
var timeoutCases = []Case{
	{
		ID: "TIME-01", Clauses: []string{"C-LIVE-1", "C-SCAN-3"}, Needs: scans,
		Title: "What a dead client has left open is aborted after its timeout, and readers go on", Means: "A dead client stops the readers of its topics for ever.",
		Run: func(r *Run) {
			s := r.abandoned(r.A, r.B)
			d := r.Describe(s.ID)
			r.Check(d.SessionEnded && text(d.Reason) != "" && d.Sequence == s.Sequence, "the session is not recorded as ended with a reason, or under another sequence")
			r.Check(len(d.Participants) >= 1, "nothing of what was open is named")
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Stalling(overlooks("never looks"))},
	},
	{
		ID: "TIME-02", Clauses: []string{"C-END-6", "C-RULE-3"}, Needs: scans,
		Title: "A commit that comes after the timeout is told aborted", Means: "A slow client's second half is committed, and the first was aborted.",
		Run: func(r *Run) {
			s := r.abandoned(r.A, r.B)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeAborted)
			r.Sees(r.A, s.Topic)
		},
		Wrong: []wrong.Fault{endsWith("answers committed", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.Outcome = wire.OutcomeCommitted
		})},
	},
	{
		ID: "TIME-03", Clauses: []string{"C-END-6"}, Needs: scans,
		Title: "So is every later one of that session", Means: "A slow client goes on under a session that has ended.",
		Run: func(r *Run) {
			s := r.abandoned(r.A, r.B)
			req := s.Request(true)
			req.Sequence += 2
			r.Answered(r.Decide(req), nil, wire.OutcomeAborted)
		},
		Wrong: []wrong.Fault{endsWith("answers committed", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.Outcome = wire.OutcomeCommitted
		})},
	},
	{
		ID: "TIME-04", Clauses: []string{"C-END-6", "C-RULE-5"}, Needs: scans,
		Title: "But one that names a single other participant is fenced, and not told aborted", Means: "Aborted is told of what an earlier coordinator may have committed in one phase.",
		Run: func(r *Run) {
			s := r.abandoned(r.A)
			s.written = []*Participant{r.B}
			r.Answered(r.Ask(s.Request(true)), kerr.ProducerFenced, wire.OutcomeUnknown)
		},
		Wrong: []wrong.Fault{wrong.Answers("presumes abort", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			resp.ErrorCode, resp.Outcome = 0, wire.OutcomeAborted
			return true
		})},
	},
	{
		ID: "TIME-05", Clauses: []string{"C-INIT-4"}, Needs: scans,
		Title: "The instance of a session that has timed out is fenced", Means: "A slow client goes on as if nothing had happened.",
		Run: func(r *Run) {
			s := r.abandoned(r.A, r.B)
			r.Refused("InitGlobalTxn of the same instance", r.Init(s.Init).ErrorCode, kerr.ProducerFenced)
		},
		Wrong: []wrong.Fault{hides(kerr.ProducerFenced)},
	},
	{
		ID: "TIME-06", Clauses: []string{"C-END-6"}, Needs: scans,
		Title: "A new instance goes on", Means: "An id is lost after one timeout.",
		Run: func(r *Run) {
			s := r.abandoned(r.A, r.B)
			n := r.OpenWith(s.ID, longEnough, r.A, r.B)
			r.Check(n.Epoch == s.Epoch+1 && n.Sequence == s.Sequence+1, "epoch or sequence are not the next ones")
			n.Write("w", r.A, r.B)
			n.End(true)
			r.Sees(r.B, n.Topic, "w")
		},
		Wrong: []wrong.Fault{inits("uses the sequence of the timeout again", func(_ *wire.InitGlobalTxnRequest, resp *wire.InitGlobalTxnResponse) {
			if resp.GlobalEpoch > 1 {
				resp.Sequence--
			}
		})},
	},
	{
		ID: "TIME-07", Clauses: []string{"C-SCAN-2"}, Needs: scanLinks,
		Title: "Nothing is aborted before its timeout", Means: "Healthy transactions are aborted.",
		Run: func(r *Run) {
			ends := r.Listen(r.A, nil)
			s := r.OpenWith(r.ID(), long, r.A, r.B)
			began := time.Now()
			s.Write("v", r.A)
			ends.First()
			r.Check(time.Since(began) >= long, "it was aborted too early")
		},
		Wrong: []wrong.Fault{wrong.Requests("waits a twentieth of the timeout", func(req *wire.InitGlobalTxnRequest) bool {
			req.TimeoutMillis /= 20
			return true
		})},
	},
	{
		ID: "TIME-08", Clauses: []string{"C-SCAN-2", "C-SCAN-4"}, Needs: scanLinks,
		Title: "What an earlier session left keeps its age and ends by it, and the new session goes on", Means: "An application that crashes again and again, sooner than its timeout, stops readers for ever; or a new session is ended for what the one before left.",
		Run: func(r *Run) {
			const age = 2 * long
			ends := r.Listen(r.A, nil)
			s := r.Open()
			s.Write("x", r.A)
			r.Until("some age", func() (bool, string) {
				d := r.Describe(s.ID)
				return len(d.Participants) == 1 && d.Participants[0].OpenSinceMillis >= age.Milliseconds(), "too young"
			})
			again := time.Now()
			now := r.bare(s.ID, age, r.A, r.B)
			ends.First()
			r.Check(time.Since(again) < age, "its age began anew with the new session")
			for _, p := range []*Participant{r.A, r.B} {
				now.Producers[p] = r.Producer(p, s.ID, NoTimeout)
			}
			now.Write("v", r.A, r.B)
			now.End(true)
			r.Sees(r.A, s.Topic)
			r.Sees(r.A, now.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Stalling(overlooks("counts anew with each session"))},
	},
	{
		ID: "TIME-09", Clauses: []string{"C-SCAN-1"}, Needs: scanLinks,
		Title: "A transaction of an id that the coordinator does not know is left alone", Means: "Ordinary producers, and those of another coordinator, are aborted.",
		Run: func(r *Run) {
			id, topic := r.ID(), r.Topic(r.A)
			ends := r.Listen(r.A, nil)
			q := r.Producer(r.A, id, NoTimeout)
			q.Write(topic, "v")
			r.NeverBefore("a foreign transaction is ended", r.scans(r.A, 4), func() (bool, string) {
				return len(ends.All()) > 0, "an EndTxn came"
			})
			r.Check(q.End(true) == 0, "the producer cannot commit")
			r.Sees(r.A, topic, "v")
		},
		Wrong: []wrong.Fault{{Text: "aborts whatever is open", Back: true, Hooks: proxy.Hooks{Answer: abortsOpen}}},
	},
	{
		ID: "TIME-10", Clauses: []string{"C-SCAN-4", "C-LIVE-1"}, Needs: scans,
		Title: "What an id has open on a cluster that earlier sessions named is aborted, and the session goes on", Means: "A cluster that was taken out of a session stays blocked.",
		Run: func(r *Run) {
			id := r.ID()
			r.OpenWith(id, long, r.A, r.B)
			s := r.OpenWith(id, long, r.A)
			topic := r.Topic(r.B)
			r.Producer(r.B, s.ID, NoTimeout).Write(topic, "x")
			r.Sees(r.B, topic)
			s.Write("v", r.A)
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Stalling(overlooks("looks at the clusters of the session only"))},
	},
	{
		ID: "TIME-11", Clauses: []string{"C-SCAN-6", "C-ATOM-6"}, Needs: scanLinks,
		Title: "A decided commit that is pending for longer than the timeout is not aborted", Means: "A decided commit is torn because a cluster was away.",
		Run: func(r *Run) {
			h := r.newHolding()
			ends := r.Listen(r.B, func(_ int, x *proxy.Exchange, req *kmsg.EndTxnRequest) {
				if !h.over() && req.Commit {
					x.Answer(refuse(kerr.CoordinatorLoadInProgress))
				}
			})
			s := r.decidedInTime()
			r.Never("the timeout ends it", 3*time.Duration(s.Init.TimeoutMillis)*time.Millisecond, func() (bool, string) {
				for _, end := range ends.All() {
					if !end.Commit && end.TransactionalID == s.ID {
						return true, "an EndTxn(abort) came after the decision to commit"
					}
				}
				return false, ""
			})
			h.now()
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{givesUp()},
	},
	{
		ID: "TIME-12", Clauses: []string{"C-RES-1", "C-SCAN-3"}, Needs: scans,
		Title: "An operator's abort ends what is open at once, whatever its age", Means: "Readers stand still until the timeout, although somebody has looked.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			r.Until("both participants seen open", func() (bool, string) {
				d := r.Describe(s.ID)
				return len(d.Participants) == 2 && d.State == wire.StateOngoing, d.State
			})
			r.Refused("ResolveGlobalTransaction(abort)", r.Resolve(s.ID, wire.ResolveAbort, nil).ErrorCode, nil)
			r.Sees(r.A, s.Topic)
			d := r.Becomes(s.ID, wire.StateCompleteAbort)
			r.Check(d.SessionEnded, "the session is not ended")
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeAborted)
		},
		Wrong: []wrong.Fault{wrong.Stalling(wrong.Does("answers ok and does nothing", false, func(x *proxy.Exchange) {
			if _, ok := x.Request.(*wire.ResolveGlobalTransactionRequest); ok {
				x.Answer(wire.NewPtrResolveGlobalTransactionResponse())
			}
		}))},
	},
	{
		ID: "TIME-13", Clauses: []string{"C-SCAN-7", "C-LIVE-2"}, Needs: scanLinks, Alone: true,
		Title: "A cluster that is away does not keep the scan from the others", Means: "One cluster's outage stops the readers of all.",
		Run: func(r *Run) {
			defer r.B.link.Mend()
			var s *Session
			for timeout := short; ; timeout *= 2 {
				s = r.OpenWith(r.ID(), timeout, r.A, r.B)
				r.Note("cluster eu is cut off")
				r.B.link.Cut()
				if s.tryWrite("v", r.A) {
					break
				}
				r.B.link.Mend() // the timeout came between two requests
			}
			r.Sees(r.A, s.Topic)
			r.Becomes(s.ID, wire.StateCompleteAbort)
		},
		Wrong: []wrong.Fault{wrong.Stalling(overlooks("scans nothing while a cluster is away"))},
	},
	{
		ID: "TIME-14", Clauses: []string{"C-SCAN-5"}, Needs: scanLinks, Alone: true,
		Title: "A look that failed is not taken for one that found nothing", Means: "What holds readers back vanishes from the operators' list, or its timeout begins anew again and again.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			r.Becomes(s.ID, wire.StateOngoing)
			failed := make(chan struct{}, 1000)
			r.A.OnAnswer(r, func(x *proxy.Exchange) {
				if resp, ok := x.Response.(*kmsg.ListTransactionsResponse); ok {
					resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
					x.Changed()
					failed <- struct{}{}
				}
			})
			for range 4 { // the last but one is over when the last one comes
				select {
				case <-failed:
				case <-r.ctx.Done():
					r.Failf("no ListTransactions came")
				}
			}
			d := r.Describe(s.ID)
			r.Check(d.State == wire.StateOngoing, "after failed looks the state is %s, want Ongoing", d.State)
			r.Check(d.Participants[0].OpenSinceMillis >= 2*r.s.target.ScanInterval.Milliseconds()/2, "its age began anew")
		},
		Wrong: []wrong.Fault{wrong.Hears("takes it for an empty list", func(_ *kmsg.ListTransactionsRequest, resp *kmsg.ListTransactionsResponse) bool {
			if resp.ErrorCode == 0 {
				return false
			}
			resp.ErrorCode = 0
			resp.TransactionStates = nil
			return true
		})},
	},
	{
		ID: "TIME-15", Clauses: []string{"C-PART-8", "C-RULE-2"}, Needs: []Need{NeedParticipants, NeedQuickScan, NeedLinks, NeedV4},
		Title: "On transaction.version 1 too the scan aborts with EndTxn and the epoch seen", Means: "A late InitProducerId of the coordinator aborts the next session's transaction.",
		Run: func(r *Run) {
			bad := make(chan struct{}, 100)
			r.A.OnRequest(r, func(x *proxy.Exchange) {
				if _, ok := x.Request.(*kmsg.InitProducerIDRequest); ok {
					bad <- struct{}{}
				}
			})
			ends := r.Listen(r.A, nil)
			s := r.leaves(r.A)
			was := s.Producers[r.A].Ref()
			end := ends.First()
			for end.TransactionalID != s.ID {
				end = ends.First()
			}
			r.Check(!end.Commit && end.Version < 5 && end.ProducerID == was.ProducerID && end.ProducerEpoch == was.ProducerEpoch, "it was ended under another name, or in another version")
			r.Sees(r.A, s.Topic)
			r.Check(len(bad) == 0, "the coordinator sent InitProducerId")
		},
		Wrong: []wrong.Fault{wrong.Sends("ends it in version 5", func(req *kmsg.EndTxnRequest) bool {
			req.Version = 5
			return req.ProducerID >= 0
		})},
	},
	{
		ID: "TIME-16", Clauses: []string{"C-END-6"}, Needs: []Need{NeedParticipants, NeedQuickScan, NeedV4},
		Title: "After a timeout on transaction.version 1 a request that names the one recorded is fenced", Means: "Aborted is told of the client's next transaction, which has the same name.",
		Run: func(r *Run) {
			s := r.abandoned(r.A)
			r.Answered(r.Ask(s.Request(true)), kerr.ProducerFenced, wire.OutcomeUnknown)
		},
		Wrong: []wrong.Fault{wrong.Answers("presumes abort", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) bool {
			resp.ErrorCode, resp.Outcome = 0, wire.OutcomeAborted
			return true
		})},
	},
	{
		ID: "TIME-17", Clauses: []string{"C-END-6"}, Needs: []Need{NeedParticipants, NeedQuickScan, NeedV5},
		Title: "After a timeout on transaction.version 2 a request that names the one recorded is told aborted", Means: "A client does not learn an outcome that is known.",
		Run: func(r *Run) {
			s := r.abandoned(r.A)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeAborted)
		},
		Wrong: []wrong.Fault{endsWith("answers committed", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			resp.Outcome = wire.OutcomeCommitted
		})},
	},
	{
		ID: "TIME-18", Clauses: []string{"C-SCAN-3"}, Needs: scans,
		Title: "A session with nothing open does not time out", Means: "An application that has nothing to do is fenced.",
		Run: func(r *Run) {
			s := r.OpenWith(r.ID(), 300*time.Millisecond, r.A, r.B)
			r.Never("an idle session ends", 5*r.s.target.ScanInterval, func() (bool, string) { return r.Describe(s.ID).SessionEnded, "it is ended" })
			n := r.InitOK(s.Init)
			r.Check(n.GlobalEpoch == s.Epoch, "the session has another epoch")
		},
		Wrong: []wrong.Fault{describes("ends idle sessions", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) { d.SessionEnded = true })},
	},
	{
		ID: "TIME-19", Clauses: []string{"C-SCAN-3", "C-ATOM-1"}, Needs: scans,
		Title: "A timeout aborts all that the session has open, on every cluster", Means: "One cluster's readers go on and the others' stand still.",
		Run: func(r *Run) {
			s := r.OpenWith(r.ID(), long, r.A, r.B)
			s.Write("v", r.A)
			r.Becomes(s.ID, wire.StateOngoing)
			s.Write("v", r.B)
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
			r.Becomes(s.ID, wire.StateCompleteAbort)
		},
		Wrong: []wrong.Fault{wrong.Stalling(swallows("does not tell participants of an abort", func(req *kmsg.EndTxnRequest) bool { return !req.Commit }))},
	},
}

// abandoned is a session with a short timeout that has written to some
// participants and been aborted for it.
func (r *Run) abandoned(ps ...*Participant) *Session {
	s := r.leaves(ps...)
	r.Becomes(s.ID, wire.StateCompleteAbort)
	return s
}

// leaves is a session with a short timeout that has written to some participants
// and does nothing more. Where the timeout comes between two of the writes, the
// machine is slow, and the next session has more time.
func (r *Run) leaves(ps ...*Participant) *Session {
	for timeout := short; ; timeout *= 2 {
		if s := r.OpenWith(r.ID(), timeout, r.A, r.B); s.tryWrite("v", ps...) {
			return s
		}
	}
}

// decidedInTime is a session with a short timeout, of which a commit is decided.
// Where the timeout comes before the question, the machine is slow, and the next
// session has more time; but none is so slow that a minute were not enough.
func (r *Run) decidedInTime() *Session {
	for timeout := 3 * short; ; timeout *= 2 {
		s := r.OpenWith(r.ID(), timeout, r.A, r.B)
		if !s.tryWrite("v", r.A, r.B) {
			continue
		}
		resp := r.Decision(s.Request(true))
		if resp.Outcome == wire.OutcomeAborted && timeout < time.Minute {
			continue
		}
		r.Answered(resp, nil, wire.OutcomeCommitted)
		return s
	}
}

// overlooks is a coordinator whose scans do not see what is open.
func overlooks(text string) wrong.Fault {
	return wrong.Fault{Text: text, Back: true, Hooks: proxy.Hooks{Answer: unseen}}
}

// unseen takes the ids in scope out of a list of transactions.
func unseen(x *proxy.Exchange) {
	if resp, ok := x.Response.(*kmsg.ListTransactionsResponse); ok {
		all := len(resp.TransactionStates)
		resp.TransactionStates = slices.DeleteFunc(resp.TransactionStates, func(s kmsg.ListTransactionsResponseTransactionState) bool {
			return x.Scope(s.TransactionalID)
		})
		if len(resp.TransactionStates) < all {
			x.Changed()
		}
	}
}

// abortsOpen ends what a scan finds open, whoever's it is.
func abortsOpen(x *proxy.Exchange) {
	list, ok := x.Response.(*kmsg.ListTransactionsResponse)
	if !ok {
		return
	}
	look := kmsg.NewPtrDescribeTransactionsRequest()
	for _, s := range list.TransactionStates {
		if x.Scope(s.TransactionalID) && s.TransactionState == "Ongoing" {
			look.TransactionalIDs = append(look.TransactionalIDs, s.TransactionalID)
		}
	}
	if look.TransactionalIDs == nil {
		return
	}
	resp, err := x.Ask(look)
	if err != nil {
		return
	}
	for _, s := range resp.(*kmsg.DescribeTransactionsResponse).TransactionStates {
		end := kmsg.NewPtrEndTxnRequest()
		end.Version, end.TransactionalID, end.ProducerID, end.ProducerEpoch = 4, s.TransactionalID, s.ProducerID, s.ProducerEpoch
		_, _ = x.Ask(end)
	}
}

// givesUp turns a commit that a participant has refused into an abort.
func givesUp() wrong.Fault {
	var refused sync.Map // ids
	return wrong.Fault{Text: "gives a commit up that was refused", Back: true, Hooks: proxy.Hooks{
		Request: func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.Commit {
				if _, found := refused.Load(req.TransactionalID); found {
					req.Commit = false
					x.Changed()
				}
			}
		},
		Answer: func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 && x.Response.(*kmsg.EndTxnResponse).ErrorCode != 0 {
				refused.Store(req.TransactionalID, true)
			}
		},
	}}
}

// swallows is a coordinator that takes some EndTxn for done without sending
// them.
func swallows(text string, which func(*kmsg.EndTxnRequest) bool) wrong.Fault {
	return forgetful(wrong.Does(text, true, func(x *proxy.Exchange) {
		if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && req.ProducerID >= 0 && which(req) {
			resp := kmsg.NewPtrEndTxnResponse()
			resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
			x.Answer(resp)
		}
	}))
}
