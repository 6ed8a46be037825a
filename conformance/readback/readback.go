// Package readback says what a read_committed consumer sees on a cluster. It is
// the oracle of the demo and of the tests, so it shares no code with what it
// judges: it speaks through segmentio/kafka-go's protocol layer.
//
// The isolation is applied here, because kafka-go's own Reader does not apply
// it: with IsolationLevel ReadCommitted it asks the broker for nothing above
// the last stable offset, and then hands out aborted records too (measured,
// v0.4.51; it decodes the list of aborted transactions and drops it).
package readback

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/fetch"
)

// Record is one visible record.
type Record struct {
	Partition  int
	Offset     int64
	Key, Value string
}

// Partition is what was seen of one partition.
type Partition struct {
	Records []Record
	// LastStableOffset is where reading ended; HighWatermark is above it
	// while a transaction is open.
	LastStableOffset, HighWatermark int64
}

// Open reports that a transaction holds readers back.
func (p Partition) Open() bool { return p.LastStableOffset < p.HighWatermark }

// Reader reads one cluster.
type Reader struct {
	transport *kafka.Transport
	client    *kafka.Client
	// MaxBytes bounds one fetch of a partition; the broker returns at least
	// one batch whatever it is.
	MaxBytes int32
}

// NewReader returns a reader of the cluster at addr. Close it.
func NewReader(addr string) *Reader { return NewReaderWith(addr, &kafka.Transport{}) }

// NewReaderWith is NewReader over a transport with TLS or a login.
func NewReaderWith(addr string, t *kafka.Transport) *Reader {
	return &Reader{transport: t, client: &kafka.Client{Addr: kafka.TCP(addr), Transport: t}, MaxBytes: 1 << 20}
}

// Close drops the connections.
func (r *Reader) Close() { r.transport.CloseIdleConnections() }

// Topic waits until no transaction is open on the topic and returns all visible
// records, by partition and offset. Until ctx ends it asks again while the
// cluster does not answer, or does not know the topic or its leader: a topic is
// created before every broker knows of it, and a broker that was just started
// closes connections once more while its listeners come up.
func (r *Reader) Topic(ctx context.Context, topic string) ([]Record, error) {
	ids, err := again(ctx, func() ([]int, error) { return r.partitions(ctx, topic) })
	if err != nil {
		return nil, err
	}
	var all []Record
	for _, id := range ids {
		p, err := again(ctx, func() (Partition, error) { return r.settled(ctx, topic, id) })
		if err != nil {
			return nil, err
		}
		all = append(all, p.Records...)
	}
	return all, nil
}

