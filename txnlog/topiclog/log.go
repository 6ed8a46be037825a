// Package topiclog keeps the coordinator's log on a Kafka topic: the embedded
// store and any real cluster alike.
//
// The owner of a partition writes plain idempotent batches under the producer
// id and epoch of the partition's transactional id. A new owner takes the next
// epoch, and from its claim record on the broker itself refuses the old one
// with INVALID_PRODUCER_EPOCH; what the old one got in before lies before the
// claim and is read. That fences at the price of one round trip, without a
// transaction per decision and without a window.
package topiclog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Log is a txnlog.Log on a Kafka topic.
type Log struct {
	o     Options
	stats stats

	mu      sync.Mutex
	closed  bool
	writers map[*writer]struct{}
}

var _ txnlog.Log = (*Log)(nil)

// Open checks that the topic is what the options say, creating it if they
// allow, and returns the log. A topic that contradicts them is refused with a
// *SettingError, and brokers that forget early who owns a partition with a
// *BrokerSettingError. The second setting can change while brokers run, and is
// looked at here only.
func Open(ctx context.Context, options Options) (*Log, error) {
	o, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(o.clientOpts()...)
	if err != nil {
		return nil, fmt.Errorf("topiclog: %w", err)
	}
	defer client.Close()
	if err := ensureTopic(ctx, client, &o); err != nil {
		return nil, err
	}
	return &Log{o: o, writers: make(map[*writer]struct{})}, nil
}

// Partitions implements txnlog.Log.
func (l *Log) Partitions() int32 { return l.o.Partitions }

// Claim implements txnlog.Log. It tries until ctx ends, as long as trying
// again can help: a partition that cannot be read is not an empty one. Errors
// that cannot pass are those that txnlog.Refuses, and txnlog.ErrFenced when another
// claim came in between. Rarely what was read
// cannot be trusted (confirm); then the caller drops it and claims again.
//
// The log is read before the claim is written, and the rest of it after. So a
// coordinator that cannot read the partition does not take it from one that
// can, and the partition is without an owner for a moment only.
func (l *Log) Claim(ctx context.Context, id int32, replay func(txnlog.Entry) error) (txnlog.Writer, error) {
	if id < 0 || id >= l.o.Partitions {
		return nil, fmt.Errorf("topiclog: %s has no partition %d", l.o.Topic, id)
	}
	if l.isClosed() {
		return nil, txnlog.ErrClosed
	}
	p, err := newPartition(&l.o, &l.stats, id)
	if err != nil {
		return nil, err
	}
	owner, offset, err := l.claim(ctx, p, replay, (*txnlog.Replay).Finish)
	if err == nil {
		w := newWriter(p, owner, offset, l.remove)
		if err = l.add(w); err == nil {
			w.start()
			return w, nil
		}
	}
	p.client.Close()
	return nil, err
}

// claim takes a partition if what was read of it satisfies ready, before the claim and
// behind it.
func (l *Log) claim(ctx context.Context, p *partition, replay func(txnlog.Entry) error, ready func(*txnlog.Replay) error) (me producer, offset int64, err error) {
	r := &txnlog.Replay{Partition: p.id, Entry: replay, Skipped: l.skipped}
	t, err := newTail(ctx, p, r)
	if err != nil {
		return me, 0, err
	}
	if err = t.readAll(ctx); err != nil {
		return me, 0, err
	}
	if err = ready(r); err != nil {
		// What is foreign may be so because compaction has misled the reading.
		return me, 0, cmp.Or(p.confirm(ctx, r, t.chain.next-1), err)
	}
	me, err = p.initProducer(ctx, producer{-1, -1}, 0)
	if err != nil {
		return me, 0, err
	}
	if old, _, owned := r.Owner(); owned && old != me.id {
		if me, err = p.seal(ctx, me, old); err != nil {
			return me, 0, err
		}
	}
	offset, err = p.writeClaim(ctx, me, 0)
	if err != nil {
		return me, 0, err
	}
	if err = t.readTo(ctx, offset); err != nil {
		return me, 0, err
	}
	if err = p.confirm(ctx, r, offset); err != nil {
		return me, 0, err
	}
	if err = t.complete(ctx, false); err != nil {
		return me, 0, err
	}
	if id, epoch, _ := r.Owner(); id != me.id || epoch != me.epoch {
		return me, 0, p.wrap(fmt.Errorf("%w: producer %d epoch %d claimed it at the same time", txnlog.ErrFenced, id, epoch))
	}
	l.o.Logger.Info().Int32("partition", p.id).Int64("offset", offset).
		Int64("producer_id", me.id).Int16("producer_epoch", me.epoch).Msg("claimed a partition of the log")
	return me, offset, ready(r)
}

// errMisled ends a claim whose reading compaction has changed meanwhile. The
// caller drops what was read, as after every failure, and claims again; what
// misled this reading is gone then.
var errMisled = errors.New("compaction has removed claims while the partition was read, so records may have been left out that count; claim it again")

