package participant

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// The audit reads one partition that the transaction wrote to and looks for the
// control record that ended it. It is the last resort, when the transaction
// coordinator of the cluster has gone on: an application was initialised anew
// after an outcome that we have not heard of.
const (
	// auditTries is how often an audit must find nothing before that is
	// believed. A new leader learns within replica.fetch.wait.max.ms (500 ms)
	// up to where its log is safe to read; with the coordinator's back-off
	// (20 ms, doubled) three tries would be over after 60 ms, seven are after
	// more than a second.
	auditTries = 7
	// clockSkewMillis is how far the clocks of two brokers of one cluster may
	// be apart: the start of a transaction is of the transaction
	// coordinator's clock, a marker's time of the partition leader's.
	clockSkewMillis = 1000
	// auditBackMillis is how much earlier than the transaction's start the
	// audit begins to read; more than any skew, and cheap.
	auditBackMillis = 60_000
	auditBytes      = 1 << 20 // of one Fetch
	auditWaitMillis = 100
)

// errNoMarker: the partition has been read to its end, or is gone, and proves
// nothing.
var errNoMarker = errors.New("no control marker proves how it ended")

// audit reads control markers of p's audit partition. It returns committed or
// aborted; errNoMarker when the markers do not tell; and any other error when
// it should be tried again.
func (s *session) audit(ctx context.Context, p txnlog.Participant, version int16) (finding, error) {
	node, err := s.leader(ctx, p.AuditTopic, p.AuditPartition)
	if err != nil {
		return movedOn, err
	}
	if _, err = s.verify(ctx, node); err != nil {
		return movedOn, err
	}
	at, err := s.offsetAt(ctx, node, p)
	if err != nil {
		return movedOn, err
	}
	search := newMarkerSearch(p, version)
	for end := at + 1; at < end; {
		var records []byte
		if records, end, err = s.read(ctx, node, p, at); err != nil {
			return movedOn, err
		}
		next, found := search.feed(records, at)
		if found {
			break
		}
		if next == at && at < end {
			return movedOn, fmt.Errorf("%w: offset %d holds no readable batch", errNoMarker, at)
		}
		at = next
	}
	return search.result()
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
	return 0, fmt.Errorf("%w: the topic has no such partition any more", errNoMarker)
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
		return fmt.Errorf("%w: %w", errNoMarker, err)
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
		return 0, fmt.Errorf("%w: nothing was written since it began", errNoMarker)
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

// A markerSearch is fed the batches of a partition in order and finds the
// marker that ended p.
//
// Which transaction does a marker end? The one whose records precede it: the
// first marker of a producer id after records of (producer id, epoch E) ends
// E's transaction. Where no record was seen (the application stamped them far
// in the past, and reading began after them), version 5 markers carry E+1,
// also those of a timeout or a fence (measured on 4.4.0); version 4 markers
// carry E, and E+1 when a fence aborted it (measured on 4.4.0 at
// transaction.version 1 and on 3.9.1).
//
// Version 5: that names one transaction. Version 4: E may have had transactions
// before and after, so time decides: the marker of the one before is older than
// the start, the marker of p younger. Within the skew of the brokers' clocks
// both are possible, and the answer counts only if they agree.
type markerSearch struct {
	p       txnlog.Participant
	version int16
	// records is the epoch of the producer's records seen since its last
	// marker, -1 when none.
	records int16
	// near are the outcomes that the markers close to the start speak for.
	near  []finding
	found bool
}

func newMarkerSearch(p txnlog.Participant, version int16) *markerSearch {
	return &markerSearch{p: p, version: version, records: -1}
}

const (
	batchHeader  = 12 // base offset and length, which the length does not count
	controlBatch = 1 << 5
)

// feed takes what one Fetch from offset at returned. It returns the next offset
// to read and whether the search is over. A batch cut off at the end is left
// for the next Fetch.
func (m *markerSearch) feed(records []byte, at int64) (next int64, found bool) {
	next = at
	for len(records) >= batchHeader+5 && !m.found {
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
	return next, m.found
}

func (m *markerSearch) batch(b *kmsg.RecordBatch) {
	if b.ProducerID != m.p.ProducerID {
		return
	}
	if b.Attributes&controlBatch == 0 {
		m.records = b.ProducerEpoch
		return
	}
	var r kmsg.Record
	var key kmsg.ControlRecordKey
	if r.ReadFrom(b.Records) != nil || key.ReadFrom(r.Key) != nil {
		return
	}
	var how finding
	switch int16(key.Type) {
	case 0:
		how = aborted
	case 1:
		how = committed
	default:
		return // not the end of a transaction
	}
	m.marker(how, b.ProducerEpoch, b.FirstTimestamp)
}

func (m *markerSearch) marker(how finding, epoch int16, millis int64) {
	records := m.records
	m.records = -1
	e := m.p.ProducerEpoch
	if m.version >= endTxnBumps {
		if records == e || records == -1 && epoch == e+1 {
			m.near, m.found = []finding{how}, true
		}
		return
	}
	ours := epoch == e || epoch == e+1 && how == aborted
	if records != -1 {
		ours = records == e
	}
	switch start := m.p.StartMillis; {
	case !ours || millis < start-clockSkewMillis:
	case millis <= start+clockSkewMillis:
		m.near = append(m.near, how)
	default:
		m.near, m.found = append(m.near, how), true
	}
}

func (m *markerSearch) result() (finding, error) {
	if len(m.near) == 0 {
		return movedOn, errNoMarker
	}
	for _, how := range m.near {
		if how != m.near[0] {
			return movedOn, fmt.Errorf("%w: markers of neighbouring transactions disagree", errNoMarker)
		}
	}
	return m.near[0], nil
}
