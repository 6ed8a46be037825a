package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// partition is one partition of the source that this instance mirrors.
type partition struct {
	topic  string
	number int32
	remote string

	// position is the next offset to read; what is below has been mirrored by
	// a committed transaction, or needs none. -1: not known yet.
	position int64
	// dirty: position is ahead of what is committed on the source.
	dirty bool
	// stable is the source's last stable offset when it was last fetched.
	stable int64

	// verified: what follows has been read from the target.
	verified bool
	// held is the highest source offset of a record that the target holds; -1
	// none found.
	held int64
	// end is a position on the target after every record that was mirrored
	// before this instance had the partition.
	end int64
	// there pairs source offsets with those of the mirrored records; back
	// pairs the offsets of records on the source that came from the target
	// with their offsets there.
	there, back index
	// backID is the target's topic that back is about.
	backID [16]byte
	// rewritten: the source lost records that were mirrored, so what the
	// target holds says nothing of what is there now.
	rewritten bool
}

func newPartition(topic string, number int32, remote string) *partition {
	return &partition{topic: topic, number: number, remote: remote, position: -1, held: -1}
}

// cameBack notes a record of the source whose header says that it came from the
// target, and reports whether that can be: the mirror brings each record once,
// in order, so one that was brought before is an application's copy with all
// its headers, to be mirrored like any other.
func (p *partition) cameBack(offset int64, from provenance) bool {
	if from.topicID != p.backID {
		p.back, p.backID = index{floor: offset}, from.topicID
	}
	if next, ok := p.back.end(); ok && from.offset < next {
		return false
	}
	p.back.add(offset, from.offset)
	return true
}

// errUnsettled: a transaction is open on a partition of the target, so that
// what it holds cannot be told.
var errUnsettled = errors.New("a transaction is open on it")

// settleTime is how long a partition of the target is given to have no
// transaction open. What an earlier instance left is ended by its successor's
// InitGlobalTxn, or by the coordinator after the transaction timeout.
const settleTime = 10 * time.Second

// lookBack is how many offsets at the end of a partition are searched for a
// record of the source.
const lookBack = 1 << 16

// verify reads on the target how far the partition was mirrored. first is the
// offset from which this instance mirrors.
//
// It returns a *DataLossError, kind topic_recreated, when the newest record is
// of another topic of the same name.
func (l *life) verify(ctx context.Context, p *partition, first int64) error {
	newest, found, end, err := l.newestHeld(ctx, p)
	if err != nil {
		return err
	}
	p.end, p.there.floor, p.back.floor = end, first, first
	p.verified = true
	switch {
	case !found:
		return nil
	case l.replaced(p, newest):
		return &DataLossError{
			Flow: l.flow.Name(), Kind: LossRecreated, Topic: p.topic, Partition: p.number,
			Detail: fmt.Sprintf("the target holds records of the topic with id %s, and the source's has id %s now", kadm.TopicID(newest.topicID), l.plan[p.topic].id),
		}
	case p.rewritten:
		return nil
	}
	p.held = newest.offset
	if p.held >= first {
		l.log.Warn().Str("topic", p.topic).Int32("partition", p.number).Int64("position", first).Int64("held", p.held).
			Msg("the position on the source is behind what the target holds (did the group's offsets expire?): records that are there already are not mirrored again")
	}
	return nil
}

// replaced reports that the source's topic is another one than that of a record
// on the target.
func (l *life) replaced(p *partition, newest provenance) bool {
	return newest.topicID != l.plan[p.topic].id
}

// newestHeld is the newest record of the source that the target holds, and the
// position after every record there.
func (l *life) newestHeld(ctx context.Context, p *partition) (newest provenance, found bool, end int64, err error) {
	at, err := l.target.locate(ctx, p.remote, p.number)
	if err != nil {
		return newest, false, 0, err
	}
	start, stable, err := l.settled(ctx, at)
	if errors.Is(err, errUnsettled) && l.policy.Identity {
		// Somebody else's transaction: what the mirror left is ended by now.
		// The position on the source decides alone, as it would without this
		// look.
		l.log.Warn().Str("topic", p.topic).Int32("partition", p.number).
			Msg("a transaction is open on the target's partition: what is behind it is not seen")
		err = nil
	}
	if err == nil {
		newest, found, err = l.target.newest(ctx, at, start, stable, l.fromSource(p))
	}
	return newest, found, stable, err
}

// settled waits until what was in the log when it began is decided, and returns
// the log's start and its last stable offset then.
func (l *life) settled(ctx context.Context, at place) (start, stable int64, err error) {
	limit := settleTime
	if !l.policy.Identity { // nobody but the mirror writes there
		limit += l.flow.TransactionTimeout
	}
	_, _, high, err := l.target.bounds(ctx, at)
	for began := l.clock.Now(); err == nil; {
		if start, stable, _, err = l.target.bounds(ctx, at); err != nil || stable >= high {
			return start, stable, err
		}
		if l.clock.Now().Sub(began) > limit {
			return start, stable, fmt.Errorf("cluster %s, %s-%d: %w", l.target.alias, at.topic, at.partition, errUnsettled)
		}
		err = l.pause(ctx, 20*time.Millisecond)
	}
	return 0, 0, err
}

// fromSource picks records of a partition of the target that the flow wrote.
func (l *life) fromSource(p *partition) picker { return pickFrom(l.source.id, p.topic) }

// fromTarget picks records of a partition of the source that came from the
// target under the same name.
func (l *life) fromTarget(p *partition) picker { return pickFrom(l.target.id, p.topic) }

// picker takes some records of a log, and says where they were mirrored from.
type picker func(*kgo.Record) (provenance, bool)

func pickFrom(cluster, topic string) picker {
	return func(r *kgo.Record) (provenance, bool) {
		pv, ok := provenanceOf(r, func(t string) bool { return t == topic })
		return pv, ok && pv.source == cluster
	}
}

// newest finds the last record below an offset that pick takes, looking back
// over twice as much each time.
func (s *side) newest(ctx context.Context, at place, start, below int64, pick picker) (pv provenance, found bool, err error) {
	for width, to := int64(64), below; to > start && below-to < lookBack; width *= 2 {
		from := max(start, to-width)
		err = s.scan(ctx, at, from, to, func(r *kgo.Record) bool {
			if got, ok := pick(r); ok {
				pv, found = got, true
			}
			return true
		})
		if found || err != nil {
			return pv, found, err
		}
		to = from
	}
	return pv, false, nil
}
