package topiclog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

const (
	backoffStart = 20 * time.Millisecond
	backoffLimit = time.Second
	// produceTimeout is how long a broker may wait for the other replicas
	// before it answers REQUEST_TIMED_OUT and is asked again.
	produceTimeout = 5 * time.Second
	// requestTimeout bounds one request with everything that kgo does for it
	// (connecting, looking for the coordinator, its own retries).
	requestTimeout = 2 * produceTimeout
	// once is a limit of retry that allows for none.
	once time.Duration = 1
	// fetchWait is how long a broker may wait for a record to appear.
	fetchWait = 500 * time.Millisecond
	// fetchBytes bounds one answer, and so the memory of a replay, which holds
	// two. Measured with 500,000 records: Kafka 4.4.0 needs half the time that
	// it needs with 1 MiB, of which a fifth is a batch that is cut off and
	// fetched again; with 4 MiB kfake becomes slower, in copying.
	fetchBytes = 2 << 20
	// initTimeout is the transaction timeout of our transactional ids. They
	// never have a transaction; it only has to be valid.
	initTimeout = 60_000
)

// partition speaks to the leader of one partition. kgo routes a raw produce or
// fetch request to any broker, so the leader is looked up here. It has a
// client of its own, because a broker works on one request of a connection at
// a time: on a shared one the appends of 50 partitions would wait for each
// other's replication. It is used by one goroutine at a time.
type partition struct {
	o      *Options
	stats  *stats
	client *kgo.Client
	id     int32

	leader  int32 // -1: unknown
	topicID [16]byte
	pinned  bool // topicID is known
}

func newPartition(o *Options, s *stats, id int32) (*partition, error) {
	client, err := kgo.NewClient(o.clientOpts()...)
	if err != nil {
		return nil, fmt.Errorf("topiclog: %w", err)
	}
	return &partition{o: o, stats: s, client: client, id: id, leader: -1}, nil
}

func (p *partition) wrap(err error) error {
	return fmt.Errorf("topiclog: %s-%d: %w", p.o.Topic, p.id, err)
}

// errRecreated ends all work on a topic that is no longer the same one. Going
// on would write into a log that has forgotten every decision.
var errRecreated = errors.New("the topic was deleted and created anew; restart the coordinator")

// locate finds the leader.
func (p *partition) locate(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(p.o.Topic)
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, p.client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		if t.Topic == nil || *t.Topic != p.o.Topic {
			continue
		}
		if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
			return err
		}
		if p.pinned && t.TopicID != p.topicID {
			return errRecreated
		}
		p.topicID, p.pinned = t.TopicID, true
		for _, tp := range t.Partitions {
			if tp.Partition != p.id {
				continue
			}
			if tp.Leader < 0 {
				return kerr.LeaderNotAvailable
			}
			p.leader = tp.Leader
			return nil
		}
	}
	return kerr.UnknownTopicOrPartition
}

// ask sends a request to the leader; build makes it once the topic id is
// known. Any trouble makes the leader unknown, so that the next try looks for
// it again.
func (p *partition) ask(ctx context.Context, build func() kmsg.Request) (kmsg.Response, error) {
	if p.leader < 0 {
		if err := p.locate(ctx); err != nil {
			return nil, err
		}
	}
	req := build()
	resp, err := p.client.Broker(int(p.leader)).Request(ctx, req)
	if err != nil {
		p.leader = -1
	}
	return resp, err
}

// answered turns the error code of a partition into an error.
func (p *partition) answered(code int16) error {
	err := kerr.ErrorForCode(code)
	if err != nil {
		p.leader = -1
	}
	return err
}

// retriable says whether asking again can help. What is no error of Kafka's is
// a broken or refused connection.
func retriable(err error) bool {
	switch {
	case errors.Is(err, kgo.ErrClientClosed), errors.Is(err, errRecreated),
		errors.Is(err, context.Canceled), errors.Is(err, txnlog.ErrFenced):
		return false
	case errors.As(err, new(*txnlog.CorruptError)):
		return false
	}
	if ke, ok := errors.AsType[*kerr.Error](err); ok {
		// kerr does not count this one, which passes by itself as well.
		return ke.Retriable || ke == kerr.ConcurrentTransactions
	}
	return true
}

// retry calls fn until it succeeds or fails for good, or ctx or limit ends;
// limit 0 is none. The limit is by both clocks: a batch is not sent again after the
// machine was suspended for a day, when nobody may remember who owns the partition.
func (p *partition) retry(ctx context.Context, what string, limit time.Duration, fn func(context.Context) error) error {
	start, backoff := stampOf(p.o.Clock.Now()), backoffStart
	for {
		err := bounded(ctx, fn)
		if err == nil || !retriable(err) {
			return err
		}
		if ctx.Err() != nil || (limit > 0 && start.elapsed(p.o.Clock.Now()) >= limit) {
			return err
		}
		p.stats.retries.Add(1)
		p.o.Logger.Warn().Int32("partition", p.id).Err(err).Msg(what + " failed, trying again")
		select {
		case <-ctx.Done():
			return err
		case <-p.o.Clock.After(backoff):
			backoff = min(2*backoff, backoffLimit)
		}
	}
}