// again repeats ask while its error is one that passes.
func again[T any](ctx context.Context, ask func() (T, error)) (T, error) {
	for {
		got, err := ask()
		if err == nil || ctx.Err() != nil || !passes(err) {
			return got, err
		}
		select {
		case <-ctx.Done():
			return got, errors.Join(err, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// passes reports whether an error may be gone at the next try.
func passes(err error) bool {
	var code kafka.Error
	if errors.As(err, &code) {
		return code.Temporary()
	}
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// pause is between two looks.
const pause = 10 * time.Millisecond

// Values is Topic's values, sorted.
func (r *Reader) Values(ctx context.Context, topic string) ([]string, error) {
	records, err := r.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	values := make([]string, len(records))
	for i, rec := range records {
		values[i] = rec.Value
	}
	slices.Sort(values)
	return values, nil
}

func (r *Reader) partitions(ctx context.Context, topic string) ([]int, error) {
	meta, err := r.client.Metadata(ctx, &kafka.MetadataRequest{Topics: []string{topic}})
	if err != nil {
		return nil, err
	}
	if err := meta.Topics[0].Error; err != nil {
		return nil, fmt.Errorf("topic %s: %w", topic, err)
	}
	var ids []int
	for _, p := range meta.Topics[0].Partitions {
		ids = append(ids, p.ID)
	}
	slices.Sort(ids)
	return ids, nil
}

func (r *Reader) settled(ctx context.Context, topic string, id int) (Partition, error) {
	for {
		p, err := r.Partition(ctx, topic, id, 0)
		if err != nil || !p.Open() {
			return p, err
		}
		select {
		case <-ctx.Done():
			return p, fmt.Errorf("%s-%d: the last stable offset %d stays below the end %d, a transaction is open: %w",
				topic, id, p.LastStableOffset, p.HighWatermark, ctx.Err())
		case <-time.After(pause):
		}
	}
}

// Partition reads one partition from the offset from up to the last stable
// offset of now.
func (r *Reader) Partition(ctx context.Context, topic string, id int, from int64) (Partition, error) {
	var p Partition
	for offset := from; ; {
		resp, err := r.fetch(ctx, topic, id, offset)
		if err != nil {
			return p, fmt.Errorf("%s-%d at %d: %w", topic, id, offset, err)
		}
		p.HighWatermark, p.LastStableOffset = resp.HighWatermark, resp.LastStableOffset
		next, err := visible(&p, resp, id, offset)
		if err != nil {
			return p, fmt.Errorf("%s-%d at %d: %w", topic, id, offset, err)
		}
		if next == offset {
			// Nothing came. Below the last stable offset that can only
			// be a gap that compaction left at the end.
			return p, nil
		}
		offset = next
		if offset >= p.LastStableOffset {
			return p, nil
		}
	}
}

func (r *Reader) fetch(ctx context.Context, topic string, id int, offset int64) (*fetch.ResponsePartition, error) {
	const readCommitted = 1
	resp, err := r.transport.RoundTrip(ctx, r.client.Addr, &fetch.Request{
		// The limit of the partition bites, never that of the request: kfake
		// leaves the list of aborted transactions out when the latter does
		// (01_fetch.go, break full), so that a reader takes them for committed.
		ReplicaID: -1, MaxWaitTime: 100, MinBytes: 1, MaxBytes: math.MaxInt32, IsolationLevel: readCommitted,
		SessionID: 0, SessionEpoch: -1,
		Topics: []fetch.RequestTopic{{Topic: topic, Partitions: []fetch.RequestPartition{{
			Partition: int32(id), CurrentLeaderEpoch: -1, FetchOffset: offset, LogStartOffset: -1, PartitionMaxBytes: r.MaxBytes,
		}}}},
	})
	if err != nil {
		return nil, err
	}
	f, ok := resp.(*fetch.Response)
	if !ok || len(f.Topics) != 1 || len(f.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("unexpected answer to a fetch: %T", resp)
	}
	p := &f.Topics[0].Partitions[0]
	if p.ErrorCode != 0 {
		return nil, kafka.Error(p.ErrorCode)
	}
	return p, nil
}

// visible adds the committed records of one answer to p and returns the offset
// to go on at. It follows the rule of Kafka's consumer: a transaction of the
// answer's list is aborted from its first offset to the abort marker of its
// producer id.
func visible(p *Partition, resp *fetch.ResponsePartition, id int, from int64) (int64, error) {
	pending := slices.SortedFunc(slices.Values(resp.AbortedTransactions), func(a, b fetch.ResponseTransaction) int {
		return cmp.Compare(a.FirstOffset, b.FirstOffset)
	})
	aborted := map[int64]bool{}
	next := from
	for _, batch := range batches(resp.RecordSet.Records) {
		if c, ok := batch.(*protocol.ControlBatch); ok {
			commit, err := marker(c)
			if err != nil {
				return next, err
			}
			if !commit {
				for len(pending) > 0 && pending[0].FirstOffset <= c.BaseOffset {
					aborted[pending[0].ProducerID] = true
					pending = pending[1:]
				}
				delete(aborted, c.ProducerID)
			}
			next = max(next, c.BaseOffset+1)
			continue
		}
		b, ok := batch.(*protocol.RecordBatch)
		if !ok {
			return next, fmt.Errorf("unexpected batch %T", batch)
		}
		for {
			rec, err := b.ReadRecord()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return next, err
			}
			for len(pending) > 0 && pending[0].FirstOffset <= rec.Offset {
				aborted[pending[0].ProducerID] = true
				pending = pending[1:]
			}
			key, value, err := bytesOf(rec)
			if err != nil {
				return next, err
			}
			next = max(next, rec.Offset+1)
			if rec.Offset < from || b.Attributes.Transactional() && aborted[b.ProducerID] {
				continue
			}
			p.Records = append(p.Records, Record{Partition: id, Offset: rec.Offset, Key: key, Value: value})
		}
	}
	return next, nil
}

func batches(r protocol.RecordReader) []protocol.RecordReader {
	switch r := r.(type) {
	case nil:
		return nil
	case *protocol.RecordStream:
		return r.Records
	default:
		return []protocol.RecordReader{r}
	}
}

func marker(c *protocol.ControlBatch) (commit bool, err error) {
	rec, err := c.ReadControlRecord()
	if err != nil {
		return false, fmt.Errorf("control batch at %d: %w", c.BaseOffset, err)
	}
	const typeAbort, typeCommit = 0, 1
	switch rec.Type {
	case typeAbort:
		return false, nil
	case typeCommit:
		return true, nil
	}
	return true, nil // not a transaction marker: says nothing about any transaction
}

func bytesOf(rec *protocol.Record) (key, value string, err error) {
	k, err := protocol.ReadAll(rec.Key)
	if err != nil {
		return "", "", err
	}
	v, err := protocol.ReadAll(rec.Value)
	return string(k), string(v), err
}
