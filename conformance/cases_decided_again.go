package conformance

import (
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// decidedAgainCases are about a decision whose participant has it open after all.
var decidedAgainCases = []Case{
	{
		ID: "HEUR-16", Clauses: []string{"C-SCAN-6", "C-ATOM-6"}, Needs: scanLinks,
		Title: "What the last decision committed and a cluster shows open again is committed again", Means: "A cluster that was restored from a copy has the half of a commit aborted by the coordinator.",
		Run: func(r *Run) {
			s := r.OpenWith(r.ID(), long, r.A, r.B)
			forgets := r.remembers(r.B, s.ID)
			s.Write("v", r.A, r.B)
			s.End(true)
			ends := r.Listen(r.B, nil)
			forgets.Store(true)
			told := ends.First()
			r.Check(told.Commit, "it was aborted")
			forgets.Store(false)
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.B, s.Topic, "v")
			for _, e := range ends.All() {
				r.Check(e.Commit, "it was aborted, too")
			}
		},
		Wrong: []wrong.Fault{wrong.Stalling(overlooks("does not look at what has ended"))},
	},
	{
		ID: "HEUR-17", Clauses: []string{"C-RES-4", "C-SCAN-6"}, Needs: []Need{NeedParticipants, NeedLinks, NeedQuickScan},
		Title: "A cluster that was seen open before it was given up is told the commit when it is back, never an abort", Means: "An operator's give-up turns a decided commit into an abort on the cluster that comes back.",
		Run: func(r *Run) {
			h := r.holdEnds(r.B)
			s := r.OpenWith(r.ID(), long, r.A, r.B)
			s.Write("v", r.A, r.B)
			r.Answered(r.Decision(s.Request(true)), nil, wire.OutcomeCommitted)
			h.reached()
			r.awaits("a scan that sees it open", r.scans(r.B, 1))
			scanned := r.scans(r.B, 1)
			var away atomic.Bool
			away.Store(true)
			r.B.OnAnswer(r, func(x *proxy.Exchange) {
				if away.Load() {
					x.Scope = r.ours
					unseen(x)
				}
			})
			r.awaits("the end of the scan that was under way", scanned)
			r.Refused("ResolveGlobalTransaction(give up)", r.Resolve(s.ID, wire.ResolveGiveUp, &r.B.ID).ErrorCode, nil)
			ends, since := r.Listen(r.B, nil), time.Now()
			r.NeverBefore("a decided commit is aborted", func() bool { return time.Since(since) > 2*long }, func() (bool, string) {
				return aborts(ends), "EndTxn(abort) came"
			})
			r.Refused("ResolveGlobalTransaction(forget)", r.Resolve(s.ID, wire.ResolveForget, nil).ErrorCode, nil)
			away.Store(false)
			h.now()
			r.Check(ends.First().Commit, "EndTxn(abort) came")
			r.Becomes(s.ID, wire.StateCompleteCommit)
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{{Text: "aborts whatever is open", Back: true, Hooks: proxy.Hooks{Answer: abortsOpen}}},
	},
}

// pendingAbortCases are about what goes on beside a pending abort.
var pendingAbortCases = []Case{
	{
		ID: "FAULT-12", Clauses: []string{"C-END-8", "C-INIT-5"}, Needs: links,
		Title: "An abort that a cluster has not heard holds neither the next transaction nor the next session over the others", Means: "An application over two regions loses both with one.",
		Run: func(r *Run) {
			h := r.holdEnds(r.B)
			s := r.Open()
			s.Write("x", r.A, r.B)
			req := s.Request(false)
			var us wire.EndGlobalTxnResponseParticipant
			r.Until("us is aborted", func() (bool, string) {
				resp := r.Decision(req)
				r.Answered(resp, nil, wire.OutcomeAborted)
				us = r.Participant(resp, r.A)
				return us.State == wire.ParticipantComplete, stateName(us.State)
			})
			h.reached()
			s.Sequence, s.written = s.Sequence+1, nil
			if q := s.Producers[r.A]; us.ProducerID >= 0 {
				q.PID, q.Epoch = us.ProducerID, us.ProducerEpoch
			} else {
				s.Producers[r.A] = r.Producer(r.A, s.ID, NoTimeout)
			}
			s.Write("v", r.A)
			s.End(true)
			next := r.OpenWith(s.ID, longEnough, r.A)
			next.Write("w", r.A)
			next.End(true)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.A, next.Topic, "w")
			h.now()
			r.Until("eu has heard of the abort", func() (bool, string) {
				for _, p := range r.Describe(s.ID).Participants {
					if p.ClusterID == r.B.ID {
						return false, "it is still told"
					}
				}
				return true, ""
			})
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Stalling(endsWith("holds the id until the abort is heard", func(req *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			if req.Committed {
				resp.ErrorCode, resp.Outcome = kerr.ConcurrentTransactions.Code, wire.OutcomeUnknown
			}
		}))},
	},
}

