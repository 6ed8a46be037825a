package mirror

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// batch is what one transaction mirrors.
type batch struct {
	records []outgoing
	bytes   int64
	next    map[*partition]int64 // positions after it
	dirty   bool                 // some position is ahead of what is committed
}

// outgoing is a record of the source and what becomes of it.
type outgoing struct {
	p       *partition
	record  *kgo.Record // of the source
	headers []kgo.RecordHeader
}

// position is where the mirror is after the batch.
func (b *batch) position(p *partition) int64 {
	if at, ok := b.next[p]; ok {
		return at
	}
	return p.position
}

// sort tells what is to be mirrored from what is not.
func (l *life) sort(ctx context.Context, fetches kgo.Fetches) (*batch, error) {
	b := &batch{next: map[*partition]int64{}}
	var failed error
	fetches.EachPartition(func(tp kgo.FetchTopicPartition) {
		if failed != nil || tp.Topic == "" || tp.Err != nil {
			return
		}
		p := l.owned[tp.Topic][tp.Partition]
		if p == nil {
			if len(tp.Records) > 0 {
				failed = fmt.Errorf("records of %s-%d, which was not assigned", tp.Topic, tp.Partition)
			}
			return
		}
		if len(tp.Records) > 0 {
			failed = l.take(ctx, b, p, tp.Records)
		}
		p.stable = tp.LastStableOffset
		l.showLag(p)
	})
	for _, ps := range l.owned {
		for _, p := range ps {
			b.dirty = b.dirty || p.dirty
		}
	}
	return b, failed
}

// showLag is of what is committed.
func (l *life) showLag(p *partition) {
	if p.position >= 0 {
		l.stats.setLag(p.topic, p.number, p.stable-p.position)
	}
}

func (l *life) take(ctx context.Context, b *batch, p *partition, records []*kgo.Record) error {
	if !p.verified {
		if err := l.verifyOrReset(ctx, p, records[0].Offset); err != nil || !p.verified {
			return err
		}
	}
	if int(p.number) >= l.plan[p.topic].partitions {
		return fmt.Errorf("%w: partition %d of %s", errGrown, p.number, p.topic)
	}
	mirrored := false
	for _, r := range records {
		if r.Offset < p.position {
			continue
		}
		if out, ok := l.outgoing(p, r); ok {
			b.records = append(b.records, out)
			b.bytes += int64(len(r.Key) + len(r.Value))
			mirrored = true
		}
	}
	next := records[len(records)-1].Offset + 1
	if mirrored {
		b.next[p] = next
	} else {
		p.position, p.dirty = next, true
	}
	return nil
}

// errGrown: the source's topic has more partitions than the target's. The flow
// begins again, and grows the topic on the way.
var errGrown = errors.New("not yet on the target")

// outgoing says how a record leaves, if it does.
func (l *life) outgoing(p *partition, r *kgo.Record) (outgoing, bool) {
	if r.Attrs.IsControl() {
		return outgoing{}, false
	}
	from := provenance{
		source: l.source.id, topic: p.topic, topicID: l.plan[p.topic].id,
		partition: p.number, offset: r.Offset, origin: l.source.id,
	}
	earlier, mirrored := provenanceOf(r, func(topic string) bool { return l.policy.namedFrom(p.topic, topic) })
	if mirrored && earlier.source == l.target.id {
		mirrored = p.cameBack(r.Offset, earlier)
	}
	if mirrored {
		from.origin = earlier.origin
	}
	switch {
	case r.Offset <= p.held:
		l.stats.skip("duplicate")
	case !l.policy.Identity: // a topic that came from the target is not mirrored at all
		return outgoing{p, r, stamp(r.Headers, mirrored, from)}, true
	case mirrored && earlier.origin == l.target.id:
		l.stats.skip("loop")
	case mirrored && l.direct[earlier.origin]:
		l.stats.skip("direct")
	default:
		return outgoing{p, r, stamp(r.Headers, mirrored, from)}, true
	}
	return outgoing{}, false
}

