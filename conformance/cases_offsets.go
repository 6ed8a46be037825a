package conformance

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// offsetCases are about a consumer group's offsets in a global transaction. They
// are the client's to send, so it is the library that is judged.
var offsetCases = []Case{
	{
		ID: "INTER-11", Clauses: []string{"C-CLI-7"}, Needs: libraries,
		Title: "A group's offsets go to its own cluster under the participant's producer, and are committed with the transaction", Means: "Offsets move without the data, or are stored where nobody looks.",
		Run: func(r *Run) {
			l, topic, group := r.library(nil).listen(nil), r.Topic(r.A, r.B), r.ID()
			cl := l.open(r.ID())
			txn := l.begin(cl, topic, "v", r.B)
			r.Must(txn.CommitOffsets(r.ctx, r.group(r.A, group), at(topic, 42)), "CommitOffsets")
			_, err := txn.Commit(r.ctx)
			r.Must(err, "Commit")
			asked := sent[*wire.EndGlobalTxnRequest](l)[0]
			offsets := sentTo[*kmsg.TxnOffsetCommitRequest](l, r.A)
			r.Check(len(offsets) > 0 && len(sentTo[*kmsg.TxnOffsetCommitRequest](l, r.B)) == 0, "the offsets did not go to the group's cluster, or to another too")
			named := false
			for _, p := range asked.Participants {
				named = named || p.ClusterID == r.A.ID && p.ProducerID == offsets[0].ProducerID && p.ProducerEpoch == offsets[0].ProducerEpoch
			}
			r.Check(named, "the offsets are not under the producer of the participant that is listed")
			r.Check(r.A.EndTxn >= 5 || len(sentTo[*kmsg.AddOffsetsToTxnRequest](l, r.A)) > 0, "there was no AddOffsetsToTxn below transaction.version 2")
			r.stands(r.A, group, topic, 42)
		},
		Wrong: []wrong.Fault{wrong.Stalling(wrong.Client(wrong.Does("takes them for committed", false, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.TxnOffsetCommitRequest); ok {
				x.Answer(offsetsTaken(req))
			}
		})))},
	},
	{
		ID: "INTER-12", Clauses: []string{"C-CLI-7"}, Needs: libraries,
		Title: "Offsets of a group of another cluster are refused, and everything is aborted", Means: "Offsets are stored on the wrong cluster, and success is reported.",
		Run: func(r *Run) {
			l, topic, group := r.library(nil), r.Topic(r.A, r.B), r.ID()
			cl, err := l.tryOpenOver(r.ctx, r.ID(), r.A)
			r.Must(err, "opening the library's client")
			txn := l.begin(cl, topic, "x", r.A)
			err = txn.CommitOffsets(r.ctx, r.group(r.B, group), at(topic, 42))
			_, refused := errors.AsType[*client.WrongClusterError](err)
			r.Check(refused, "CommitOffsets of a group of another cluster returned %v", err)
			_, err = txn.Commit(r.ctx)
			_, aborted := errors.AsType[*client.AbortedError](err)
			r.Check(aborted, "Commit after that returned %v", err)
			r.Sees(r.A, topic)
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Answers("takes every cluster for the same", func(_ *kmsg.MetadataRequest, resp *kmsg.MetadataResponse) bool {
			resp.ClusterID = kmsg.StringPtr("cluster-us")
			return true
		}))},
	},
	{
		ID: "INTER-13", Clauses: []string{"C-CLI-7"}, Needs: libraries,
		Title: "Offsets of a member that has left its group are refused, and everything is aborted", Means: "Two members of a group move the same partition.",
		Run: func(r *Run) {
			l, topic, name := r.library(nil).listen(nil), r.Topic(r.A, r.B), r.ID()
			cl := l.open(r.ID())
			member := r.client(r.A, kgo.ConsumerGroup(name), kgo.ConsumeTopics(topic))
			var g client.Group
			r.Until("a place in the group", func() (bool, string) {
				var err error
				g, err = client.GroupOf(r.ctx, member)
				return err == nil, "none: " + errText(err)
			})
			txn := l.begin(cl, topic, "v", r.B)
			r.Must(txn.CommitOffsets(r.ctx, g, at(topic, 1)), "CommitOffsets of a member")
			_, err := txn.Commit(r.ctx)
			r.Must(err, "Commit")
			id, generation := member.GroupMetadata()
			req := sentTo[*kmsg.TxnOffsetCommitRequest](l, r.A)[0]
			r.Check(req.MemberID == id && req.Generation == generation, "the offsets are not under the member's id and generation")
			member.Close() // which leaves the group
			r.moved(l.begin(cl, topic, "x", r.B), g, topic)
			r.Sees(r.B, topic, "v")
			r.stands(r.A, name, topic, 1)
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Requests("leaves the member out", func(req *kmsg.TxnOffsetCommitRequest) bool {
			req.MemberID, req.InstanceID, req.Generation = "", nil, -1
			return true
		}))},
	},
	{
		ID: "INTER-14", Clauses: []string{"C-CLI-7"}, Needs: libraries,
		Title: "Each answer that says that the group has moved on aborts everywhere", Means: "Records are processed twice, and both times committed.",
		Run: func(r *Run) {
			codes := make(chan *kerr.Error, 1)
			l := r.library(nil).listen(func(_ *Participant, x *proxy.Exchange) {
				if resp, ok := x.Response.(*kmsg.TxnOffsetCommitResponse); ok {
					code := <-codes
					codes <- code
					everywhere(resp, code.Code)
					x.Changed()
				}
			})
			topic, name := r.Topic(r.A, r.B), r.ID()
			cl, g := l.open(r.ID()), r.group(r.A, name)
			for _, code := range []*kerr.Error{kerr.IllegalGeneration, kerr.StaleMemberEpoch, kerr.UnknownMemberID, kerr.FencedInstanceID, kerr.RebalanceInProgress} {
				codes <- code
				r.moved(l.begin(cl, topic, "x", r.B), g, topic)
				<-codes
			}
			r.Sees(r.B, topic)
			got, err := r.A.admin.FetchOffsets(r.ctx, name)
			_, found := got.Lookup(topic, 0)
			r.Check(!found || errors.Is(err, kerr.GroupIDNotFound), "the group has offsets of an aborted transaction")
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Answers("does not read the answer", func(_ *kmsg.TxnOffsetCommitRequest, resp *kmsg.TxnOffsetCommitResponse) bool {
			everywhere(resp, 0)
			return true
		}))},
	},
	{
		ID: "INTER-15", Clauses: []string{"C-CLI-8"}, Needs: libraries,
		Title: "After a transaction with offsets alone the next one goes on, and one that is aborted is ended", Means: "A mirror that has nothing to write is fenced, or stops the readers of offsets.",
		Run: func(r *Run) {
			l, topic, name := r.library(nil).listen(nil), r.Topic(r.A, r.B), r.ID()
			id := r.ID()
			cl, g := l.open(id), r.group(r.A, name)
			commit := func(txn *client.Txn) {
				_, err := txn.Commit(r.ctx)
				r.Must(err, "Commit")
			}
			offsetsAlone := func(offset int64) *client.Txn {
				txn := l.begin(cl, topic, "")
				r.Must(txn.CommitOffsets(r.ctx, g, at(topic, offset)), "CommitOffsets")
				return txn
			}
			commit(offsetsAlone(1))
			commit(l.begin(cl, topic, "v", r.A))
			r.stands(r.A, name, topic, 1)
			_, err := offsetsAlone(2).Abort(r.ctx)
			r.Must(err, "Abort")
			state := r.State(r.A, id).State
			r.Check(state != "Ongoing", "an aborted transaction with offsets alone is %s", state)
			commit(l.begin(cl, topic, "w", r.A))
			r.stands(r.A, name, topic, 1)
			r.Sees(r.A, topic, "v", "w")
		},
		Wrong: []wrong.Fault{wrong.Client(wrong.Does("sends no abort where it has written no record", false, func(x *proxy.Exchange) {
			if req, ok := x.Request.(*kmsg.EndTxnRequest); ok && !req.Commit {
				x.Answer(ended(req))
			}
		}))},
	},
}