// strangerCases are about what has the name of a known id and is somebody else's.
var strangerCases = []Case{
	{
		ID: "TIME-21", Clauses: []string{"C-SCAN-1"}, Needs: scanLinks,
		Title: "An ordinary transaction under the name of a known id is left alone", Means: "A name at home is a weapon elsewhere: another principal's producer is aborted.",
		Run: func(r *Run) {
			id, topic := r.ID(), r.Topic(r.A)
			r.bare(id, short, r.A)
			ends := r.Listen(r.A, nil)
			q := r.Producer(r.A, id, time.Minute)
			q.Write(topic, "v")
			r.untouched(r.A, ends)
			r.Check(q.End(true) == 0, "the producer cannot commit")
			r.Sees(r.A, topic, "v")
		},
		Wrong: []wrong.Fault{{Text: "aborts whatever is open", Back: true, Hooks: proxy.Hooks{Answer: abortsOpen}}},
	},
	{
		ID: "TIME-22", Clauses: []string{"C-SCAN-1"}, Needs: scanLinks,
		Title: "A transaction under the name of a known id on a cluster that no session named is left alone", Means: "A cluster that has taken another's address has its transactions aborted.",
		Run: func(r *Run) {
			id, topic := r.ID(), r.Topic(r.B)
			r.bare(id, short, r.A)
			ends := r.Listen(r.B, nil)
			q := r.Producer(r.B, id, NoTimeout)
			q.Write(topic, "v")
			r.untouched(r.B, ends)
			r.Refused("ResolveGlobalTransaction(abort)", r.Resolve(id, wire.ResolveAbort, nil).ErrorCode, kerr.InvalidTxnState)
			r.Check(q.End(true) == 0, "the producer cannot commit")
			r.Sees(r.B, topic, "v")
		},
		Wrong: []wrong.Fault{{Text: "aborts whatever is open", Back: true, Hooks: proxy.Hooks{Answer: abortsOpen}}},
	},
}

// untouched waits for some scans after a session's short timeout.
func (r *Run) untouched(p *Participant, ends *Ends) {
	since, scanned := time.Now(), r.scans(p, 4)
	r.NeverBefore("somebody else's transaction is ended", func() bool { return scanned() && time.Since(since) > 4*short }, func() (bool, string) {
		return len(ends.All()) > 0, "an EndTxn came"
	})
}

func aborts(ends *Ends) bool {
	for _, e := range ends.All() {
		if !e.Commit {
			return true
		}
	}
	return false
}

// remembers keeps what a cluster shows of the id while it is open. When the switch is
// set it shows that again, as one does that was restored from a copy.
func (r *Run) remembers(p *Participant, id string) *atomic.Bool {
	var forgets atomic.Bool
	var open atomic.Pointer[kmsg.DescribeTransactionsResponseTransactionState]
	// A list in which the id does not stand is what is changed.
	p.hook(r, &rule{always: true, answer: func(x *proxy.Exchange) {
		switch resp := x.Response.(type) {
		case *kmsg.DescribeTransactionsResponse:
			for i := range resp.TransactionStates {
				switch t := &resp.TransactionStates[i]; {
				case t.TransactionalID != id:
				case forgets.Load():
					*t = *open.Load()
					x.Changed()
				case t.State == "Ongoing":
					seen := *t
					open.Store(&seen)
				}
			}
		case *kmsg.ListTransactionsResponse:
			if forgets.Load() {
				t := kmsg.NewListTransactionsResponseTransactionState()
				t.TransactionalID, t.ProducerID, t.TransactionState = id, open.Load().ProducerID, "Ongoing"
				resp.TransactionStates = append(resp.TransactionStates, t)
				x.Changed()
			}
		}
	}})
	return &forgets
}
