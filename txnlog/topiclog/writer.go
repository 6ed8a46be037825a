package topiclog

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

const (
	// maxSilence is how long a writer may have had no acknowledgement and
	// still write. The broker forgets the fence with the producer state of
	// the newer owner, producer.id.expiration.ms (a day, see checkBrokers)
	// after that owner's last write: a writer that slept longer could write
	// past it.
	maxSilence = 12 * time.Hour
	// maxSequence is where the epoch is bumped, which begins the sequence
	// anew: Kafka and kfake disagree on what follows 2^31-2.
	maxSequence = 1 << 30
)

// writer is the owner of one partition. Batches wait in queue; one goroutine,
// which lives while there are any, writes one after the other and calls back.
// While it waits for an acknowledgement the last batch of the queue fills.
type writer struct {
	p   *partition
	ctx context.Context // ends when the writer is dead or closed
	end func()          // idempotent

	// Of the writing goroutine.
	me       producer
	sequence int32
	next     int64 // the offset behind what was acknowledged
	initAt   time.Time
	ackAt    stamp

	mu      sync.Mutex
	queue   []*batch
	writing bool
	closed  bool
	err     error // why it is dead
}

var _ txnlog.Writer = (*writer)(nil)

// newWriter takes over from the claim at offset claim, whose record had sequence 0.
// onEnd is called when the writer is dead or closed.
func newWriter(p *partition, me producer, claim int64, onEnd func(*writer)) *writer {
	now := p.o.Clock.Now()
	w := &writer{p: p, me: me, sequence: 1, next: claim + 1, initAt: now, ackAt: stampOf(now)}
	ctx, cancel := context.WithCancel(context.Background())
	w.ctx = ctx
	w.end = sync.OnceFunc(func() {
		cancel()
		p.client.Close()
		onEnd(w)
	})
	return w
}

// start begins the keep-alive.
func (w *writer) start() {
	go func() {
		for {
			select {
			case <-w.ctx.Done():
				return
			case <-w.p.o.Clock.After(w.p.o.KeepAlive):
				w.enqueue(func() { w.queue = append(w.queue, &batch{keepAlive: true}) })
			}
		}
	}()
}

// Append implements txnlog.Writer. The records are encoded before it returns,
// so the caller may change them.
func (w *writer) Append(records []txnlog.Record, done func(error)) {
	w.p.stats.appends.Add(1)
	w.p.stats.records.Add(int64(len(records)))
	w.enqueue(func() {
		b := w.fill(records)
		b.dones = append(b.dones, done)
	})
}

// enqueue changes the queue and sees to it that somebody works on it.
func (w *writer) enqueue(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
	if !w.writing {
		w.writing = true
		go w.drain()
	}
}

// fill puts the records into the last batch of the queue if they fit, and else
// into a new one.
func (w *writer) fill(records []txnlog.Record) *batch {
	if w.closed {
		return w.push(&batch{err: txnlog.ErrClosed})
	}
	if n := len(w.queue); n > 0 {
		b := w.queue[n-1]
		if b.err == nil && !b.keepAlive {
			size, count := len(b.records), b.count
			if err := b.addAll(records); err != nil {
				return w.push(&batch{err: err})
			}
			if count == 0 || (len(b.records) <= w.p.o.BatchBytes && int(b.count) <= w.p.o.BatchRecords) {
				return b
			}
			b.truncate(size, count)
		}
	}
	b := new(batch)
	if err := b.addAll(records); err != nil {
		b.err = err
	}
	return w.push(b)
}

func (w *writer) push(b *batch) *batch {
	w.queue = append(w.queue, b)
	return b
}

// drain writes until the queue is empty.
func (w *writer) drain() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.queue, w.writing = nil, false
			w.mu.Unlock()
			return
		}
		b := w.queue[0]
		w.queue = w.queue[1:]
		err := w.err
		w.mu.Unlock()

		if err == nil {
			if err = w.write(b); err != nil {
				w.die(err)
			}
		}
		for _, done := range b.dones {
			done(err)
		}
	}
}

func (w *writer) die(err error) {
	w.mu.Lock()
	w.err = err
	quiet := w.closed
	w.mu.Unlock()
	w.end()
	if !quiet {
		w.p.o.Logger.Warn().Int32("partition", w.p.id).Err(err).Msg("a writer of the log has ended")
	}
}

