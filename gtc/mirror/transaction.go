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

// mirror runs the transaction until it is committed, or until it takes a new
// beginning: when the offsets were refused, because a rebalance did not wait any
// longer, and when a record was not taken, because its topic was deleted perhaps
// and has to be created again.
func (l *life) mirror(ctx context.Context, b *batch, due dues) error {
	for backoff := firstBackoff; ; backoff = min(2*backoff, lastBackoff) {
		err := l.attempt(ctx, b, due)
		var aborted *client.AbortedError
		switch {
		case err == nil:
			return nil
		case !errors.As(err, &aborted):
			return err
		}
		l.stats.failed("aborted")
		switch {
		case ctx.Err() != nil, errors.As(err, new(*client.StaleGroupError)):
			return err
		case errors.As(err, new(*client.RecordError)):
			return l.refused(err)
		case errors.Is(err, errNotMoved): // the next look at the groups brings them again
			for i, w := range l.ways {
				for _, d := range due[i] {
					w.drop(d.group)
				}
			}
			due = nil
		}
		l.log.Warn().Err(err).Dur("again_in_ms", backoff).Msg("transaction aborted")
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

var (
	// errNotMoved: offsets of groups could not be moved. The records do not
	// wait for it.
	errNotMoved = errors.New("group offsets were not moved")
	// errChanged: a group has come to life on the target while its offsets were
	// being moved there.
	errChanged = errors.New("groups have changed on the target")
)

// attempt is one transaction: the records on the target, the position on the
// source, and the offsets of groups.
func (l *life) attempt(ctx context.Context, b *batch, due dues) error {
	txn, err := l.gtc.Begin(ctx)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	written := l.produce(ctx, txn, b)
	err = l.commitPosition(ctx, txn, b)
	var stages []stage
	if err == nil && !due.empty() {
		if err = written.wait(ctx); err == nil {
			if stages, err = l.moveGroups(ctx, txn, b, written, due); err != nil {
				err = fmt.Errorf("%w: %w", errNotMoved, err)
			}
		}
	}
	if err != nil {
		return l.abort(ctx, txn, err)
	}
	if err = l.commit(ctx, txn); err == nil {
		err = written.wait(ctx)
	}
	if err != nil {
		return err
	}
	l.settle(b, written)
	moved := 0
	for i, s := range stages {
		l.ways[i].finish(s.moves)
		for _, o := range s.offsets {
			moved += o.len()
		}
	}
	l.stats.done(int64(len(b.records)), b.bytes, int64(moved))
	return nil
}

// settle takes over what a committed transaction has changed.
func (l *life) settle(b *batch, written *writing) {
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

// moveGroups adds offsets of groups to the transaction, in each direction.
func (l *life) moveGroups(ctx context.Context, txn *client.Txn, b *batch, w *writing, due dues) ([]stage, error) {
	staged := w.indexes(b)
	var stages []stage
	for i, way := range l.ways {
		s, err := way.move(ctx, txn, due[i], staged)
		if err != nil {
			return nil, err
		}
		stages = append(stages, s)
	}
	return stages, nil
}

// abort ends a transaction for which commit was not asked.
func (l *life) abort(ctx context.Context, txn *client.Txn, cause error) error {
	if _, err := txn.Abort(ctx); err != nil {
		return errors.Join(cause, err)
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
			if _, err = txn.Wait(ctx); err != nil {
				return fmt.Errorf("committed, and then: %w", err)
			}
			return nil
		case errors.As(err, &unknown) && !unknown.Final && ctx.Err() == nil:
			l.log.Warn().Err(err).Msg("the outcome is not known: asking again")
			if err = l.pause(ctx, 100*time.Millisecond); err != nil {
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
	return fmt.Errorf("%w: %s", errSession, errors.Join(err, beginErr).Error()) // no FencedError any more
}

// errSession: a transaction took longer than its timeout.
var errSession = errors.New("the session has ended, the outcome of its last transaction is in the position on the source")
