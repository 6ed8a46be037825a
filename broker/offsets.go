package broker

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"unicode/utf16"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetsTopic is that of the group offsets.
const offsetsTopic = "__consumer_offsets"

// maxOffsetMetadata is Kafka's default of offset.metadata.max.bytes, which in
// spite of its name counts the characters of Java.
const maxOffsetMetadata = 4096

func tooLargeMetadata(m *string) bool {
	return m != nil && len(*m) > maxOffsetMetadata && len(utf16.Encode([]rune(*m))) > maxOffsetMetadata
}

// guardOffsetCommit refuses offsets with more metadata than Kafka takes. kfake
// takes any: it would be in memory, in groups.log and in every answer from then
// on. 150 commits of 400 kB cost others 8 s. It refuses one that comes twice, too
// (see once); Kafka keeps the last.
func (f *Front) guardOffsetCommit(body *kmsg.OffsetCommitRequest) refusal {
	var out refusal
	left, seen := 0, make(once[offsetPlace])
	for i := range body.Topics {
		t := &body.Topics[i]
		out = out.and(takeOut(&t.Partitions, func(p kmsg.OffsetCommitRequestTopicPartition) (kmsg.OffsetCommitResponseTopicPartition, bool) {
			a := kmsg.NewOffsetCommitResponseTopicPartition()
			a.Partition = p.Partition
			switch {
			case tooLargeMetadata(p.Metadata):
				a.ErrorCode = kerr.OffsetMetadataTooLarge.Code
			case seen.again(offsetPlace{t.Topic, t.TopicID, p.Partition}):
				a.ErrorCode = kerr.InvalidRequest.Code
			}
			return a, a.ErrorCode != 0
		}, func(r *kmsg.OffsetCommitResponse) *[]kmsg.OffsetCommitResponseTopicPartition {
			at := slices.IndexFunc(r.Topics, func(a kmsg.OffsetCommitResponseTopic) bool { return a.Topic == t.Topic && a.TopicID == t.TopicID })
			if at < 0 {
				a := kmsg.NewOffsetCommitResponseTopic()
				a.Topic, a.TopicID = t.Topic, t.TopicID
				at, r.Topics = len(r.Topics), append(r.Topics, a)
			}
			return &r.Topics[at].Partitions
		}))
		left += len(t.Partitions)
	}
	return out.ofAll(body, left)
}

// offsetPlace is what an offset of a group is of.
type offsetPlace struct {
	topic     string
	id        [16]byte
	partition int32
}

// guardOffsetDelete refuses a partition that comes twice (see once).
func (f *Front) guardOffsetDelete(body *kmsg.OffsetDeleteRequest) refusal {
	var out refusal
	left, seen := 0, make(once[offsetPlace])
	for i := range body.Topics {
		t := &body.Topics[i]
		out = out.and(takeOut(&t.Partitions, func(p kmsg.OffsetDeleteRequestTopicPartition) (kmsg.OffsetDeleteResponseTopicPartition, bool) {
			a := kmsg.NewOffsetDeleteResponseTopicPartition()
			a.Partition, a.ErrorCode = p.Partition, kerr.InvalidRequest.Code
			return a, seen.again(offsetPlace{topic: t.Topic, partition: p.Partition})
		}, func(r *kmsg.OffsetDeleteResponse) *[]kmsg.OffsetDeleteResponseTopicPartition {
			at := slices.IndexFunc(r.Topics, func(a kmsg.OffsetDeleteResponseTopic) bool { return a.Topic == t.Topic })
			if at < 0 {
				a := kmsg.NewOffsetDeleteResponseTopic()
				a.Topic = t.Topic
				at, r.Topics = len(r.Topics), append(r.Topics, a)
			}
			return &r.Topics[at].Partitions
		}))
		left += len(t.Partitions)
	}
	return out.ofAll(body, left)
}

// guardTxnOffsetCommit is guardOffsetCommit of the offsets of a transaction, of
// which kfake keeps the last of each.
func (f *Front) guardTxnOffsetCommit(body *kmsg.TxnOffsetCommitRequest) refusal {
	if r := f.guardProducer(body); r.whole != nil {
		return r
	}
	var out refusal
	left := 0
	for i := range body.Topics {
		t := &body.Topics[i]
		out = out.and(takeOut(&t.Partitions, func(p kmsg.TxnOffsetCommitRequestTopicPartition) (kmsg.TxnOffsetCommitResponseTopicPartition, bool) {
			a := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			a.Partition, a.ErrorCode = p.Partition, kerr.OffsetMetadataTooLarge.Code
			return a, tooLargeMetadata(p.Metadata)
		}, func(r *kmsg.TxnOffsetCommitResponse) *[]kmsg.TxnOffsetCommitResponseTopicPartition {
			at := slices.IndexFunc(r.Topics, func(a kmsg.TxnOffsetCommitResponseTopic) bool { return a.Topic == t.Topic && a.TopicID == t.TopicID })
			if at < 0 {
				a := kmsg.NewTxnOffsetCommitResponseTopic()
				a.Topic, a.TopicID = t.Topic, t.TopicID
				at, r.Topics = len(r.Topics), append(r.Topics, a)
			}
			return &r.Topics[at].Partitions
		}))
		left += len(t.Partitions)
	}
	return out.ofAll(body, left)
}

