package conformance

import (
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Producer is a transactional producer by hand: it sends exactly what it is
// told to, in whatever order.
type Producer struct {
	P     *Participant
	ID    string
	PID   int64
	Epoch int16

	r    *Run
	addr string // of the transaction coordinator
	next map[string]int32
}

// busy are the answers after which a cluster wants to be asked again.
var busy = []int16{
	kerr.ConcurrentTransactions.Code, kerr.NotCoordinator.Code, kerr.CoordinatorLoadInProgress.Code, kerr.CoordinatorNotAvailable.Code,
	kerr.NotLeaderForPartition.Code, kerr.UnknownTopicOrPartition.Code, kerr.LeaderNotAvailable.Code,
}

// settle asks until the answer is none of busy.
func (q *Producer) settle(req kmsg.Request, code func(kmsg.Response) int16) (resp kmsg.Response, got int16) {
	q.r.Until(kmsg.NameForKey(req.Key())+" at "+q.P.Name, func() (bool, string) {
		var err error
		if resp, err = q.P.Ask(q.r, q.addr, req); err != nil {
			q.addr = q.P.coordinator(q.r, q.ID)
			return false, err.Error()
		}
		got = code(resp)
		return !slices.Contains(busy, got), codeName(got)
	})
	return resp, got
}

// NoTimeout is the transaction timeout that Kafka never ages out (4.0.0 and older
// do after these 24.8 days).
const NoTimeout = math.MaxInt32 * time.Millisecond

// Producer initialises a producer of the id, which ends and fences whatever the
// id has open there.
func (r *Run) Producer(p *Participant, id string, timeout time.Duration) *Producer {
	q := &Producer{P: p, ID: id, r: r, addr: p.coordinator(r, id), next: map[string]int32{}}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &id, int32(timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	resp, code := q.settle(req, func(resp kmsg.Response) int16 { return resp.(*kmsg.InitProducerIDResponse).ErrorCode })
	r.Check(code == 0, "InitProducerId at %s answered %s", p.Name, codeName(code))
	got := resp.(*kmsg.InitProducerIDResponse)
	q.PID, q.Epoch = got.ProducerID, got.ProducerEpoch
	return q
}

// Write adds the topic to the transaction and writes one record.
func (q *Producer) Write(topic, value string) {
	code := q.TryWrite(topic, value)
	q.r.Check(code == 0, "writing at %s answered %s", q.P.Name, codeName(code))
}

// TryWrite is Write that returns the answer's code.
func (q *Producer) TryWrite(topic, value string) int16 {
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, q.ID, q.PID, q.Epoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = topic, []int32{0}
	add.Topics = append(add.Topics, t)
	_, code := q.settle(add, func(resp kmsg.Response) int16 {
		return resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
	})
	if code != 0 {
		return code
	}
	key := fmt.Sprintf("%s/%d/%d", topic, q.PID, q.Epoch)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.TransactionID, req.Acks, req.TimeoutMillis = 9, &q.ID, -1, 30_000
	rt, rp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	rp.Records = batch(q.PID, q.Epoch, q.next[key], value)
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	_, code = q.settle(req, func(resp kmsg.Response) int16 {
		return resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	})
	q.next[key]++
	return code
}

// Offset commits a group offset of the topic in the transaction.
func (q *Producer) Offset(group, topic string, offset int64) {
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = 3, q.ID, q.PID, q.Epoch, group
	_, code := q.settle(add, func(resp kmsg.Response) int16 { return resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode })
	q.r.Check(code == 0, "AddOffsetsToTxn at %s answered %s", q.P.Name, codeName(code))
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = q.ID, group, q.PID, q.Epoch
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset = offset
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	q.r.Until("TxnOffsetCommit at "+q.P.Name, func() (bool, string) {
		resp, err := req.RequestWith(q.r.ctx, q.P.client) // which finds the group's coordinator
		if err != nil {
			return false, err.Error()
		}
		c := resp.Topics[0].Partitions[0].ErrorCode
		return c == 0, codeName(c)
	})
}

// End ends the transaction by the producer itself, as a client does that has
// not asked the coordinator: in the version that goes with the cluster's
// transaction.version. It returns the answer's code, and takes the next epoch.
func (q *Producer) End(commit bool) int16 {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = q.P.EndTxn, q.ID, q.PID, q.Epoch, commit
	resp, code := q.settle(req, func(resp kmsg.Response) int16 { return resp.(*kmsg.EndTxnResponse).ErrorCode })
	if got := resp.(*kmsg.EndTxnResponse); code == 0 && got.Version >= 5 && got.ProducerID >= 0 {
		q.PID, q.Epoch = got.ProducerID, got.ProducerEpoch
	}
	return code
}

// Ref names the producer's transaction.
func (q *Producer) Ref() wire.EndGlobalTxnRequestParticipant {
	return wire.EndGlobalTxnRequestParticipant{ClusterID: q.P.ID, ProducerID: q.PID, ProducerEpoch: q.Epoch}
}

// batch is one transactional record.
func batch(producerID int64, epoch int16, sequence int32, value string) []byte {
	return recordBatch(producerID, epoch, sequence, 0x10, kmsg.Record{Value: []byte(value)})
}

func recordBatch(producerID int64, epoch int16, sequence int32, attributes int16, records ...kmsg.Record) []byte {
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: attributes, FirstTimestamp: now, MaxTimestamp: now, FirstSequence: sequence,
		ProducerID: producerID, ProducerEpoch: epoch, NumRecords: int32(len(records)), LastOffsetDelta: int32(len(records) - 1),
	}
	for i, r := range records {
		r.OffsetDelta = int32(i)
		r.Length = 0
		r.Length = int32(len(r.AppendTo(nil)) - 1) // the length of 0 is one byte
		b.Records = r.AppendTo(b.Records)
	}
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)
	b.CRC = int32(crc32.Checksum(b.AppendTo(nil)[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}

// Ends is a rule that counts and remembers the EndTxn that the coordinator
// sends, leaving out those by which InitGlobalTxn asks whether it may (producer
// id -1).
type Ends struct {
	r  *Run
	at chan *kmsg.EndTxnRequest
}

// Listen remembers the EndTxn of the coordinator at p, with a hook for each that
// may be nil.
func (r *Run) Listen(p *Participant, f func(n int, x *proxy.Exchange, req *kmsg.EndTxnRequest)) *Ends {
	e := &Ends{r: r, at: make(chan *kmsg.EndTxnRequest, 10_000)}
	n := make(chan int, 1)
	n <- 0
	p.OnRequest(r, func(x *proxy.Exchange) {
		req, ok := x.Request.(*kmsg.EndTxnRequest)
		if !ok || req.ProducerID < 0 {
			return
		}
		i := <-n + 1
		n <- i
		e.at <- req
		if f != nil {
			f(i, x, req)
		}
	})
	return e
}

// All are those that came since the last call.
func (e *Ends) All() (all []*kmsg.EndTxnRequest) {
	for {
		select {
		case req := <-e.at:
			all = append(all, req)
		default:
			return all
		}
	}
}

// First waits for one.
func (e *Ends) First() *kmsg.EndTxnRequest {
	select {
	case req := <-e.at:
		return req
	case <-e.r.ctx.Done():
		e.r.Failf("no EndTxn came")
		return nil
	}
}

// refuse is the answer to an EndTxn in the participant's place.
func refuse(code *kerr.Error) kmsg.Response {
	resp := kmsg.NewPtrEndTxnResponse()
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = code.Code, -1, -1
	return resp
}
