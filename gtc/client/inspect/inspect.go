// Package inspect reads what a partition really shows of the transactions of one
// producer: their records and the control records (markers) that ended them,
// read uncommitted. A cluster's transaction coordinator says what was decided,
// which is something else when an operator has written a marker, records were
// deleted, or the topic was created anew.
package inspect

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// End is how a span ended.
type End string

// The ends of a span.
const (
	Open      End = "open"
	Aborted   End = "aborted"
	Committed End = "committed"
)

// Span is what a partition has of one transaction: the records of one producer
// epoch, up to the marker that ended them.
type Span struct {
	Epoch    int16 // of the records; -1 when there is a marker and no record
	Records  int64
	First    int64 // offset of the first record, -1 without, as the next three
	Last     int64 // of the last one
	Sequence int32 // producer's number of the first one; a new epoch begins at 0
	Millis   int64 // the first one's time, mostly by the producer's clock

	End               End
	MarkerOffset      int64 // -1 while open, as the next three
	MarkerEpoch       int16
	MarkerMillis      int64 // its time by the partition leader's clock
	MarkerCoordinator int32 // the coordinator epoch under which it was written
}

// Partition is what a partition shows.
type Partition struct {
	TopicID  [16]byte
	LogStart int64 // its first offset
	LogEnd   int64 // its high watermark when the reading began
	From     int64 // where the reading began
	Spans    []Span
}

// Question is what is to be read.
type Question struct {
	Topic      string
	Partition  int32
	ProducerID int64
	From       int64 // the first offset; what lies before the log's start is not there
	// Enough ends the reading after a span that has ended; nil reads on to
	// the log's end.
	Enough func(Span) bool
}

const (
	fetchBytes      = 1 << 20
	fetchWaitMillis = 100
	fetchVersion    = 12 // from the next one on topics have ids and no names

	batchHeader  = 12 // base offset and length, which the length does not count
	batchMagic   = 16 // offset of the magic byte
	controlBatch = 1 << 5

	earliest, latest = -2, -1 // of ListOffsets
)

// Read answers a question. A topic that is gone is UNKNOWN_TOPIC_OR_PARTITION of
// kerr; whoever may not read it gets TOPIC_AUTHORIZATION_FAILED. It reads the
// headers of all batches from From on, whoever wrote them.
func Read(ctx context.Context, cl *kgo.Client, q Question) (Partition, error) {
	p, err := read(ctx, cl, q)
	if err != nil {
		return Partition{}, fmt.Errorf("%s-%d: %w", q.Topic, q.Partition, err)
	}
	return p, nil
}

func read(ctx context.Context, cl *kgo.Client, q Question) (Partition, error) {
	node, topicID, err := leader(ctx, cl, q)
	if err != nil {
		return Partition{}, err
	}
	p := Partition{TopicID: topicID}
	if p.LogStart, err = offset(ctx, node, q, earliest); err != nil {
		return Partition{}, err
	}
	if p.LogEnd, err = offset(ctx, node, q, latest); err != nil {
		return Partition{}, err
	}
	p.From = max(q.From, p.LogStart)
	s := search{producerID: q.ProducerID, from: p.From, enough: q.Enough}
	for at := p.From; at < p.LogEnd && !s.over; {
		batches, err := fetch(ctx, node, q, at)
		if err != nil {
			return Partition{}, err
		}
		next, err := s.feed(batches, at)
		if err != nil {
			return Partition{}, err
		}
		at = next
	}
	p.Spans = s.spans
	return p, nil
}

// leader finds who leads the partition.
func leader(ctx context.Context, cl *kgo.Client, q Question) (*kgo.Broker, [16]byte, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &q.Topic
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, [16]byte{}, err
	}
	for _, t := range resp.Topics {
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return nil, t.TopicID, err
		}
		for _, p := range t.Partitions {
			if p.Partition == q.Partition {
				return cl.Broker(int(p.Leader)), t.TopicID, kerr.ErrorForCode(p.ErrorCode)
			}
		}
	}
	return nil, [16]byte{}, kerr.UnknownTopicOrPartition
}

// offset asks ListOffsets.
func offset(ctx context.Context, node *kgo.Broker, q Question, timestamp int64) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = q.Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.CurrentLeaderEpoch, p.Timestamp = q.Partition, -1, timestamp
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, node)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("the answer to ListOffsets leaves the partition out")
	}
	got := resp.Topics[0].Partitions[0]
	return got.Offset, kerr.ErrorForCode(got.ErrorCode)
}

// OpenTransaction is what a producer has open in a partition, as its leader says.
type OpenTransaction struct {
	From  int64 // its first offset; -1 when nothing is open
	Epoch int16
}

// Ongoing asks the partition's leader (DescribeProducers) what a producer has
// open there.
func Ongoing(ctx context.Context, cl *kgo.Client, topic string, partition int32, producerID int64) (OpenTransaction, error) {
	open, err := ongoing(ctx, cl, Question{Topic: topic, Partition: partition, ProducerID: producerID})
	if err != nil {
		return OpenTransaction{}, fmt.Errorf("%s-%d: %w", topic, partition, err)
	}
	return open, nil
}

func ongoing(ctx context.Context, cl *kgo.Client, q Question) (open OpenTransaction, err error) {
	node, _, err := leader(ctx, cl, q)
	if err != nil {
		return open, err
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = q.Topic, []int32{q.Partition}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, node)
	if err != nil {
		return open, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return open, errors.New("the answer to DescribeProducers leaves the partition out")
	}
	got := resp.Topics[0].Partitions[0]
	open.From = -1
	for _, p := range got.ActiveProducers {
		if p.ProducerID == q.ProducerID {
			open = OpenTransaction{From: p.CurrentTxnStartOffset, Epoch: int16(p.ProducerEpoch)}
		}
	}
	return open, kerr.ErrorForCode(got.ErrorCode)
}

