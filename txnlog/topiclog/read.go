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
// follows the batches itself (chain), because a consumer believes their headers.
type tail struct {
	p      *partition
	replay *txnlog.Replay // nil: nothing is fed
	// visit, where it is set, sees every record.
	visit        func(txnlog.RawRecord)
	chain        chain // behind what was fed
	bytes        int64 // of the batches that were read
	decompressor kgo.Decompressor
	// ahead is what was fetched at chain.next while the records before it were
	// fed; nil when nothing was.
	ahead *chunk
}

// chunk is what one fetch has brought.
type chunk struct {
	links
	chain         chain // behind it
	highWatermark int64
}

func newTail(ctx context.Context, p *partition, replay *txnlog.Replay) (*tail, error) {
	t := &tail{p: p, replay: replay, chain: chain{next: -1}, decompressor: kgo.DefaultDecompressor()}
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
	case start <= t.chain.next:
		// The broker has just said that it has no such offset, and now that
		// it begins before it: it must end before it.
		return t.p.wrap(fmt.Errorf("the log ends before offset %d, which was read a moment ago; an unclean leader has forgotten it", t.chain.next))
	}
	t.chain, t.ahead = chain{next: start, before: start, midway: true}, nil
	return nil
}

// readAll feeds what the log holds when it is asked.
func (t *tail) readAll(ctx context.Context) error {
	for {
		end, err := t.step(ctx, 0, math.MaxInt64)
		if err != nil || t.chain.next >= end {
			return err
		}
	}
}

// readTo feeds every record up to and including the one at offset last, which
// is known to exist; it waits for the high watermark to pass it.
func (t *tail) readTo(ctx context.Context, last int64) error {
	for t.chain.next <= last {
		if _, err := t.step(ctx, fetchWait, last); err != nil {
			return err
		}
	}
	return nil
}

// step takes what there is at the next offset and feeds the records up to
// offset last.
func (t *tail) step(ctx context.Context, wait time.Duration, last int64) (highWatermark int64, err error) {
	c, err := t.take(ctx, wait)
	if errors.Is(err, kerr.OffsetOutOfRange) {
		// Compaction on kfake moves the start of the log; what it dropped
		// was superseded by what comes. (Kafka's leaves the start alone.)
		return math.MaxInt64, t.toStart(ctx)
	}
	if err != nil {
		return 0, t.p.wrap(fmt.Errorf("reading offset %d: %w", t.chain.next, err))
	}
	fetched := t.fetchAhead(ctx, c, last)
	for _, lost := range c.lost {
		if t.replay != nil {
			t.replay.Lost(lost.first, lost.last, lost.reason)
		}
	}
	err = t.feed(c.records, last)
	ahead := fetched()
	switch {
	case err != nil:
		return 0, err
	case c.damage != nil:
		return 0, t.p.corrupt(c.damage.offset, c.damage.reason, nil)
	}
	t.bytes += int64(c.bytes)
	t.chain, t.ahead = c.chain, ahead
	return c.highWatermark, nil
}

func (p *partition) corrupt(offset int64, reason string, err error) error {
	return &txnlog.CorruptError{Partition: p.id, Offset: offset, Reason: reason, Err: err}
}

// errNothingServed: a leader that has just been elected may answer so for a moment.
var errNothingServed = errors.New("the leader serves nothing there, though the log goes on")

// triesOfDamage is how often a leader is asked that cannot read what it has.
const triesOfDamage = 8

// take is what there is at the next offset.
func (t *tail) take(ctx context.Context, wait time.Duration) (c *chunk, err error) {
	if c, t.ahead = t.ahead, nil; c != nil {
		return c, nil
	}
	bad := 0
	err = t.p.retry(ctx, "Fetch", 0, func(ctx context.Context) error {
		var try error
		c, try = t.fetch(ctx, t.chain, wait)
		switch {
		// What Kafka answers, by the version of the request, for another magic.
		case errors.Is(try, kerr.InvalidRecord), errors.Is(try, kerr.UnknownServerError):
			bad = triesOfDamage
		case errors.Is(try, errNothingServed), errors.Is(try, kerr.CorruptMessage):
			bad++
		}
		if bad >= triesOfDamage {
			return t.p.corrupt(t.chain.next, try.Error(), try)
		}
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
	if c.damage != nil || c.chain.next > last || c.chain.next >= c.highWatermark {
		return func() *chunk { return nil }
	}
	fetched := make(chan *chunk, 1)
	go func() {
		short, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		ahead, _ := t.fetch(short, c.chain, 0) // nil when it fails
		fetched <- ahead
	}()
	return func() *chunk { return <-fetched }
}

// fetch takes what there is behind a chain.
func (t *tail) fetch(ctx context.Context, behind chain, wait time.Duration) (*chunk, error) {
	answer, err := t.p.fetch(ctx, behind.next, wait)
	if err != nil {
		return nil, err
	}
	c := &chunk{chain: behind, highWatermark: answer.HighWatermark}
	if len(answer.RecordBatches) == 0 && behind.next < answer.HighWatermark {
		return nil, errNothingServed
	}
	c.links = c.chain.follow(answer.RecordBatches, answer.HighWatermark, t.decompressor)
	return c, nil
}

func (t *tail) feed(records []txnlog.RawRecord, last int64) error {
	if t.replay == nil {
		return nil
	}
	fed := int64(0)
	defer func() { t.p.stats.replayed.Add(fed) }()
	for i := range records {
		r := records[i]
		if r.Offset > last {
			break
		}
		fed++
		if t.visit != nil {
			t.visit(r)
		}
		if err := t.replay.Feed(r); err != nil {
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