func (w *writer) write(b *batch) error {
	switch {
	case b.err != nil:
		return b.err
	case b.keepAlive:
		return w.keepAlive()
	case b.count == 0:
		return nil
	}
	if err := w.fresh(b.count); err != nil {
		return err
	}
	encoded := b.encode(w.me, w.sequence, w.p.o.Clock.Now().UnixMilli())
	offset, err := w.p.append(w.ctx, encoded)
	if err != nil {
		return err
	}
	w.acknowledged(offset, b.count)
	w.p.stats.batches.Add(1)
	w.p.stats.bytes.Add(int64(len(encoded)))
	return nil
}

// acknowledged takes note of so many records at offset. What lies between them and
// the last ones is somebody else's: nobody who owned the partition before can write.
// It does not count, but when it is about an id, compaction keeps it in place of what
// we wrote, and the next claim refuses the partition (txnlog.ForeignRecordError).
func (w *writer) acknowledged(offset int64, records int32) {
	if offset > w.next {
		w.p.stats.intruders.Add(offset - w.next)
		w.p.o.Logger.Error().Int32("partition", w.p.id).Int64("offset", w.next).Int64("records", offset-w.next).
			Msg("somebody else has written to the log; find out who may (kafka-acls.sh --list) and take the right away, " +
				"and look at the ids before this node ends: kafka-global-transactions log --verify")
	}
	w.next = offset + int64(records)
	w.sequence += records
	w.ackAt = stampOf(w.p.o.Clock.Now())
}

// fresh makes sure that the broker's fence holds for us and that count records
// have sequence numbers.
func (w *writer) fresh(count int32) error {
	if silent := w.ackAt.elapsed(w.p.o.Clock.Now()); silent > maxSilence {
		return w.p.wrap(fmt.Errorf("%w: nothing was acknowledged for %s, and after a day the broker forgets who owns the partition", txnlog.ErrUnknownFate, silent))
	}
	if w.sequence > maxSequence-count {
		return w.reInit(w.p.o.AppendTimeout)
	}
	return nil
}

// keepAlive writes the claim again, and takes a new epoch when that is due.
func (w *writer) keepAlive() error {
	if err := w.fresh(1); err != nil {
		return err
	}
	if w.p.o.Clock.Now().Sub(w.initAt) >= w.p.o.ReInit {
		err := w.reInit(once)
		if err == nil || !retriable(err) || errors.Is(err, txnlog.ErrUnknownFate) {
			return err
		}
		// The cluster's transaction coordinator is away. Our epoch is as good
		// as before, even if the request was carried out, and there are days
		// left: the next keep-alive asks again, and KIP-360 gives the same
		// answer to the same request. To die now would make an outage of it.
		w.p.o.Logger.Warn().Int32("partition", w.p.id).Err(err).Msg("cannot take the next epoch of the producer id, going on with this one")
	}
	offset, err := w.p.writeClaim(w.ctx, w.me, w.sequence)
	if err != nil {
		return err
	}
	w.acknowledged(offset, 1)
	return nil
}

// reInit takes the next epoch and claims the partition under it. Only the
// current owner is given one, so nobody has written in between, and there is
// nothing to read.
func (w *writer) reInit(limit time.Duration) error {
	me, err := w.p.reInitProducer(w.ctx, w.me, limit)
	if err != nil {
		return err
	}
	offset, err := w.p.writeClaim(w.ctx, me, 0)
	if err != nil {
		return err
	}
	w.me, w.sequence, w.initAt = me, 0, w.p.o.Clock.Now()
	w.acknowledged(offset, 1)
	return nil
}

// Close implements txnlog.Writer. The partition stays claimed until somebody
// else claims it.
func (w *writer) Close(ctx context.Context) error {
	idle := make(chan struct{})
	w.enqueue(func() {
		w.closed = true
		w.push(&batch{err: txnlog.ErrClosed, dones: []func(error){func(error) { close(idle) }}})
	})
	defer w.abandon()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return w.p.wrap(fmt.Errorf("closing a writer with appends in flight: %w", ctx.Err()))
	}
}

// abandon ends the writer now. Appends in flight end with an unknown fate.
func (w *writer) abandon() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	w.end()
}
