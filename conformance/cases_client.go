package conformance

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// clientCases are what KIP.md asks of a client and a coordinator cannot enforce:
// rings of ids, and what a client ends by itself.
var clientCases = []Case{
	{
		ID: "INTER-16", Clauses: []string{"C-CLI-9"}, Needs: libraries,
		Title: "In a ring, what was begun behind a transaction that aborts is aborted too", Means: "Of a group's offsets the later ones are committed and the earlier are not: records are skipped.",
		Run: func(r *Run) {
			l, topic := r.library(nil).listen(nil), r.Topic(r.A, r.B)
			l.ring = 2
			cl := l.open(r.ID())
			first := l.begin(cl, topic, "1", r.A, r.B)
			second := l.begin(cl, topic, "2", r.A, r.B)
			wait := r.Go(func() {
				_, err := second.Commit(r.ctx)
				_, aborted := errors.AsType[*client.AbortedError](err)
				r.Check(aborted && errors.Is(err, client.ErrBefore), "Commit behind an abort returned %v", err)
			})
			_, err := first.Abort(r.ctx)
			r.Must(err, "Abort")
			wait()
			r.Check(len(sent[*wire.EndGlobalTxnRequest](l)) == 0, "the coordinator was asked for a commit")
			r.Sees(r.A, topic)
			r.Sees(r.B, topic)
			_, err = l.begin(cl, topic, "3", r.A, r.B).Commit(r.ctx)
			r.Must(err, "Commit of what was begun after that")
			r.Sees(r.B, topic, "3")
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Requests("commits it by itself", func(req *kmsg.EndTxnRequest) bool {
			req.Commit = inRing(req.TransactionalID)
			return true
		}))},
	},
	{
		ID: "INTER-17", Clauses: []string{"C-CLI-9"}, Needs: libraries,
		Title: "In a ring a commit is asked for when the outcome of the one before is known", Means: "A slow answer turns the order of an application's transactions round.",
		Run: func(r *Run) {
			h := r.newHolding()
			l := r.library(func(x *proxy.Exchange) {
				if _, ok := x.Response.(*wire.EndGlobalTxnResponse); ok && !h.over() {
					h.wait(x)
				}
			})
			l.ring = 2
			topic := r.Topic(r.A, r.B)
			cl := l.open(r.ID())
			var waits []func()
			for _, v := range []string{"1", "2"} {
				txn := l.begin(cl, topic, v, r.A, r.B)
				waits = append(waits, r.Go(func() {
					_, err := txn.Commit(r.ctx)
					r.Must(err, "Commit of "+v)
				}))
			}
			h.reached()
			r.Never("the first one's outcome is not told yet", 500*time.Millisecond, func() (bool, string) {
				for _, req := range sent[*wire.EndGlobalTxnRequest](l) {
					if inRing(req.GlobalTransactionalID) {
						return true, "the second one's commit is asked for"
					}
				}
				return false, ""
			})
			h.now()
			for _, wait := range waits {
				wait()
			}
			r.Sees(r.A, topic, "1", "2")
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Requests("asks for the second one first", func(req *wire.EndGlobalTxnRequest) bool {
			if inRing(req.GlobalTransactionalID) {
				return false
			}
			req.GlobalTransactionalID += ringSuffix + "1"
			return true
		}))},
	},
	{
		ID: "INTER-18", Clauses: []string{"C-CLI-10"}, Needs: libraries,
		Title: "Opening a ring fences every id of an earlier and longer one", Means: "An application's earlier instance goes on under the ids that the later one does not use.",
		Run: func(r *Run) {
			l, topic, id := r.library(nil), r.Topic(r.A, r.B), r.ID()
			l.ring = 3
			old := l.open(id)
			for range 2 {
				_, err := l.begin(old, topic, "").Commit(r.ctx)
				r.Must(err, "Commit of nothing")
			}
			last := l.begin(old, topic, "old", r.A, r.B) // on the third id
			l.ring = 1
			later := l.open(id)
			_, err := last.Commit(r.ctx)
			_, fenced := errors.AsType[*client.FencedError](err)
			r.Check(fenced, "Commit on the third id of the earlier ring returned %v", err)
			_, err = l.begin(later, topic, "new", r.A, r.B).Commit(r.ctx)
			r.Must(err, "Commit of the later client")
			r.Sees(r.A, topic, "new")
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Does("does not look for a longer ring", false, func(x *proxy.Exchange) {
			req, ok := x.Request.(*wire.DescribeGlobalTransactionsRequest)
			if !ok {
				return
			}
			resp := wire.NewPtrDescribeGlobalTransactionsResponse()
			for _, id := range req.GlobalTransactionalIDs {
				g := wire.NewDescribeGlobalTransactionsResponseGlobalTransaction()
				g.GlobalTransactionalID, g.ErrorCode = id, kerr.TransactionalIDNotFound.Code
				resp.GlobalTransactions = append(resp.GlobalTransactions, g)
			}
			x.Answer(resp)
		}))},
	},
	{
		ID: "INTER-19", Clauses: []string{"C-CLI-10"}, Needs: libraries,
		Title: "Opening a ring takes the first id first, and asks for it once more at the end", Means: "Two instances that start at once both go on.",
		Run: func(r *Run) {
			h := r.newHolding()
			l := r.library(func(x *proxy.Exchange) {
				if _, ok := x.Response.(*wire.DescribeGlobalTransactionsResponse); ok && !h.over() {
					h.wait(x)
				}
			})
			l.ring = 2
			id := r.ID()
			wait := r.Go(func() {
				_, err := l.tryOpen(r.ctx, id)
				_, fenced := errors.AsType[*client.FencedError](err)
				r.Check(fenced, "Open, which another client has overtaken, returned %v", err)
			})
			h.reached()
			r.Note("another client takes the first id")
			r.InitOK(r.InitRequest(id, longEnough, r.A, r.B))
			h.now()
			wait()
			all := sent[*wire.InitGlobalTxnRequest](l)
			r.Check(all[0].GlobalTransactionalID == id && all[len(all)-1].GlobalTransactionalID == id, "the first id is not asked for first and last")
		},
		Wrong: []wrong.Fault{wrong.Client(notOnceMore())},
	},
	{
		ID: "INTER-20", Clauses: []string{"C-CLI-11"}, Needs: libraries,
		Title: "A client aborts in the version of the cluster, and goes on with what the answer gives", Means: "The first abort of an application is its last transaction.",
		Run: func(r *Run) {
			l, topic := r.library(nil).listen(nil), r.Topic(r.A, r.B)
			cl := l.open(r.ID())
			_, err := l.begin(cl, topic, "x", r.A, r.B).Abort(r.ctx)
			r.Must(err, "Abort")
			_, err = l.begin(cl, topic, "v", r.A, r.B).Commit(r.ctx)
			r.Must(err, "Commit")
			asked := sent[*wire.EndGlobalTxnRequest](l)[0]
			for _, p := range []*Participant{r.A, r.B} {
				ends := sentTo[*kmsg.EndTxnRequest](l, p)
				r.Check(len(ends) > 0 && !ends[0].Commit && ends[0].Version == p.EndTxn, "no EndTxn(abort) in version %d came to %s first", p.EndTxn, p.Name)
				next := ends[0].ProducerEpoch
				if p.EndTxn >= 5 {
					next++
				}
				for _, q := range asked.Participants {
					r.Check(q.ClusterID != p.ID || q.ProducerEpoch == next, "it did not go on with what the answer of %s gave", p.Name)
				}
				r.Sees(p, topic, "v")
			}
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Requests("takes the other version", func(req *kmsg.EndTxnRequest) bool {
			req.Version = 9 - req.Version
			return true
		}))},
	},
	{
		ID: "INTER-21", Clauses: []string{"C-CLI-11", "C-CLI-3"}, Needs: libraries,
		Title: "A client whose abort was not answered initialises that producer again, after InitGlobalTxn", Means: "A late copy of the abort ends the next transaction, or another client's is aborted.",
		Run: func(r *Run) {
			// The second one: a client that asks again by itself does so on a
			// connection that it has seen work.
			var ends atomic.Int32
			l := r.library(nil).listen(func(p *Participant, x *proxy.Exchange) {
				if _, ok := x.Response.(*kmsg.EndTxnResponse); ok && p == r.A && ends.Add(1) == 2 {
					x.Cut()
				}
			})
			topic := r.Topic(r.A, r.B)
			cl := l.open(r.ID())
			for range 2 {
				_, err := l.begin(cl, topic, "x", r.A, r.B).Abort(r.ctx)
				r.Must(err, "Abort")
			}
			_, err := l.begin(cl, topic, "v", r.A, r.B).Commit(r.ctx)
			r.Must(err, "Commit")
			r.initialisedAgain(l)
			r.Sees(r.A, topic, "v")
		},
		Wrong: []wrong.Fault{wrong.Client(goesOn())},
	},
	{
		ID: "INTER-22", Clauses: []string{"C-CLI-11"}, Needs: []Need{NeedParticipants, NeedPlain, NeedV4},
		Title: "Below transaction.version 2 a producer whose offsets were not answered is initialised before its next transaction", Means: "A late copy of the offsets takes the group back with the next commit.",
		Run: func(r *Run) {
			var once atomic.Bool
			l := r.library(nil).listen(func(p *Participant, x *proxy.Exchange) {
				if _, ok := x.Response.(*kmsg.TxnOffsetCommitResponse); ok && once.CompareAndSwap(false, true) {
					x.Cut()
				}
			})
			topic, group := r.Topic(r.A, r.B), r.ID()
			cl, g := l.open(r.ID()), r.group(r.A, group)
			txn := l.begin(cl, topic, "v", r.B)
			r.Must(txn.CommitOffsets(r.ctx, g, at(topic, 1)), "CommitOffsets")
			_, err := txn.Commit(r.ctx)
			r.Must(err, "Commit")
			_, err = l.begin(cl, topic, "w", r.A).Commit(r.ctx)
			r.Must(err, "Commit")
			offsets, ends := sentTo[*kmsg.TxnOffsetCommitRequest](l, r.A), sent[*wire.EndGlobalTxnRequest](l)
			for _, p := range ends[len(ends)-1].Participants {
				r.Check(p.ProducerID != offsets[0].ProducerID || p.ProducerEpoch > offsets[0].ProducerEpoch, "it went on under an epoch to which a copy of the offsets may be added")
			}
			r.stands(r.A, group, topic, 1)
			r.Sees(r.A, topic, "w")
		},
		Wrong: []wrong.Fault{wrong.Client(goesOn())},
	},
}