// routeTxnOffsetCommit leaves a trace of group offsets in the log, as Kafka does.
//
// kfake keeps the offsets of a transaction in memory, and its end writes a
// control marker to the partitions with records only. Counter-example: of a
// transaction of offsets alone a coordinator has recorded the decision and not
// yet the end, and is killed. Its successor asks again, and finds that the
// producer has gone on; what proves that it had committed before is the marker,
// and without one nobody can tell. So a record of the producer's goes to
// offsets topic, partition 0, for which kfake then writes a marker.
//
// From version 5 on an epoch names one transaction: a record of sequence 0 is
// written once, and taken for a duplicate of itself with further offsets. Below
// it an epoch goes on, and the trace is left out.
func (f *Front) routeTxnOffsetCommit(body *kmsg.TxnOffsetCommitRequest) plan {
	planned := f.routeTransaction(body)
	if planned.handle != nil || body.Version < 5 {
		return planned
	}
	planned.edit = editAs(func(r *kmsg.TxnOffsetCommitResponse) kmsg.Response {
		if !staged(r) {
			return r
		}
		if err := f.opts.Embedded.traceOffsets(f.ctx, body.TransactionalID, pair{body.ProducerID, body.ProducerEpoch}); err != nil {
			return refuseTransaction(body, kerr.CoordinatorNotAvailable) // they are sent again
		}
		return r
	})
	return planned
}

// staged says that kfake took at least one offset.
func staged(r *kmsg.TxnOffsetCommitResponse) bool {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				return true
			}
		}
	}
	return false
}

// traceOffsets writes the record, stamped with the begin of the transaction, and
// creates the topic where there is none.
func (e *Embedded) traceOffsets(ctx context.Context, id string, at pair) error {
	began, err := e.openSince(ctx, id, at)
	if err != nil {
		return err
	}
	for range 2 {
		code, err := e.produceTrace(ctx, id, trace(at, began))
		switch {
		case err != nil:
			return err
		case code == 0:
			return nil
		case code != kerr.UnknownTopicOrPartition.Code:
			return kerr.ErrorForCode(code)
		}
		create := kmsg.NewPtrCreateTopicsRequest()
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = offsetsTopic, 1, 1
		create.Topics, create.TimeoutMillis = append(create.Topics, t), 10_000
		if _, err = e.ask(ctx, create); err != nil { // one that is there by now is fine
			return err
		}
	}
	return fmt.Errorf("topic %s could not be created", offsetsTopic)
}

// openSince is when the transaction of a producer began, in milliseconds. kfake
// would take a record of an older epoch for the begin of the next transaction,
// which nobody ends.
func (e *Embedded) openSince(ctx context.Context, id string, at pair) (int64, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := e.ask(ctx, req)
	if err != nil {
		return 0, err
	}
	s := resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
	if s.State != "Ongoing" || at != (pair{s.ProducerID, s.ProducerEpoch}) {
		return 0, fmt.Errorf("the transaction of %q has ended", id)
	}
	return s.StartTimestamp, nil
}

func (e *Embedded) produceTrace(ctx context.Context, id string, batch []byte) (int16, error) {
	req := kmsg.NewPtrProduceRequest()
	req.Version = 12 // the last one with names, and the first that adds the partition by itself
	req.TransactionID, req.Acks, req.TimeoutMillis = &id, -1, 10_000
	t, p := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	t.Topic, p.Records = offsetsTopic, batch
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := e.ask(ctx, req)
	if err != nil {
		return 0, err
	}
	return resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode, nil
}

// trace is a transactional batch of one empty record.
func trace(at pair, millis int64) []byte {
	const transactional = 1 << 4
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: transactional,
		FirstTimestamp: millis, MaxTimestamp: millis,
		ProducerID: at.id, ProducerEpoch: at.epoch, NumRecords: 1,
		Records: (&kmsg.Record{Length: 6}).AppendTo(nil),
	}
	raw := b.AppendTo(nil)
	const beforeLength, beforeCRC, sizeOfCRC = 12, 17, 4
	binary.BigEndian.PutUint32(raw[beforeLength-4:], uint32(len(raw)-beforeLength))
	crc := crc32.Checksum(raw[beforeCRC+sizeOfCRC:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(raw[beforeCRC:], crc)
	return raw
}
