package conformance

import (
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// limitCases fill the log.
var limitCases = []Case{
	{
		ID: "RECO-41", Clauses: []string{"C-INIT-11"}, Needs: owners, Alone: true,
		Title: "A partition that is full takes no new id, and serves those it has", Means: "Whoever makes ids up stops every application, or fills the coordinator's memory.",
		Run: func(r *Run) {
			s := r.Open()
			partition := r.partitionOf(s.ID)
			more := r.idIn(partition)
			var all []kmsg.Record
			for i := range r.s.target.MaxIDs {
				all = append(all, s.value(logEmpty).record(fmt.Sprintf("%sfull-%d", r.name, i)))
			}
			defer r.evenLate(func() {
				for i := range all {
					all[i].Value = nil // a tombstone
				}
				r.rewrite(s, partition, all)
				r.InitOK(r.InitRequest(more, longEnough, r.A, r.B))
			})
			r.rewrite(s, partition, all)
			r.Refused("InitGlobalTxn of a new id", r.Init(r.InitRequest(more, longEnough, r.A, r.B)).ErrorCode, kerr.PolicyViolation)
			s.Write("v", r.A, r.B)
			s.End(true)
			n := r.OpenWith(s.ID, longEnough, r.A, r.B)
			r.Check(n.Epoch == s.Epoch+1, "a known id did not get a new session")
			s.Init = n.Init
		},
		Wrong: []wrong.Fault{hides(kerr.PolicyViolation)},
	},
}

// idIn makes an id that is kept in a partition of the log.
func (r *Run) idIn(partition int32) string {
	for {
		if id := r.ID(); r.partitionOf(id) == partition {
			return id
		}
	}
}

// rewrite puts records into the partition as its owner, and lets the target find
// out and load them by asking once more for the session.
func (r *Run) rewrite(s *Session, partition int32, records []kmsg.Record) {
	o := r.claim(partition)
	for some := range slices.Chunk(records, 1000) {
		r.Must(o.write(some...), "writing into the log")
	}
	r.InitOK(s.Init)
}

// forgetCases are about what scans have seen and cannot look at any more.
var forgetCases = []Case{
	{
		ID: "TIME-20", Clauses: []string{"C-END-19"}, Needs: []Need{NeedParticipants, NeedQuickScan, NeedLinks, NeedV5}, Alone: true,
		Title: "What a client has ended by itself does not time out when no look succeeds any more", Means: "An application that aborts once, while a cluster cannot be looked at, is fenced later for nothing.",
		Run: func(r *Run) {
			// Its id is in each list, so that the answer is seen here.
			other := r.OpenWith(r.ID(), longEnough, r.A)
			other.Write("x", r.A)
			for timeout := time.Second; !r.forgotten(timeout); timeout *= 3 {
				r.Check(timeout < 20*time.Second, "a transaction that was asked about in time is aborted by its timeout")
			}
			r.Check(other.Producers[r.A].End(false) == 0, "the other transaction cannot be aborted")
		},
		Wrong: []wrong.Fault{describes("lets it time out", func(d *wire.DescribeGlobalTransactionsResponseGlobalTransaction) {
			d.SessionEnded = d.State == wire.StateCompleteCommit
		})},
	},
}

// forgotten reports false when the machine was so slow that the timeout came
// before the question.
func (r *Run) forgotten(timeout time.Duration) bool {
	s := r.OpenWith(r.ID(), timeout, r.A, r.B)
	if !s.tryWrite("x", r.A) || !r.seenOpen(s) {
		return false
	}
	r.Note("from here on no look at us succeeds")
	h := r.newHolding()
	r.A.OnAnswer(r, func(x *proxy.Exchange) {
		if resp, ok := x.Response.(*kmsg.ListTransactionsResponse); ok && !h.over() {
			resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
			x.Changed()
		}
	})
	defer h.now()
	if s.Producers[r.A].End(false) != 0 {
		return false
	}
	if s.Producers[r.A].TryWrite(s.Topic, "v") != 0 || s.Producers[r.B].TryWrite(s.Topic, "v") != 0 {
		return false
	}
	s.Touch(r.B)
	resp := r.Decide(s.Request(true))
	if resp.Outcome == wire.OutcomeAborted {
		return false
	}
	r.Answered(resp, nil, wire.OutcomeCommitted)
	s.Next(resp)
	r.Never("the timeout of what was over ends the session", timeout+6*r.s.target.ScanInterval, func() (bool, string) {
		return r.Describe(s.ID).SessionEnded, "it is ended"
	})
	s.Write("w", r.A, r.B)
	s.End(true)
	r.Sees(r.A, s.Topic, "v", "w")
	return true
}

// seenOpen waits until a scan has seen the session's transaction, and reports
// false when it has timed out before.
func (r *Run) seenOpen(s *Session) (seen bool) {
	r.Until("the scan", func() (bool, string) {
		d := r.Describe(s.ID)
		seen = d.State == wire.StateOngoing
		return seen || d.SessionEnded, d.State
	})
	return seen
}