const ringSuffix = ".ring-"

// inRing says that an id is one of a ring, and not its first.
func inRing(id string) bool { return strings.Contains(id, ringSuffix) }

// initialisedAgain fails unless the last transaction at A is under a producer
// epoch of an InitProducerId that came after the abort, with InitGlobalTxn in
// between.
func (r *Run) initialisedAgain(l *library) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var end *kmsg.EndTxnRequest // the last one
	asked, again := false, false
	for _, s := range l.all {
		switch req := s.req.(type) {
		case *kmsg.EndTxnRequest:
			if s.at == r.A {
				end, asked = req, false
			}
		case *wire.InitGlobalTxnRequest:
			asked = end != nil
		case *kmsg.InitProducerIDRequest, *wire.InitProducerIDRequestV6:
			again = again || s.at == r.A && asked
		case *wire.EndGlobalTxnRequest:
			r.Check(again, "the producer was not initialised again after InitGlobalTxn")
			least := end.ProducerEpoch + r.A.EndTxn - 3 // by EndTxn v5 and by InitProducerId
			for _, p := range req.Participants {
				r.Check(p.ClusterID != r.A.ID || p.ProducerID != end.ProducerID || p.ProducerEpoch >= least, "it went on under an epoch that a copy of the abort may end")
			}
			return
		}
	}
	r.Failf("no EndGlobalTxn came")
}

