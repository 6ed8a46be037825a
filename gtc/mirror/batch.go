package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
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
	if errors.As(err, &e) {
		if err = l.loss(e.Kind, e.Topic, e.Partition, e.Detail); err == nil {
			err = l.fromStart(ctx, p, from)
		}
	}
	if err == nil && p.verified {
		p.position = from
	}
	return err
}

// fromStart moves a partition to its start, unless it is there.
func (l *life) fromStart(ctx context.Context, p *partition, from int64) error {
	at, err := l.source.locate(ctx, p.topic, p.number)
	if err != nil {
		return err
	}
	start, _, _, err := l.source.bounds(ctx, at)
	if err != nil || from <= start {
		return err
	}
	p.verified = false
	l.consumer.SetOffsets(map[string]map[int32]kgo.EpochOffset{p.topic: {p.number: {Epoch: -1, Offset: start}}})
	return nil
}