// verifyOrReset verifies a partition that is mirrored from an offset on. If the
// topic is another one than the target has records of, and the flow goes on, it
// is mirrored from its start; the partition stays unverified until that comes.
func (l *life) verifyOrReset(ctx context.Context, p *partition, from int64) error {
	err := l.verify(ctx, p, from)
	var e *DataLossError
	switch {
	case err == nil:
	case errors.As(err, &e):
		if err := l.loss(e.Kind, e.Topic, e.Partition, e.Detail); err != nil {
			return err
		}
		at, err := l.source.locate(ctx, p.topic, p.number)
		if err != nil {
			return err
		}
		start, _, _, err := l.source.bounds(ctx, at)
		if err != nil {
			return err
		}
		if from > start {
			p.verified = false
			l.consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.number: {Epoch: -1, Offset: start}}})
			return nil
		}
	default:
		return err
	}
	p.position = from
	return nil
}

// mirror runs the transaction until it is committed, or until it takes a new
// beginning: when the offsets were refused, because a rebalance did not wait any
// longer, and when a record was not taken, because its topic was deleted perhaps
// and has to be created again.
func (l *life) mirror(ctx context.Context, b *batch, due []move) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err := l.attempt(ctx, b, due)
		var aborted *client.AbortedError
		moved := errors.Is(err, errGroupMoved)
		switch {
		case err == nil:
			return nil
		case !moved && !errors.As(err, &aborted):
			return err
		}
		l.stats.failed("aborted")
		switch {
		case ctx.Err() != nil, errors.As(err, new(*client.StaleGroupError)):
			return err
		case errors.As(err, new(*client.RecordError)):
			return l.refused(err)
		case moved:
			due = nil
		}
		l.log.Warn().Err(err).Dur("again_in", backoff).Msg("transaction aborted")
		if err := l.pause(ctx, backoff); err != nil {
			return err
		}
	}
}

// refused tells a record that the target will never take from one that it did
// not take now.
func (l *life) refused(err error) error {
	var r *client.RecordError
	if !errors.As(err, &r) {
		return err
	}
	for _, forGood := range []error{
		kerr.MessageTooLarge, kerr.RecordListTooLarge, kerr.InvalidRecord, kerr.InvalidTimestamp,
		kerr.TopicAuthorizationFailed, kerr.PolicyViolation,
	} {
		if errors.Is(err, forGood) {
			return &RecordError{Flow: l.flow.Name(), Topic: r.Topic, Err: r.Err}
		}
	}
	return err
}

// errGroupMoved: a group has come to life on the target while its offsets were
// being moved there.
var errGroupMoved = errors.New("a group has changed on the target")

// attempt is one transaction: the records on the target, the position on the
// source, and the offsets of groups.
func (l *life) attempt(ctx context.Context, b *batch, due []move) error {
	txn, err := l.gtc.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	written := l.produce(ctx, txn, b)
	if err := l.commitPosition(ctx, txn, b); err != nil {
		return l.abort(ctx, txn, err)
	}
	var s stage
	if len(due) > 0 {
		if err := written.wait(ctx); err != nil {
			return l.abort(ctx, txn, err)
		}
		if s, err = l.moveGroups(ctx, txn, b, written, due); err != nil {
			return l.abort(ctx, txn, err)
		}
	}
	if err := l.commit(ctx, txn); err != nil {
		return err
	}
	if err := written.wait(ctx); err != nil {
		return err
	}
	for p, x := range written.indexes(b) {
		p.there.join(x)
	}
	for _, ps := range l.owned {
		for _, p := range ps {
			p.position, p.dirty = b.position(p), false
			if at, ok := b.next[p]; ok {
				p.held = max(p.held, at-1)
				l.showLag(p)
			}
		}
	}
	moved := 0
	for _, o := range s.offsets {
		moved += o.len()
	}
	l.moves.finish(s.moves)
	l.stats.done(int64(len(b.records)), b.bytes, int64(moved))
	return nil
}

// writing are the records of a transaction on their way.
type writing struct {
	wg sync.WaitGroup
	at []int64 // by index into batch.records; -1 failed
}

func (l *life) produce(ctx context.Context, txn *client.Txn, b *batch) *writing {
	w := &writing{at: make([]int64, len(b.records))}
	w.wg.Add(len(b.records))
	for i, out := range b.records {
		r := &kgo.Record{
			Topic: out.p.remote, Partition: out.p.number, Timestamp: out.record.Timestamp,
			Key: out.record.Key, Value: out.record.Value, Headers: out.headers,
		}
		txn.Produce(ctx, l.target.alias, r, func(r *kgo.Record, err error) {
			w.at[i] = r.Offset
			if err != nil {
				w.at[i] = -1
			}
			w.wg.Done()
		})
	}
	return w
}