func bounded(ctx context.Context, fn func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return fn(ctx)
}

// initProducer gives the next epoch of the partition's transactional id. A
// plain call takes the partition from whoever has it; with a current producer
// it is refused when somebody else has been given an epoch since (KIP-360).
func (p *partition) initProducer(ctx context.Context, current producer, limit time.Duration) (producer, error) {
	txnID := p.o.transactionalID(p.id)
	var next producer
	err := p.retry(ctx, "InitProducerId", limit, func(ctx context.Context) error {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID = &txnID
		req.TransactionTimeoutMillis = initTimeout
		req.ProducerID, req.ProducerEpoch = current.id, current.epoch
		resp, err := req.RequestWith(ctx, p.client)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if err == nil {
			next = producer{resp.ProducerID, resp.ProducerEpoch}
		}
		return fenced(err)
	})
	if err != nil {
		return next, p.wrap(fmt.Errorf("initialising %s: %w", txnID, err))
	}
	return next, nil
}

// fenced marks the answers that mean that another owner has come.
func fenced(err error) error {
	switch {
	case errors.Is(err, kerr.InvalidProducerEpoch), errors.Is(err, kerr.ProducerFenced),
		errors.Is(err, kerr.InvalidProducerIDMapping): // the id is now another's, or has expired
		return fmt.Errorf("%w: %w", txnlog.ErrFenced, err)
	}
	return err
}

// reInitProducer bumps the epoch of a producer that still is the current one.
// The next epoch of the same id is the only answer that proves that nobody was
// between: a new id may mean that the old one expired, and was claimed and
// expired again; and kfake, unlike Kafka, bumps also for a caller whose epoch
// is stale.
func (p *partition) reInitProducer(ctx context.Context, current producer, limit time.Duration) (producer, error) {
	next, err := p.initProducer(ctx, current, limit)
	if err == nil && (next.id != current.id || next.epoch != current.epoch+1) {
		err = p.wrap(fmt.Errorf("%w: producer %d went on from epoch %d as producer %d epoch %d",
			txnlog.ErrUnknownFate, current.id, current.epoch, next.id, next.epoch))
	}
	return next, err
}

// append writes one batch. A lost acknowledgement is asked for again with the
// same bytes: the broker knows the sequence and answers with the old offset.
func (p *partition) append(ctx context.Context, b []byte) (offset int64, err error) {
	err = p.retry(ctx, "append", p.o.AppendTimeout, func(ctx context.Context) error {
		var try error
		offset, try = p.produce(ctx, b)
		return fenced(try)
	})
	switch {
	case err == nil:
		p.stats.forced.Add(1)
		return offset, nil
	case errors.Is(err, txnlog.ErrFenced):
		return 0, p.wrap(err)
	case retriable(err), errors.Is(err, context.Canceled), errors.Is(err, kgo.ErrClientClosed):
		err = fmt.Errorf("%w: %w", txnlog.ErrUnknownFate, err)
	case errors.Is(err, kerr.OutOfOrderSequenceNumber), errors.Is(err, kerr.UnknownProducerID), errors.Is(err, kerr.DuplicateSequenceNumber):
		// The partition has lost or gained batches of ours.
		err = fmt.Errorf("%w: %w", txnlog.ErrUnknownFate, err)
	}
	return 0, p.wrap(fmt.Errorf("append: %w", err))
}

// produce sends the batch once.
func (p *partition) produce(ctx context.Context, b []byte) (int64, error) {
	kresp, err := p.ask(ctx, func() kmsg.Request {
		req := kmsg.NewPtrProduceRequest()
		req.Acks = -1
		req.TimeoutMillis = int32(produceTimeout.Milliseconds())
		topic := kmsg.NewProduceRequestTopic()
		topic.Topic, topic.TopicID = p.o.Topic, p.topicID // by name to version 12, by id from 13
		tp := kmsg.NewProduceRequestTopicPartition()
		tp.Partition, tp.Records = p.id, b
		topic.Partitions = append(topic.Partitions, tp)
		req.Topics = append(req.Topics, topic)
		return req
	})
	if err != nil {
		return 0, err
	}
	resp := kresp.(*kmsg.ProduceResponse)
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return 0, errNoAnswer
	}
	answer := resp.Topics[0].Partitions[0]
	return answer.BaseOffset, p.answered(answer.ErrorCode)
}

var errNoAnswer = errors.New("the broker's answer is not about our partition")
