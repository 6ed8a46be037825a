package conformance

import (
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

var votes = []Case{
	{
		ID: "LIFE-40", Clauses: []string{"C-END-9"}, Needs: two,
		Title: "A participant that has nothing open makes it abort", Means: "A broker that was deposed and does not know yet makes a part of the transaction disappear from a commit.",
		Run: func(r *Run) {
			s := r.Open()
			s.Write("v", r.A)
			s.Touch(r.B)
			r.Answered(r.Decide(s.Request(true)), nil, wire.OutcomeAborted)
			r.Sees(r.A, s.Topic)
		},
		Wrong: []wrong.Fault{wrong.Stalling(looks("takes a participant with nothing open for a prepared one", func(s *kmsg.DescribeTransactionsResponseTransactionState) {
			if s.State == "Empty" || strings.HasPrefix(s.State, "Complete") {
				s.State, s.Topics = "Ongoing", []kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: "t", Partitions: []int32{0}}}
			}
		}))},
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
		Wrong: []wrong.Fault{looks("commits what it cannot audit", func(s *kmsg.DescribeTransactionsResponseTransactionState) {
			if s.State == "Ongoing" && len(s.Topics) == 0 {
				t := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
				t.Topic, t.Partitions = "any", []int32{0}
				s.Topics = append(s.Topics, t)
			}
		})},
	},
	{
		ID: "LIFE-46", Clauses: []string{"C-END-11"}, Needs: links,
		Title: "An abort is sent to every participant that is listed", Means: "A participant stays open, and its readers stand still.",
		Run: func(r *Run) {
			a, b, s := r.Listen(r.A, nil), r.Listen(r.B, nil), r.Open()
			s.Write("v", r.A, r.B)
			s.End(false)
			for _, e := range []*Ends{a, b} {
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
		ID: "LIFE-49", Clauses: []string{"C-VOTE-5", "C-ATOM-3", "C-RULE-1", "C-REC-1"}, Needs: []Need{NeedParticipants, NeedLinks, NeedHome}, Alone: true,
		Title: "Before the first EndTxn the log holds the decision, whole", Means: "A crash between the two EndTxn leaves half a commit, and nobody who knows.",
		Run: func(r *Run) {
			s := r.Open()
			partition := r.partitionOf(s.ID)
			ends := r.newHolding()
			for _, p := range []*Participant{r.A, r.B} {
				r.Listen(p, func(_ int, x *proxy.Exchange, _ *kmsg.EndTxnRequest) { ends.wait(x) })
			}
			s.Write("v", r.A, r.B)
			done := r.Go(func() { s.End(true) })
			ends.reached()
			got := r.logged(partition, s.ID)
			ends.now()
			done()
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
