package topiclog

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// tail reads a partition from its start and feeds a replay. It fetches raw and
// leaves the decoding of batches (compression, control batches, the gaps of
// compaction) to kgo.
type tail struct {
	p            *partition
	replay       *txnlog.Replay
	next         int64 // the next offset to read
	decompressor kgo.Decompressor
	// ahead is what was fetched at next while the records before it were fed;
	// nil when nothing was.
	ahead *chunk
}

// chunk is what one fetch has brought.
type chunk struct {
	records       []*kgo.Record
	bytes         int
	next          int64 // the offset behind it
	highWatermark int64
	damage        error // why what is at next cannot be read
}

func newTail(ctx context.Context, p *partition, replay *txnlog.Replay) (*tail, error) {
	t := &tail{p: p, replay: replay, next: -1, decompressor: kgo.DefaultDecompressor()}
	return t, t.toStart(ctx)
}

// toStart moves on to the first offset that the log still has.
func (t *tail) toStart(ctx context.Context) error {
	var start int64
	err := t.p.retry(ctx, "ListOffsets", 0, func(ctx context.Context) error {
		var try error
		start, try = t.p.listStart(ctx)
		return try
	})
	switch {
	case err != nil:
		return t.p.wrap(fmt.Errorf("asking for the start of the log: %w", err))
	case start <= t.next:
		// The broker has just said that it has no such offset, and now that
		// it begins before it: it must end before it.
		return t.p.wrap(fmt.Errorf("the log ends before offset %d, which was read a moment ago; an unclean leader has forgotten it", t.next))
	}
	t.next, t.ahead = start, nil
	return nil
}

// readAll feeds what the log holds when it is asked.
func (t *tail) readAll(ctx context.Context) error {
	for {
		got, end, err := t.step(ctx, 0, math.MaxInt64)
		if err != nil || got == 0 || t.next >= end {
			return err
		}
	}
}

// readTo feeds every record up to and including the one at offset last, which
// is known to exist; it waits for the high watermark to pass it.
func (t *tail) readTo(ctx context.Context, last int64) error {
	for t.next <= last {
		if _, _, err := t.step(ctx, fetchWait, last); err != nil {
			return err
		}
	}
	return nil
}

// step takes what there is at the next offset and feeds the records up to
// offset last.
func (t *tail) step(ctx context.Context, wait time.Duration, last int64) (bytes int, highWatermark int64, err error) {
	c, err := t.take(ctx, wait)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		// Compaction on kfake moves the start of the log; what it dropped
		// was superseded by what comes. (Kafka's leaves the start alone.)
		return 1, math.MaxInt64, t.toStart(ctx)
	}
	if err != nil {
		return 0, 0, t.p.wrap(fmt.Errorf("reading offset %d: %w", t.next, err))
	}
	fetched := t.fetchAhead(ctx, c, last)
	err = t.feed(c.records, last)
	ahead := fetched()
	switch {
	case err != nil:
		return 0, 0, err
	case c.damage != nil:
		return 0, 0, &txnlog.CorruptError{Partition: t.p.id, Offset: c.next, Reason: c.damage.Error(), Err: c.damage}
	}
	t.next, t.ahead = c.next, ahead
	return c.bytes, c.highWatermark, nil
}

// take is what there is at the next offset.
func (t *tail) take(ctx context.Context, wait time.Duration) (c *chunk, err error) {
	if c, t.ahead = t.ahead, nil; c != nil {
		return c, nil
	}
	err = t.p.retry(ctx, "Fetch", 0, func(ctx context.Context) error {
		var try error
		c, try = t.fetch(ctx, t.next, wait)
		return try
	})
	return c, err
}

// fetchAhead fetches and decodes what is behind c, if that is no further than
// last, while the caller feeds; the function returned waits for it. That takes
// less than half of the time of feeding, and is nearly hidden behind it. A fetch
// that fails is left to the next step, which fetches itself and knows what to
// make of the error.
func (t *tail) fetchAhead(ctx context.Context, c *chunk, last int64) func() *chunk {
	if c.damage != nil || c.next > last || c.next >= c.highWatermark {
		return func() *chunk { return nil }
	}
	fetched := make(chan *chunk, 1)
	go func() {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		ahead, _ := t.fetch(short, c.next, 0) // nil when it fails
		fetched <- ahead
	}()
	return func() *chunk { return <-fetched }
}

// fetch takes what there is at an offset and decodes its batches.
func (t *tail) fetch(ctx context.Context, offset int64, wait time.Duration) (*chunk, error) {
	answer, err := t.p.fetch(ctx, offset, wait)
	if err != nil {
		return nil, err
	}
	parsed, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: offset, Topic: t.p.o.Topic, Partition: t.p.id,
	}, answer, t.decompressor, nil)
	damage := parsed.Err
	// A broker answers with at least one whole batch when it has one, so an
	// answer that does not get us on holds a batch that nobody can read. A
	// batch cut off at the end of the answer is fetched again whole.
	if damage == nil && next == offset && len(answer.RecordBatches) > 0 {
		damage = errors.New("the batch does not hold the records that its header claims")
	}
	return &chunk{
		records: parsed.Records, bytes: len(answer.RecordBatches), next: next,
		highWatermark: answer.HighWatermark, damage: damage,
	}, nil
}

func (t *tail) feed(records []*kgo.Record, last int64) error {
	fed := int64(0)
	defer func() { t.p.stats.replayed.Add(fed) }()
	for _, r := range records {
		if r.Offset > last {
			break
		}
		fed++
		err := t.replay.Feed(txnlog.RawRecord{
			Offset: r.Offset, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch, Key: r.Key, Value: r.Value,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (p *partition) fetch(ctx context.Context, offset int64, wait time.Duration) (*kmsg.FetchResponseTopicPartition, error) {
	kresp, err := p.ask(ctx, func() kmsg.Request {
		req := kmsg.NewPtrFetchRequest() // without a session: SessionEpoch -1
		req.MaxWaitMillis = int32(wait.Milliseconds())
		req.MinBytes = 1
		req.MaxBytes = fetchBytes
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic, topic.TopicID = p.o.Topic, p.topicID
		tp := kmsg.NewFetchRequestTopicPartition()
		tp.Partition, tp.FetchOffset, tp.PartitionMaxBytes = p.id, offset, fetchBytes
		topic.Partitions = append(topic.Partitions, tp)
		req.Topics = append(req.Topics, topic)
		return req
	})
	if err != nil {
		return nil, err
	}
	resp := kresp.(*kmsg.FetchResponse)
	if err := p.answered(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, errNoAnswer
	}
	answer := &resp.Topics[0].Partitions[0]
	return answer, p.answered(answer.ErrorCode)
}

func (p *partition) listStart(ctx context.Context) (int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = p.o.Topic
	tp := kmsg.NewListOffsetsRequestTopicPartition()
	tp.Partition, tp.Timestamp = p.id, -2 // the earliest
	topic.Partitions = append(topic.Partitions, tp)
	req.Topics = append(req.Topics, topic)
	kresp, err := p.ask(ctx, func() kmsg.Request { return req })
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.ListOffsetsResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errNoAnswer
	}
	answer := resp.Topics[0].Partitions[0]
	return answer.Offset, p.answered(answer.ErrorCode)
}
