package participant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

const (
	// auditBackMillis is how much earlier than the transaction's start the
	// audit begins to read; more than any skew, and cheap.
	auditBackMillis = 60_000
	auditBytes      = 1 << 20 // of one Fetch
	auditWaitMillis = 100
)

// audit reads p's audit partition for the control record that ended it. The error
// is verdict.ErrNoMarker when the markers do not tell, and any other when it should
// be tried again.
func (s *session) audit(ctx context.Context, p txnlog.Participant, version int16) (commit bool, err error) {
	node, err := s.leader(ctx, p.AuditTopic, p.AuditPartition)
	if err != nil {
		return false, err
	}
	if _, err = s.verify(ctx, node); err != nil {
		return false, err
	}
	at, err := s.offsetAt(ctx, node, p)
	if err != nil {
		return false, err
	}
	search := markerSearch{*verdict.NewMarkers(p, version)}
	for end := at + 1; at < end; {
		var records []byte
		if records, end, err = s.read(ctx, node, p, at); err != nil {
			return false, err
		}
		next, found := search.feed(records, at)
		if found {
			break
		}
		if next == at && at < end {
			return false, fmt.Errorf("%w: offset %d holds no readable batch", verdict.ErrNoMarker, at)
		}
		at = next
	}
	return search.Result()
}

// leader is the broker that leads the partition.
func (s *session) leader(ctx context.Context, topic string, partition int32) (int32, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, s.cl)
	if err != nil {
		return 0, fmt.Errorf("looking up the leader: %w", err)
	}
	for _, t := range resp.Topics {
		if err := auditError(t.ErrorCode); err != nil {
			return 0, err
		}
		for _, p := range t.Partitions {
			if p.Partition == partition {
				return p.Leader, auditError(p.ErrorCode)
			}
		}
	}
	return 0, fmt.Errorf("%w: the topic has no such partition any more", verdict.ErrNoMarker)
}

// auditError tells what will not get better by asking again from what will. A
// right that is missing will: once it is granted the partition proves the outcome,
// and to call that unknown before would tear the transaction for good.
func auditError(code int16) error {
	err := kerr.ErrorForCode(code)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.OffsetOutOfRange):
		return fmt.Errorf("%w: %w", verdict.ErrNoMarker, err)
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		return fmt.Errorf("operator: grant the coordinator's principal READ and DESCRIBE on the topic, until then nobody knows how it ended: %w", err)
	default:
		return err
	}
}

// offsetAt is an offset at or before the marker: the first record stamped at or
// after the transaction's start, less a margin. The marker itself is stamped by
// a broker after the start, so the search cannot go past it, however the
// application stamped its own records.
func (s *session) offsetAt(ctx context.Context, node int32, p txnlog.Participant) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = p.AuditTopic
	part := kmsg.NewListOffsetsRequestTopicPartition()
	part.Partition, part.CurrentLeaderEpoch = p.AuditPartition, -1
	part.Timestamp = max(p.StartMillis-auditBackMillis, 0)
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	resp, err := ask[*kmsg.ListOffsetsResponse](ctx, s, node, req)
	if err != nil {
		return 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errors.New("ListOffsets: the answer leaves the partition out")
	}
	got := resp.Topics[0].Partitions[0]
	if err := auditError(got.ErrorCode); err != nil {
		return 0, err
	}
	if got.Offset < 0 {
		return 0, fmt.Errorf("%w: nothing was written since it began", verdict.ErrNoMarker)
	}
	return got.Offset, nil
}

// read fetches from one offset. It returns the batches and the high watermark.
func (s *session) read(ctx context.Context, node int32, p txnlog.Participant, at int64) ([]byte, int64, error) {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = auditWaitMillis, 1, auditBytes
	req.IsolationLevel = 0 // all records: a later open transaction must not hide the marker
	t := kmsg.NewFetchRequestTopic()
	t.Topic = p.AuditTopic
	part := kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes = p.AuditPartition, at, auditBytes
	t.Partitions = append(t.Partitions, part)
	req.Topics = append(req.Topics, t)
	// From version 13 on topics are named by topic id.
	resp, err := ask[*kmsg.FetchResponse](ctx, s, node, pin(req, 12))
	if err != nil {
		return nil, 0, err
	}
	if err = kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, 0, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, 0, errors.New("the answer to Fetch leaves the partition out")
	}
	got := resp.Topics[0].Partitions[0]
	return got.RecordBatches, got.HighWatermark, auditError(got.ErrorCode)
}

// A markerSearch reads the batches that verdict.Markers judges.
type markerSearch struct{ verdict.Markers }

const (
	batchHeader  = 12 // base offset and length, which the length does not count
	controlBatch = 1 << 5
)

// feed takes what one Fetch from offset at returned. It returns the next offset
// to read and whether the search is over. A batch cut off at the end is left
// for the next Fetch.
func (m *markerSearch) feed(records []byte, at int64) (next int64, found bool) {
	next = at
	for len(records) >= batchHeader+5 && !m.Found() {
		size := batchHeader + int(int32(binary.BigEndian.Uint32(records[8:])))
		if size < batchHeader+5 || size > len(records) {
			break
		}
		var b kmsg.RecordBatch
		if magic := records[16]; magic < 2 {
			// Message formats without transactions; one message each.
			next = max(next, int64(binary.BigEndian.Uint64(records))+1)
		} else if err := b.ReadFrom(records[:size]); err != nil {
			break
		} else {
			if last := b.FirstOffset + int64(b.LastOffsetDelta); last >= at {
				m.batch(&b)
			}
			next = max(next, b.FirstOffset+int64(b.LastOffsetDelta)+1)
		}
		records = records[size:]
	}
	return next, m.Found()
}

func (m *markerSearch) batch(b *kmsg.RecordBatch) {
	if b.Attributes&controlBatch == 0 {
		m.Records(b.ProducerID, b.ProducerEpoch)
		return
	}
	var r kmsg.Record
	var key kmsg.ControlRecordKey
	if r.ReadFrom(b.Records) != nil || key.ReadFrom(r.Key) != nil {
		return
	}
	switch kind := int16(key.Type); kind {
	case 0, 1:
		m.Marker(b.ProducerID, b.ProducerEpoch, kind == 1, b.FirstTimestamp)
	default: // not the end of a transaction
	}
}