// moved fails unless the group has moved on for the transaction, which is
// aborted for it.
func (r *Run) moved(txn *client.Txn, g client.Group, topic string) {
	err := txn.CommitOffsets(r.ctx, g, at(topic, 7))
	_, stale := errors.AsType[*client.StaleGroupError](err)
	r.Check(stale, "CommitOffsets returned %v", err)
	_, err = txn.Commit(r.ctx)
	_, aborted := errors.AsType[*client.AbortedError](err)
	r.Check(aborted, "Commit after that returned %v", err)
}

// stands waits until the group stands at the offset.
func (r *Run) stands(p *Participant, group, topic string, offset int64) {
	r.Until("the committed offset", func() (bool, string) {
		got, err := p.admin.FetchOffsets(r.ctx, group)
		if err != nil {
			return false, err.Error()
		}
		o, found := got.Lookup(topic, 0)
		return found && o.At == offset, "not there"
	})
}

// client is a kgo client of a participant, as an application has it for its
// consumer; a wrong client is told other things by it.
func (r *Run) client(p *Participant, opts ...kgo.Opt) *kgo.Client {
	link, err := proxy.Listen(r.ctx, "127.0.0.1:0", p.target.Bootstrap, proxy.Hooks{Answer: r.wrongClient.Answer})
	r.Must(err, "listening before a cluster")
	r.later(link.Close)
	cl, err := kgo.NewClient(append(append(p.target.Security.opts(), kgo.SeedBrokers(link.Addr())), opts...)...)
	r.Must(err, "a client of a cluster")
	r.later(cl.Close)
	return cl
}

// group is one without members.
func (r *Run) group(p *Participant, name string) client.Group {
	g, err := client.StandaloneGroup(r.ctx, r.client(p), name)
	r.Must(err, "asking for the cluster of a group")
	return g
}

func at(topic string, offset int64) map[string]map[int32]kgo.EpochOffset {
	return map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}}
}

func everywhere(resp *kmsg.TxnOffsetCommitResponse, code int16) {
	for i := range resp.Topics {
		for k := range resp.Topics[i].Partitions {
			resp.Topics[i].Partitions[k].ErrorCode = code
		}
	}
}

// offsetsTaken is an answer in the cluster's place.
func offsetsTaken(req *kmsg.TxnOffsetCommitRequest) kmsg.Response {
	resp := kmsg.NewPtrTxnOffsetCommitResponse()
	for _, t := range req.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition = p.Partition
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// ended is the answer to an EndTxn that nobody has carried out.
func ended(req *kmsg.EndTxnRequest) kmsg.Response {
	resp := kmsg.NewPtrEndTxnResponse()
	resp.ProducerID, resp.ProducerEpoch = req.ProducerID, req.ProducerEpoch+1
	return resp
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
