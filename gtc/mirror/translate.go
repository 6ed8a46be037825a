package mirror

import (
	"context"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// translate gives the offset on the target that stands for an offset of the
// source, the next to read of some group, at or below the position that the
// running transaction commits. staged are the records of that transaction.
func (l *life) translate(ctx context.Context, p *partition, offset int64, staged *index) (int64, error) {
	x, err := forward(&p.there, staged, p.end, offset, func(below int64) (int64, bool, error) {
		return l.searchTarget(ctx, p, offset, below)
	})
	if err != nil || !l.bothWays {
		return x, err
	}
	// The target's own records lie between, and the group has read those that
	// were mirrored to the source below its offset, and no others.
	y, err := l.backward(ctx, p, offset)
	return min(x, y), err
}

// forward is the place on the target of the first mirrored record at or above
// an offset of the source, or the position after the last. What there does not
// know, search looks for below a position.
func forward(there, staged *index, end, offset int64, search func(below int64) (int64, bool, error)) (int64, error) {
	if offset < there.floor {
		below := end
		if first, ok := there.first(); ok {
			below = first
		}
		if x, found, err := search(below); found || err != nil {
			return x, err
		}
	}
	for _, x := range []*index{there, staged} {
		if to, ok := x.ceil(offset); ok {
			return to, nil
		}
	}
	for _, x := range []*index{staged, there} {
		if to, ok := x.end(); ok {
			return to, nil
		}
	}
	return end, nil
}

// searchTarget finds the first record below a position on the target that was
// mirrored from at or above an offset of the source.
func (l *life) searchTarget(ctx context.Context, p *partition, offset, below int64) (int64, bool, error) {
	at, err := l.target.locate(ctx, p.remote, p.number)
	if err != nil {
		return 0, false, err
	}
	start, _, _, err := l.target.bounds(ctx, at)
	if err != nil {
		return 0, false, err
	}
	id, pick := l.plan[p.topic].id, l.fromSource(p)
	return bisect(start, below, func(from, to int64) (at int64, reached, found bool, err error) {
		return l.target.firstPicked(ctx, p, from, to, offset, id, pick)
	})
}

// firstPicked reads the first record in [from, to) that pick takes, and reports
// whether it reaches the offset. What is from an earlier topic of the same name
// was mirrored before anything of the present one.
func (s *side) firstPicked(ctx context.Context, p *partition, from, to, offset int64, id kadm.TopicID, pick picker) (at int64, reached, found bool, err error) {
	where, err := s.locate(ctx, p.remote, p.number)
	if err != nil {
		return 0, false, false, err
	}
	err = s.scan(ctx, where, from, to, func(r *kgo.Record) bool {
		pv, ok := pick(r)
		if !ok {
			return true
		}
		at, reached, found = r.Offset, pv.topicID == id && pv.offset >= offset, true
		return false
	})
	return at, reached, found, err
}

// bisect finds the first record in [lo, hi) that reaches what is looked for.
// probe gives the first record of a range; those that reach it come after those
// that do not.
func bisect(lo, hi int64, probe func(from, to int64) (at int64, reached, found bool, err error)) (int64, bool, error) {
	best, hit := int64(0), false
	for lo < hi {
		mid := lo + (hi-lo)/2
		at, reached, found, err := probe(mid, hi)
		switch {
		case err != nil:
			return 0, false, err
		case !found:
			hi = mid
		case reached:
			best, hit = at, true
			hi = mid
		default:
			lo = at + 1
		}
	}
	return best, hit, nil
}

// backward is the target's position below which the group has read every record
// that was written on the target itself: after the last of those whose copy on
// the source is below the group's offset. When none is found it is the start.
func (l *life) backward(ctx context.Context, p *partition, offset int64) (int64, error) {
	if offset > p.back.floor {
		if there, ok := p.back.below(offset); ok {
			return there + 1, nil
		}
	}
	at, err := l.source.locate(ctx, p.topic, p.number)
	if err != nil {
		return 0, err
	}
	start, _, _, err := l.source.bounds(ctx, at)
	if err != nil {
		return 0, err
	}
	pv, found, err := l.source.newest(ctx, at, start, min(offset, p.back.floor), l.fromTarget(p))
	if !found || err != nil {
		return 0, err
	}
	return pv.offset + 1, nil
}

// translateHome gives the source's offset for an offset of the mirrored topic on
// the target: the place from which the first mirrored record at or above it
// came, or after that of the last. -1: nothing has been mirrored.
func (l *life) translateHome(ctx context.Context, p *partition, offset int64, staged *index) (int64, error) {
	below, known := p.there.first()
	if !known {
		below = p.end
	}
	if offset < below {
		id, pick := l.plan[p.topic].id, l.fromSource(p)
		at, err := l.target.locate(ctx, p.remote, p.number)
		if err != nil {
			return 0, err
		}
		found := int64(-1)
		err = l.target.scan(ctx, at, offset, below, func(r *kgo.Record) bool {
			if pv, ok := pick(r); ok && pv.topicID == id {
				found = pv.offset
			}
			return found < 0
		})
		if found >= 0 || err != nil {
			return found, err
		}
	}
	there, running := p.there.turned(), staged.turned()
	for _, x := range []*index{there, running} {
		if from, ok := x.ceil(offset); ok {
			return from, nil
		}
	}
	for _, x := range []*index{running, there} {
		if from, ok := x.end(); ok {
			return from, nil
		}
	}
	if p.held < 0 {
		return -1, nil
	}
	return p.held + 1, nil
}
