package conformance

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// interoperationCases are a whole client against the coordinator, and clients
// that know nothing of it.
var interoperationCases = []Case{
	{
		ID: "INTER-01", Clauses: []string{"C-VIS-2", "C-CLI-4"}, Needs: libraries,
		Title: "The library commits over two clusters, and waits until it is visible", Means: "An application cannot tell when readers will find its records.",
		Run: func(r *Run) {
			l, topic := r.library(nil), r.Topic(r.A, r.B)
			txn := l.begin(l.open(r.ID()), topic, "v", r.A, r.B)
			_, err := txn.Commit(r.ctx)
			r.Must(err, "Commit")
			_, err = txn.WaitVisible(r.ctx)
			r.Must(err, "WaitVisible")
			for _, p := range []*Participant{r.A, r.B} {
				reader := p.target.Security.reader(p.target.Bootstrap)
				got, err := reader.Partition(r.ctx, topic, 0, 0)
				reader.Close()
				r.Must(err, "reading")
				r.Check(len(got.Records) == 1 && !got.Open(), "after WaitVisible %d records are visible at %s", len(got.Records), p.Name)
			}
		},
		Wrong: []wrong.Fault{asked("aborts where commit was asked", flipCommit)},
	},
	{
		ID: "INTER-02", Clauses: []string{"C-CLI-2"}, Needs: libraries,
		Title: "The library lists exactly the clusters that it wrote to", Means: "A transaction over one cluster costs two phases, or an untouched one makes it abort.",
		Run: func(r *Run) {
			l, topic := r.library(nil), r.Topic(r.A, r.B)
			cl := l.open(r.ID())
			_, err := l.begin(cl, topic, "v", r.A).Commit(r.ctx)
			r.Must(err, "Commit")
			ends := sent[*wire.EndGlobalTxnRequest](l)
			r.Check(len(ends) > 0 && len(ends[0].Participants) == 1 && ends[0].Participants[0].ClusterID == r.A.ID, "it lists other clusters than the one it wrote to")
			_, err = l.begin(cl, topic, "").Commit(r.ctx)
			r.Must(err, "Commit of nothing")
			r.Check(len(sent[*wire.EndGlobalTxnRequest](l)) == len(ends), "it asks for a commit of nothing")
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Requests("lists the clusters of the session", func(req *wire.EndGlobalTxnRequest) bool {
			more := req.Participants[0]
			more.ClusterID = "cluster-eu"
			req.Participants = append(req.Participants, more)
			return true
		}))},
	},
	{
		ID: "INTER-03", Clauses: []string{"C-CLI-4"}, Needs: libraries,
		Title: "The library repeats the same request until it knows", Means: "An application is told a guess, or its second question is another one.",
		Run: func(r *Run) {
			var n atomic.Int32
			l := r.library(func(x *proxy.Exchange) {
				if resp, ok := x.Response.(*wire.EndGlobalTxnResponse); ok && n.Add(1) <= 2 {
					resp.ErrorCode, resp.Outcome, resp.Participants = 0, wire.OutcomeUnknown, nil
					x.Changed()
				}
			})
			topic := r.Topic(r.A, r.B)
			_, err := l.begin(l.open(r.ID()), topic, "v", r.A, r.B).Commit(r.ctx)
			r.Must(err, "Commit")
			ends := sent[*wire.EndGlobalTxnRequest](l)
			r.Check(len(ends) >= 3, "it asked %d times, and was told nothing twice", len(ends))
			for _, end := range ends[1:] {
				same := end.Sequence == ends[0].Sequence && end.GlobalEpoch == ends[0].GlobalEpoch && end.Committed && len(end.Participants) == len(ends[0].Participants)
				r.Check(same, "a repeat is another request")
			}
			r.Sees(r.A, topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Client(counted("asks under the next number", func(n int32, req *wire.EndGlobalTxnRequest) { req.Sequence += int64(n) }))},
	},
	{
		ID: "INTER-04", Clauses: []string{"C-CLI-4", "C-ATOM-5"}, Needs: libraries,
		Title: "When its caller gives up waiting, the library says that the outcome is unknown", Means: "An application takes a timeout for an abort, and does the work twice.",
		Run: func(r *Run) {
			ctx, giveUp := context.WithCancel(r.ctx)
			defer giveUp()
			var hidden atomic.Int32
			l := r.library(func(x *proxy.Exchange) {
				if resp, ok := x.Response.(*wire.EndGlobalTxnResponse); ok && resp.Outcome == wire.OutcomeCommitted {
					resp.Outcome, resp.Participants = wire.OutcomeUnknown, nil
					x.Changed()
					if hidden.Add(1) == 2 { // it has heard the first, and asked again
						giveUp()
					}
				}
			})
			topic := r.Topic(r.A, r.B)
			txn := l.begin(l.open(r.ID()), topic, "v", r.A, r.B)
			_, err := txn.Commit(ctx)
			var unknown *client.UnknownOutcomeError
			r.Check(errors.As(err, &unknown), "Commit returned %v", err)
			r.Sees(r.A, topic, "v") // for it was committed
		},
		Wrong: []wrong.Fault{endsWith("answers aborted", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) { resp.Outcome = wire.OutcomeAborted })},
	},
	{
		ID: "INTER-05", Clauses: []string{"C-CLI-6", "C-INIT-3"}, Needs: libraries,
		Title: "The library draws an instance id for each session, and keeps it for repeats", Means: "A repeat fences its own client, or two instances are taken for one.",
		Run: func(r *Run) {
			var n atomic.Int32
			l := r.library(func(x *proxy.Exchange) {
				if resp, ok := x.Response.(*wire.InitGlobalTxnResponse); ok && n.Add(1) == 1 {
					resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
					x.Changed()
				}
			})
			id := r.ID()
			l.open(id)
			first := sent[*wire.InitGlobalTxnRequest](l)
			l.open(id)
			all := sent[*wire.InitGlobalTxnRequest](l)
			r.Check(len(first) >= 2 && len(all) > len(first), "it sent %d InitGlobalTxn for two sessions, the first of which was told to come again", len(all))
			for _, req := range first {
				r.Check(req.InstanceID == first[0].InstanceID && req.InstanceID != [16]byte{}, "a repeat has another instance id, or none")
			}
			r.Check(all[len(all)-1].InstanceID != first[0].InstanceID, "two sessions have one instance id")
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Requests("has one instance id for all", func(req *wire.InitGlobalTxnRequest) bool {
			req.InstanceID = [16]byte{1}
			return true
		}))},
	},
	{
		ID: "INTER-06", Clauses: []string{"C-CLI-5", "C-PART-6"}, Needs: libraries,
		Title: "The library goes on with what the answer gives, transaction after transaction", Means: "Only the first transaction of an application works.",
		Run: func(r *Run) {
			l, topic := r.library(nil), r.Topic(r.A, r.B)
			cl := l.open(r.ID())
			for _, v := range []string{"1", "2", "3"} {
				_, err := l.begin(cl, topic, v, r.A, r.B).Commit(r.ctx)
				r.Must(err, "Commit")
			}
			r.Sees(r.A, topic, "1", "2", "3")
			r.Sees(r.B, topic, "1", "2", "3")
		},
		Wrong: []wrong.Fault{wrong.Stalling(endsWith("gives a wrong epoch to go on with", func(_ *wire.EndGlobalTxnRequest, resp *wire.EndGlobalTxnResponse) {
			for i := range resp.Participants {
				resp.Participants[i].ProducerEpoch += 3
			}
		}))},
	},
	{
		ID: "INTER-07", Clauses: []string{"C-CLI-3", "C-INIT-1", "C-END-5"}, Needs: libraries,
		Title: "A second client of an id fences the first, which says so", Means: "Two instances of an application write under one id.",
		Run: func(r *Run) {
			l, topic, id := r.library(nil), r.Topic(r.A, r.B), r.ID()
			txn := l.begin(l.open(id), topic, "old", r.A, r.B)
			second := l.open(id)
			_, err := txn.Commit(r.ctx)
			var fenced *client.FencedError
			r.Check(errors.As(err, &fenced), "the first client's Commit returned %v", err)
			_, err = l.begin(second, topic, "new", r.A, r.B).Commit(r.ctx)
			r.Must(err, "the second client's Commit")
			r.Sees(r.A, topic, "new")
		},
		Wrong: []wrong.Fault{hides(kerr.ProducerFenced)},
	},
	{
		ID: "INTER-08", Clauses: []string{"C-CLI-1", "C-RULE-4"}, Needs: libraries,
		Title: "An abort that was not preceded by a commit costs no request", Means: "Aborts are slow, and need the coordinator.",
		Run: func(r *Run) {
			l, topic := r.library(nil), r.Topic(r.A, r.B)
			cl := l.open(r.ID())
			_, err := l.begin(cl, topic, "x", r.A, r.B).Abort(r.ctx)
			r.Must(err, "Abort")
			n := len(sent[*wire.EndGlobalTxnRequest](l))
			r.Check(n == 0, "an abort cost %d requests", n)
			_, err = l.begin(cl, topic, "v", r.A, r.B).Commit(r.ctx)
			r.Must(err, "Commit")
			r.Sees(r.A, topic, "v")
		},
		Wrong: []wrong.Fault{recodes(nil, wire.GlobalTransactionTooOld)},
	},
	{
		ID: "INTER-09", Clauses: []string{"C-SCAN-1"}, Needs: scans,
		Title: "An ordinary transactional producer works beside it", Means: "Applications that do not know the coordinator are disturbed by it.",
		Run: func(r *Run) {
			topic := r.Topic(r.A)
			q := r.Producer(r.A, r.ID(), time.Minute)
			for _, v := range []string{"1", "2"} {
				q.Write(topic, v)
				r.NeverBefore("it has ended nothing, and its transaction is not open any more", r.scans(r.A, 2), func() (bool, string) {
					state := r.State(r.A, q.ID).State
					return state != "Ongoing", state
				})
				code := q.End(true)
				r.Check(code == 0, "its commit is answered %s", codeName(code))
			}
			r.Sees(r.A, topic, "1", "2")
		},
		Wrong: []wrong.Fault{{Text: "aborts whatever is open", Back: true, Hooks: proxy.Hooks{Answer: abortsOpen}}},
	},
	{
		ID: "INTER-10", Clauses: []string{"C-ROLE-2"}, Needs: []Need{NeedHome},
		Title: "Kafka's own FindCoordinator works at the home cluster as before", Means: "Ordinary clients of the home cluster find no coordinators.",
		Run: func(r *Run) {
			cl := r.home()
			for kind := range int8(2) {
				req := kmsg.NewPtrFindCoordinatorRequest()
				req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = kind, "conformance-x", []string{"conformance-x"}
				r.Until("FindCoordinator of Kafka's own", func() (bool, string) {
					resp, err := req.RequestWith(r.ctx, cl)
					if err != nil {
						return false, err.Error()
					}
					code := resp.ErrorCode
					if len(resp.Coordinators) > 0 {
						code = resp.Coordinators[0].ErrorCode
					}
					r.Check(code == 0 || slices.Contains(again, code), "FindCoordinator of key type %d answered %s", kind, codeName(code))
					return code == 0, codeName(code)
				})
			}
		},
		Wrong: []wrong.Fault{recodes(nil, kerr.InvalidRequest)},
	},
}

// counted changes each request but an id's first to end, with their number.
func counted(text string, f func(n int32, req *wire.EndGlobalTxnRequest)) wrong.Fault {
	var n atomic.Int32
	return wrong.Requests(text, func(req *wire.EndGlobalTxnRequest) bool {
		f(n.Add(1)-1, req)
		return true
	})
}