// confirm makes sure, where records of another producer id were left out, that
// they are foreign in truth: it reads up to the claim once more, and nothing that
// was left out may count now. Counter-example: the claim of (P, 5) is read; then
// compaction removes the seal of P and the claims of P' behind it but the last;
// everything that the owners under P' decided would be left out as foreign.
func (p *partition) confirm(ctx context.Context, r *txnlog.Replay, claim int64) error {
	if len(r.LeftOut()) == 0 {
		return nil
	}
	p.o.Logger.Info().Int32("partition", p.id).Msg("records of other producers were left out: reading again")
	again := &txnlog.Replay{
		Partition: p.id,
		Entry:     func(txnlog.Entry) error { return nil },
		Skipped:   func(error) {}, // the first reading has reported it
	}
	t, err := newTail(ctx, p, again)
	if err != nil {
		return err
	}
	if err := t.readTo(ctx, claim); err != nil {
		return err
	}
	if !maps.Equal(r.LeftOut(), again.LeftOut()) {
		return p.wrap(errMisled)
	}
	return nil
}

// skipped reports a record that replay leaves out.
func (l *Log) skipped(err error) {
	if errors.As(err, new(*txnlog.ForeignRecordError)) {
		l.stats.foreign.Add(1)
		l.o.Logger.Warn().Err(err).Msg("left a record of somebody else out")
		return
	}
	l.stats.unknownTypes.Add(1)
	l.o.Logger.Warn().Err(err).Msg("left a record out")
}

// writeClaim writes the claim record of me. With a new epoch the sequence is 0.
func (p *partition) writeClaim(ctx context.Context, me producer, sequence int32) (int64, error) {
	now := p.o.Clock.Now().UnixMilli()
	b := claimBatch(txnlog.Claim{
		NodeID: p.o.NodeID, Host: p.o.Host,
		ProducerID: me.id, ProducerEpoch: me.epoch, TimestampMillis: now,
	})
	offset, err := p.append(ctx, b.encode(me, sequence, now))
	if err == nil {
		p.stats.claims.Add(1)
	}
	return offset, err
}

// seal ends the producer id of the last owner, which an epoch of ours cannot
// fence: see txnlog.Replay. It must not happen when the id of the partition
// has moved on from ours to another meanwhile (we were asleep), because the
// one that we are about to end for good might be that; so we ask for our next
// epoch first, which only the current producer is given.
func (p *partition) seal(ctx context.Context, me producer, old int64) (producer, error) {
	me, err := p.reInitProducer(ctx, me, 0)
	if err != nil {
		return me, err
	}
	p.o.Logger.Warn().Int32("partition", p.id).Int64("old_producer_id", old).Int64("producer_id", me.id).
		Msg("the partition's producer id has changed; ending the old one")
	_, err = p.writeClaim(ctx, producer{old, txnlog.ProducerEpochSealed}, 0)
	if errors.Is(err, txnlog.ErrFenced) {
		// Nothing is above the last epoch, so this cannot be about it.
		err = p.wrap(fmt.Errorf("the broker refuses to end producer %d: %w", old, err))
	}
	return me, err
}

func (l *Log) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

func (l *Log) add(w *writer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return txnlog.ErrClosed
	}
	l.writers[w] = struct{}{}
	return nil
}

func (l *Log) remove(w *writer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.writers, w)
}

// Close ends every writer at once, without waiting for appends in flight;
// their fate is then unknown. Close the writers first to wait for them.
func (l *Log) Close() {
	l.mu.Lock()
	l.closed = true
	writers := l.writers
	l.writers = nil
	l.mu.Unlock()
	for w := range writers {
		w.abandon()
	}
}

type stats struct {
	blind                                                                                                 sync.Once // says once that it cannot be seen what a partition holds
	appends, records, batches, bytes, forced, claims, retries, replayed, foreign, intruders, unknownTypes atomic.Int64
}

// Stats counts what the log has done since it was opened.
type Stats struct {
	// Appends and Records were asked for; Batches of Bytes (headers and all)
	// hold them and are acknowledged.
	Appends, Records, Batches, Bytes int64
	// ForcedWrites are all acknowledged writes: Batches and Claims.
	ForcedWrites int64
	// Claims are claim records written: for take-over and to keep alive.
	Claims int64
	// Retries are requests sent again, whatever they asked.
	Retries int64
	// Replayed records were read by claims; Foreign and UnknownTypes of them
	// were left out. Intruders were written by others while we owned a partition.
	Replayed, Foreign, Intruders, UnknownTypes int64
}

// Stats returns the counters as they are now.
func (l *Log) Stats() Stats {
	s := &l.stats
	return Stats{
		Appends: s.appends.Load(), Records: s.records.Load(), Batches: s.batches.Load(), Bytes: s.bytes.Load(),
		ForcedWrites: s.forced.Load(), Claims: s.claims.Load(), Retries: s.retries.Load(),
		Replayed: s.replayed.Load(), Foreign: s.foreign.Load(), Intruders: s.intruders.Load(), UnknownTypes: s.unknownTypes.Load(),
	}
}