// OffsetAt is the offset of the first record or marker that is stamped at a time
// (ms) or later, and the log's end when there is none.
func OffsetAt(ctx context.Context, cl *kgo.Client, topic string, partition int32, millis int64) (int64, error) {
	q := Question{Topic: topic, Partition: partition}
	node, _, err := leader(ctx, cl, q)
	if err != nil {
		return 0, fmt.Errorf("%s-%d: %w", topic, partition, err)
	}
	at, err := offset(ctx, node, q, max(millis, 0))
	if err == nil && at < 0 {
		at, err = offset(ctx, node, q, latest)
	}
	if err != nil {
		return 0, fmt.Errorf("%s-%d: %w", topic, partition, err)
	}
	return at, nil
}

// pinned has kgo choose the version of Fetch that names topics.
type pinned struct{ *kmsg.FetchRequest }

func (pinned) MaxVersion() int16 { return fetchVersion }

// fetch reads batches from one offset on.
func fetch(ctx context.Context, node *kgo.Broker, q Question, at int64) ([]byte, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = fetchWaitMillis, 1, fetchBytes
	req.IsolationLevel = 0 // read uncommitted
	t := kmsg.NewFetchRequestTopic()
	t.Topic = q.Topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = q.Partition, at, fetchBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	got, err := node.Request(ctx, pinned{req})
	if err != nil {
		return nil, err
	}
	resp, ok := got.(*kmsg.FetchResponse)
	if !ok || len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		if ok && resp.ErrorCode != 0 {
			return nil, kerr.ErrorForCode(resp.ErrorCode)
		}
		return nil, errors.New("the answer to Fetch leaves the partition out")
	}
	part := resp.Topics[0].Partitions[0]
	return part.RecordBatches, errors.Join(kerr.ErrorForCode(resp.ErrorCode), kerr.ErrorForCode(part.ErrorCode))
}

// search collects the spans of one producer from batches in order.
type search struct {
	producerID int64
	from       int64
	enough     func(Span) bool
	spans      []Span
	over       bool
}

var errNoBatch = errors.New("no batch can be read there")

// feed takes what one Fetch from offset at returned, and returns the next offset
// to read. A batch cut off at the end is left for the next Fetch.
func (s *search) feed(records []byte, at int64) (next int64, err error) {
	next = at
	for len(records) > batchMagic && !s.over {
		size := batchHeader + int(int32(binary.BigEndian.Uint32(records[8:])))
		if size <= batchMagic || size > len(records) {
			break
		}
		var b kmsg.RecordBatch
		if records[batchMagic] < 2 { // without transactions, one message each
			next = max(next, int64(binary.BigEndian.Uint64(records))+1)
		} else if err := b.ReadFrom(records[:size]); err != nil {
			break
		} else if last := b.FirstOffset + int64(b.LastOffsetDelta); last >= at {
			s.batch(&b)
			next = max(next, last+1)
		}
		records = records[size:]
	}
	if next == at && !s.over {
		return at, fmt.Errorf("offset %d: %w", at, errNoBatch)
	}
	return next, nil
}

func (s *search) batch(b *kmsg.RecordBatch) {
	if b.ProducerID != s.producerID {
		return
	}
	last := b.FirstOffset + int64(b.LastOffsetDelta)
	if b.Attributes&controlBatch == 0 {
		// A log may begin inside a batch, which is served as a whole.
		first := max(b.FirstOffset, s.from)
		span := s.current(b.ProducerEpoch)
		if span.Records == 0 {
			span.First, span.Sequence, span.Millis = first, b.FirstSequence+int32(first-b.FirstOffset), b.FirstTimestamp
		}
		span.Epoch, span.Last = b.ProducerEpoch, last
		span.Records += min(int64(b.NumRecords), last-first+1)
		return
	}
	var r kmsg.Record
	var key kmsg.ControlRecordKey
	if r.ReadFrom(b.Records) != nil || key.ReadFrom(r.Key) != nil || key.Type > 1 {
		return // not the end of a transaction
	}
	span := s.current(-1)
	span.End = Aborted
	if key.Type == 1 {
		span.End = Committed
	}
	span.MarkerOffset, span.MarkerEpoch, span.MarkerMillis = b.FirstOffset, b.ProducerEpoch, b.FirstTimestamp
	var value kmsg.EndTxnMarker
	if value.ReadFrom(r.Value) == nil {
		span.MarkerCoordinator = value.CoordinatorEpoch
	}
	s.over = s.enough != nil && s.enough(*span)
}

// current is the span that a batch belongs to: the open one, or one that begins.
// Records of another epoch are another transaction's, also when the marker
// between them was left out.
func (s *search) current(epoch int16) *Span {
	if n := len(s.spans); n > 0 && s.spans[n-1].End == Open && (epoch < 0 || s.spans[n-1].Epoch == epoch) {
		return &s.spans[n-1]
	}
	s.spans = append(s.spans, Span{
		Epoch: -1, First: -1, Last: -1, Sequence: -1, Millis: -1,
		End: Open, MarkerOffset: -1, MarkerEpoch: -1, MarkerMillis: -1, MarkerCoordinator: -1,
	})
	return &s.spans[len(s.spans)-1]
}
