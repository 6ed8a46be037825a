package mirror

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// move is one offset of a group that is to be moved.
type move struct {
	group  string
	p      *partition
	offset int64 // of the source, at most the mirror's position
}

// groupsLook is what a look at the groups has found.
type groupsLook struct {
	from  groupOffsets // the offsets to be moved
	there groupOffsets // those of the same groups where they are moved to
}

// named gives a look, whose topics are those of the two clusters, the names of
// the source's.
func (g groupsLook) named(w *way, owned map[string]map[int32]*partition) groupsLook {
	out := groupsLook{groupOffsets{}, groupOffsets{}}
	for _, ps := range owned {
		for n, p := range ps {
			for group, o := range g.from {
				if at, ok := o[w.read(p)][n]; ok {
					out.from.set(group, p.topic, n, at)
				}
				if at, ok := g.there[group][w.topic(p)][n]; ok {
					out.there.set(group, p.topic, n, at)
				}
			}
		}
	}
	return out
}

// moves keeps which offsets are still to be moved.
type moves struct {
	// wanted are offsets of the source that have not been moved.
	wanted groupOffsets
	// done is up to where an offset of the source has been moved, or found to
	// need no move.
	done groupOffsets
	// fresh: wanted is new, so that what is beyond the mirror is moved as far
	// as the mirror is.
	fresh bool
}

// update takes a new look at the groups. What was moved and is no longer
// there (an offset without members expires) is moved again.
func (m *moves) update(look groupsLook, owned map[string]map[int32]*partition) {
	m.wanted, m.fresh = groupOffsets{}, true
	for group, o := range look.from {
		for topic, ns := range o {
			for n, want := range ns {
				if owned[topic][n] == nil {
					continue
				}
				done, moved := m.done[group][topic][n]
				if _, there := look.there[group][topic][n]; moved && there && done >= want {
					continue
				}
				if !moved || done >= want {
					m.done.unset(group, topic, n)
				}
				m.wanted.set(group, topic, n, want)
			}
		}
	}
}

func (g groupOffsets) set(group, topic string, n int32, at int64) {
	if g[group] == nil {
		g[group] = offsets{}
	}
	g[group].set(topic, n, at)
}

func (g groupOffsets) unset(group, topic string, n int32) { delete(g[group][topic], n) }

// due are the moves that a transaction could make after which the mirror's
// positions are those that at gives; -1: not known.
func (m *moves) due(owned map[string]map[int32]*partition, at func(*partition) int64) []move {
	var due []move
	for group, o := range m.wanted {
		for topic, ns := range o {
			for n, want := range ns {
				p := owned[topic][n]
				if p == nil || !p.verified {
					continue
				}
				to := min(want, at(p))
				if last, moved := m.done[group][topic][n]; moved && to <= last || to < want && !m.fresh {
					continue
				}
				due = append(due, move{group, p, to})
			}
		}
	}
	m.fresh = false
	return due
}

// unverified finds partitions for which offsets wait and nothing is known of.
func (m *moves) unverified(owned map[string]map[int32]*partition, found map[*partition]bool) {
	for _, o := range m.wanted {
		for topic, ns := range o {
			for n := range ns {
				if p := owned[topic][n]; p != nil && !p.verified {
					found[p] = true
				}
			}
		}
	}
}

// finish notes moves that are committed.
func (m *moves) finish(done []move) {
	if m.done == nil {
		m.done = groupOffsets{}
	}
	for _, d := range done {
		m.done.set(d.group, d.p.topic, d.p.number, d.offset)
		if want, ok := m.wanted[d.group][d.p.topic][d.p.number]; ok && d.offset >= want {
			m.wanted.unset(d.group, d.p.topic, d.p.number)
		}
	}
}

// drop leaves groups alone until the next look.
func (m *moves) drop(groups ...string) {
	for _, g := range groups {
		delete(m.wanted, g)
	}
}

// stage is what the running transaction commits of groups on the target.
type stage struct {
	offsets groupOffsets
	moves   []move // that need nothing more when it commits
	before  standing
}