// wait waits until every record is written or has failed.
func (w *writing) wait(ctx context.Context) error {
	done := make(chan struct{})
	go func() {
		w.wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// indexes pair the offsets of the records on both sides.
func (w *writing) indexes(b *batch) map[*partition]*index {
	out := map[*partition]*index{}
	for i, o := range b.records {
		if w.at[i] < 0 {
			continue
		}
		if out[o.p] == nil {
			out[o.p] = &index{}
		}
		out[o.p].add(o.record.Offset, w.at[i])
	}
	return out
}

// commitPosition adds the mirror's own offsets, as the member of its group that
// it is now.
func (l *life) commitPosition(ctx context.Context, txn *client.Txn, b *batch) error {
	own := offsets{}
	for _, ps := range l.owned {
		for _, p := range ps {
			if at, ok := b.next[p]; ok {
				own.set(p.topic, p.number, at)
			} else if p.dirty {
				own.set(p.topic, p.number, p.position)
			}
		}
	}
	if len(own) == 0 {
		return nil
	}
	g, err := client.GroupOf(ctx, l.consumer)
	if err != nil {
		return err
	}
	return txn.CommitOffsets(ctx, g, own.epochs())
}

// moveGroups adds offsets of groups to the transaction. Kafka takes them without
// a member id also when the group has members, so the groups are looked at
// before and after: a member that comes later finds the offsets unstable until
// the transaction is decided, and one that came between is seen.
func (l *life) moveGroups(ctx context.Context, txn *client.Txn, b *batch, w *writing, due []move) (stage, error) {
	s, err := l.planMoves(ctx, due, w.indexes(b))
	if err != nil || len(s.offsets) == 0 {
		return s, err
	}
	var names []string
	for name, o := range s.offsets {
		g, err := client.StandaloneGroup(ctx, l.target.kgo, name)
		if err != nil {
			return s, err
		}
		if err := txn.CommitOffsets(ctx, g, o.epochs()); err != nil {
			return s, err
		}
		names = append(names, name)
	}
	after, err := l.lookAtTarget(ctx, names)
	if err != nil {
		return s, err
	}
	if changed := s.before.changed(after, s.offsets); len(changed) > 0 {
		l.moves.drop(changed...)
		return s, fmt.Errorf("%w: %v", errGroupMoved, changed)
	}
	return s, nil
}

// abort ends a transaction for which commit was not asked.
func (l *life) abort(ctx context.Context, txn *client.Txn, cause error) error {
	if _, err := txn.Abort(ctx); err != nil {
		return errors.Join(cause, err)
	}
	if errors.Is(cause, errGroupMoved) {
		return cause
	}
	return &client.AbortedError{Cause: cause}
}

// commit asks until the outcome is known.
func (l *life) commit(ctx context.Context, txn *client.Txn) error {
	for {
		result, err := txn.Commit(ctx)
		var unknown *client.UnknownOutcomeError
		switch {
		case err == nil:
			if len(result.Pending()) == 0 {
				return nil
			}
			// The embedded broker takes group offsets in the order in which
			// transactions end, so the next one has to wait for this; Kafka
			// would take them in the order of their writing.
			l.log.Warn().Strs("clusters", result.Pending()).Msg("committed; waiting for clusters to be told")
			if _, err := txn.Wait(ctx); err != nil {
				return fmt.Errorf("committed, and then: %w", err)
			}
			return nil
		case errors.As(err, &unknown) && !unknown.Final && ctx.Err() == nil:
			l.log.Warn().Err(err).Msg("the outcome is not known: asking again")
			if err := l.pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			continue
		case errors.As(err, new(*client.FencedError)):
			l.stats.failed("unknown")
			return l.fenced(ctx, err)
		case errors.As(err, &unknown):
			// What is committed on the source says which it was.
			l.stats.failed("unknown")
		}
		return err
	}
}

// fenced finds out whether it was only the timeout that ended the session. Then
// the flow begins again from what is committed; otherwise the id has gone to
// another process, and taking it back would have the two fence each other for
// ever.
func (l *life) fenced(ctx context.Context, err error) error {
	txn, beginErr := l.gtc.Begin(ctx)
	if errors.As(beginErr, new(*client.FencedError)) {
		return beginErr
	}
	if beginErr == nil {
		_, beginErr = txn.Abort(ctx)
	}
	return fmt.Errorf("%w: %v", errSession, errors.Join(err, beginErr))
}

// errSession: a transaction took longer than its timeout.
var errSession = errors.New("the session has ended, the outcome of its last transaction is in the position on the source")
