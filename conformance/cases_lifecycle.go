package conformance

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// lifecycleCases are sessions, and ends of transactions that nothing disturbs.
var lifecycleCases = []Case{
	{
		ID: "LIFE-01", Clauses: []string{"C-ATOM-1", "C-END-9"}, Needs: []Need{NeedParticipants},
		Title: "A commit over two clusters is visible on both", Means: "A part of the transaction is lost.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Requests("aborts where commit was asked, and answers committed", flipCommit), wrong.Sends("ends one participant the other way", flipEndTxn)},
	},
	{
		ID: "LIFE-02", Clauses: []string{"C-ATOM-1", "C-END-11"}, Needs: []Need{NeedParticipants},
		Title: "An abort over two clusters is visible on none", Means: "Readers see what was taken back.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A, r.B)
			s.End(false)
			r.Sees(r.A, s.Topic)
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Requests("commits where abort was asked", flipCommit)},
	},
	{
		ID: "LIFE-03", Clauses: []string{"C-END-10", "C-RULE-5"}, Needs: []Need{NeedParticipants},
		Title: "A commit of one participant is visible there", Means: "A transaction over one cluster is lost.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			s.End(true)
			r.Sees(r.A, s.Topic, "v")
			r.Sees(r.B, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Requests("aborts where commit was asked", flipCommit)},
	},
}

func flipCommit(req *wire.EndGlobalTxnRequest) bool {
	req.Committed = !req.Committed
	return true
}

func flipEndTxn(req *kmsg.EndTxnRequest) bool {
	if req.ProducerID < 0 {
		return false
	}
	req.Commit = !req.Commit
	return true
}

var (
	_ = slices.Contains[[]int]
	_ = kerr.ProducerFenced
)