// goesOn is a client that takes a request without an answer for done: what it
// asks for then is what it has already.
func goesOn() wrong.Fault {
	type name struct {
		id    int64
		epoch int16
	}
	var mu sync.Mutex
	next := map[string]name{}
	return wrong.Does("takes it for done", false, func(x *proxy.Exchange) {
		mu.Lock()
		defer mu.Unlock()
		switch req := x.Request.(type) {
		case *kmsg.EndTxnRequest:
			next[req.TransactionalID] = name{req.ProducerID, req.ProducerEpoch + req.Version - 4}
		case *kmsg.TxnOffsetCommitRequest:
			next[req.TransactionalID] = name{req.ProducerID, req.ProducerEpoch}
		case *kmsg.InitProducerIDRequest:
			if n, ok := next[*req.TransactionalID]; ok {
				resp := kmsg.NewPtrInitProducerIDResponse()
				resp.ProducerID, resp.ProducerEpoch = n.id, n.epoch
				x.Answer(resp)
			}
		case *wire.InitProducerIDRequestV6:
			if n, ok := next[*req.TransactionalID]; ok {
				resp := wire.NewPtrInitProducerIDResponseV6()
				resp.ProducerID, resp.ProducerEpoch = n.id, n.epoch
				x.Answer(resp)
			}
		}
	})
}

// notOnceMore is a client that takes a session that it was given for its own
// ever after.
func notOnceMore() wrong.Fault {
	var given sync.Map // by instance
	f := wrong.Does("does not ask once more", false, func(x *proxy.Exchange) {
		if req, ok := x.Request.(*wire.InitGlobalTxnRequest); ok {
			if resp, again := given.Load(req.InstanceID); again {
				x.Answer(resp.(*wire.InitGlobalTxnResponse))
			}
		}
	})
	f.Answer = func(x *proxy.Exchange) {
		req, ok := x.Request.(*wire.InitGlobalTxnRequest)
		if resp, granted := x.Response.(*wire.InitGlobalTxnResponse); ok && granted && resp.ErrorCode == 0 {
			given.Store(req.InstanceID, resp)
		}
	}
	return f
}