// plan translates moves. A group with members there is left alone until the next
// look, and an offset that the group has passed there already is done.
func (w *way) plan(ctx context.Context, due []move, staged map[*partition]*index) (stage, error) {
	s := stage{offsets: groupOffsets{}}
	groups := map[string]bool{}
	for _, d := range due {
		groups[d.group] = true
	}
	names := slices.Sorted(maps.Keys(groups))
	var err error
	if s.before, err = standingOf(ctx, w.to, names); err != nil {
		return s, err
	}
	for _, d := range due {
		if s.before.active[d.group] {
			w.drop(d.group)
			continue
		}
		in := staged[d.p]
		if in == nil {
			in = &index{}
		}
		to, err := w.translate(ctx, d.p, d.offset, in)
		if err != nil {
			return s, err
		}
		s.moves = append(s.moves, d)
		topic := w.topic(d.p)
		if have, ok := s.before.committed[d.group][topic][d.p.number]; to < 0 || ok && have >= to {
			continue
		}
		s.offsets.set(d.group, topic, d.p.number, to)
	}
	return s, nil
}

// move adds offsets of groups to the transaction. Kafka takes them without a
// member id also when the group has members, so the groups are looked at before
// and after: a member that comes later finds the offsets unstable until the
// transaction is decided, and one that came between is seen.
func (w *way) move(ctx context.Context, txn *client.Txn, due []move, staged map[*partition]*index) (stage, error) {
	if len(due) == 0 {
		return stage{}, nil
	}
	s, err := w.plan(ctx, due, staged)
	if err != nil || len(s.offsets) == 0 {
		return s, err
	}
	for name, o := range s.offsets {
		var g client.Group
		if g, err = client.StandaloneGroup(ctx, w.to.kgo, name); err == nil {
			err = txn.CommitOffsets(ctx, g, o.epochs())
		}
		if err != nil {
			return s, err
		}
	}
	after, err := standingOf(ctx, w.to, slices.Collect(maps.Keys(s.offsets)))
	if err != nil {
		return s, err
	}
	if changed := s.before.changed(after, s.offsets); len(changed) > 0 {
		return s, fmt.Errorf("%w: %v", errChanged, changed)
	}
	return s, nil
}

// way is a direction in which offsets of groups are moved.
type way struct {
	moves
	from, to *side
	groups   Filter
	// topic is the partition's topic where offsets are moved to; read is where
	// they are from.
	topic, read func(*partition) string
	// limit is up to where offsets can be moved in the transaction of a batch.
	limit func(*batch, *partition) int64
	// translate gives the place for an offset, with the records of the running
	// transaction; -1: there is none.
	translate func(context.Context, *partition, int64, *index) (int64, error)
}

// setWays finds out in which directions the flow moves offsets: along with its
// records, and home: a group that reads the mirrored topic on the target has a
// place in the topic itself. The latter belongs to the flow back, and is done
// here because this flow knows which record is which. With the identity policy
// the flow back does it as its own.
func (l *life) setWays() {
	here := func(p *partition) string { return p.topic }
	there := func(p *partition) string { return p.remote }
	if l.flow.SyncGroupOffsets {
		l.ways = append(l.ways, &way{
			from: l.source, to: l.target, groups: l.flow.Groups, read: here, topic: there,
			limit: (*batch).position, translate: l.translate,
		})
	}
	if home := l.flowBack(); home != nil && home.SyncGroupOffsets && !l.policy.Identity {
		l.ways = append(l.ways, &way{
			from: l.target, to: l.source, groups: home.Groups, read: there, topic: here,
			limit: func(*batch, *partition) int64 { return math.MaxInt64 }, translate: l.translateHome,
		})
	}
}

// dues are the moves that are due, by direction.
type dues [][]move

func (d dues) empty() bool {
	return !slices.ContainsFunc(d, func(moves []move) bool { return len(moves) > 0 })
}

func (l *life) due(b *batch) dues {
	var d dues
	for _, w := range l.ways {
		d = append(d, w.due(l.owned, func(p *partition) int64 { return w.limit(b, p) }))
	}
	return d
}
