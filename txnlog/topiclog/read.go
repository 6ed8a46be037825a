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
	ahead *kmsg.FetchResponseTopicPartition
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
	answer, err := t.take(ctx, wait)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		// Compaction on kfake moves the start of the log; what it dropped
		// was superseded by what comes. (Kafka's leaves the start alone.)
		return 1, math.MaxInt64, t.toStart(ctx)
	}
	if err != nil {
		return 0, 0, t.p.wrap(fmt.Errorf("reading offset %d: %w", t.next, err))
	}
	parsed, next := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{
		Offset: t.next, Topic: t.p.o.Topic, Partition: t.p.id,
	}, answer, t.decompressor, nil)
	fetched := t.fetchAhead(ctx, next, min(last+1, answer.HighWatermark))
	err = t.feed(parsed.Records, last)
	ahead := fetched()
	// A broker answers with at least one whole batch when it has one, so an
	// answer that does not get us on holds a batch that nobody can read. A
	// batch cut off at the end of the answer is fetched again whole.
	switch {
	case err != nil:
		return 0, 0, err
	case parsed.Err != nil || (next == t.next && len(answer.RecordBatches) > 0):
		return 0, 0, t.corrupt(next, parsed.Err)
	}
	t.next, t.ahead = next, ahead
	return len(answer.RecordBatches), answer.HighWatermark, nil
}

// take is what there is at the next offset.
func (t *tail) take(ctx context.Context, wait time.Duration) (answer *kmsg.FetchResponseTopicPartition, err error) {
	if answer, t.ahead = t.ahead, nil; answer != nil {
		return answer, nil
	}
	err = t.p.retry(ctx, "Fetch", 0, func(ctx context.Context) error {
		var try error
		answer, try = t.p.fetch(ctx, t.next, wait)
		return try
	})
	return answer, err
}

// fetchAhead fetches at offset next, if that is below end, while the caller
// feeds; the function returned waits for it. Feeding takes about as long as
// fetching, so together they take half the time of one after the other. A fetch
// that fails is left to the next step, which fetches itself and knows what to
// make of the error.
func (t *tail) fetchAhead(ctx context.Context, next, end int64) func() *kmsg.FetchResponseTopicPartition {
	if next == t.next || next >= end {
		return func() *kmsg.FetchResponseTopicPartition { return nil }
	}
	fetched := make(chan *kmsg.FetchResponseTopicPartition, 1)
	go func() {
		answer, err := t.p.fetch(ctx, next, 0)
		if err != nil {
			answer = nil
		}
		fetched <- answer
	}()
	return func() *kmsg.FetchResponseTopicPartition { return <-fetched }
}

func (t *tail) feed(records []*kgo.Record, last int64) error {
	for _, r := range records {
		if r.Offset > last {
			break
		}
		t.p.stats.replayed.Add(1)
		err := t.replay.Feed(txnlog.RawRecord{
			Offset: r.Offset, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch, Key: r.Key, Value: r.Value,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (t *tail) corrupt(offset int64, err error) error {
	if err == nil {
		err = errors.New("the batch does not hold the records that its header claims")
	}
	return &txnlog.CorruptError{Partition: t.p.id, Offset: offset, Reason: err.Error(), Err: err}
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
