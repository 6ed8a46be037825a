package mirror

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// offsets are next to read, by topic and partition.
type offsets map[string]map[int32]int64

func (o offsets) set(topic string, partition int32, offset int64) {
	if o[topic] == nil {
		o[topic] = map[int32]int64{}
	}
	o[topic][partition] = offset
}

func (o offsets) epochs() map[string]map[int32]kgo.EpochOffset {
	out := make(map[string]map[int32]kgo.EpochOffset, len(o))
	for topic, ps := range o {
		out[topic] = make(map[int32]kgo.EpochOffset, len(ps))
		for p, at := range ps {
			out[topic][p] = kgo.EpochOffset{Epoch: -1, Offset: at}
		}
	}
	return out
}

func (o offsets) len() (n int) {
	for _, ps := range o {
		n += len(ps)
	}
	return n
}

// groupOffsets are the offsets of groups, by group.
type groupOffsets map[string]offsets

// sourceGroups are the committed offsets of the groups that the flow moves.
// Offsets of a transaction that is not decided are not among them.
func (l *life) sourceGroups(ctx context.Context) (groupOffsets, error) {
	listed, err := l.source.adm.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the groups of %s: %w", l.source.alias, err)
	}
	var names []string
	for _, g := range listed.Sorted() {
		consumes := g.ProtocolType == "consumer" || g.ProtocolType == "" // the latter: offsets without members
		if consumes && g.GroupType != "share" && !l.ownGroup(g.Group) && l.flow.Groups.Match(g.Group) {
			names = append(names, g.Group)
		}
	}
	return fetchOffsets(kadm.RequireStable(ctx), l.source, names)
}

// ownGroup reports whether a group is the position of some mirror.
func (l *life) ownGroup(group string) bool { return slices.Contains(l.positions, group) }

func fetchOffsets(ctx context.Context, s *side, groups []string) (groupOffsets, error) {
	if len(groups) == 0 {
		return groupOffsets{}, nil
	}
	out := groupOffsets{}
	for group, resp := range s.adm.FetchManyOffsets(ctx, groups...) {
		if errors.Is(resp.Err, kerr.GroupIDNotFound) {
			continue
		}
		if resp.Err != nil {
			return nil, fmt.Errorf("offsets of group %s on %s: %w", group, s.alias, resp.Err)
		}
		o := offsets{}
		for topic, ps := range resp.Fetched {
			for p, at := range ps {
				if at.Err == nil && at.At >= 0 {
					o.set(topic, p, at.At)
				}
			}
		}
		out[group] = o
	}
	return out, nil
}

// active are those of the groups that have members on the target.
func (l *life) active(ctx context.Context, groups []string) (map[string]bool, error) {
	listed, err := l.target.adm.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the groups of %s: %w", l.target.alias, err)
	}
	active := map[string]bool{}
	for _, g := range groups {
		if on, ok := listed[g]; ok && on.State != "Empty" && on.State != "Dead" {
			active[g] = true
		}
	}
	return active, nil
}

// onTarget is what is known of groups on the target at one moment.
type onTarget struct {
	active    map[string]bool
	committed groupOffsets
}

func (l *life) lookAtTarget(ctx context.Context, groups []string) (onTarget, error) {
	active, err := l.active(ctx, groups)
	if err != nil {
		return onTarget{}, err
	}
	committed, err := fetchOffsets(ctx, l.target, groups)
	return onTarget{active, committed}, err
}

// changed names the groups that are no longer as they were, in what is being
// moved: another instance may be moving offsets of other partitions.
func (before onTarget) changed(now onTarget, moved groupOffsets) []string {
	var names []string
	for g, o := range moved {
		same := before.active[g] == now.active[g]
		for topic, ns := range o {
			for n := range ns {
				was, had := before.committed[g][topic][n]
				is, has := now.committed[g][topic][n]
				same = same && had == has && was == is
			}
		}
		if !same {
			names = append(names, g)
		}
	}
	return names
}

// move is one offset of a group that is to be moved.
type move struct {
	group  string
	p      *partition
	offset int64 // of the source, at most the mirror's position
}

// groupsLook is what a look at the groups has found.
type groupsLook struct{ source, target groupOffsets }

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

// update takes a new look at the groups. What was moved and is no longer on the
// target (an offset without members expires) is moved again.
func (m *moves) update(look groupsLook, p plan, owned map[string]map[int32]*partition) {
	m.wanted, m.fresh = groupOffsets{}, true
	for group, o := range look.source {
		for topic, ns := range o {
			remote := p[topic].remote
			for n, want := range ns {
				if owned[topic][n] == nil {
					continue
				}
				done, moved := m.done[group][topic][n]
				if _, there := look.target[group][remote][n]; moved && there && done >= want {
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

// unverified are partitions for which offsets wait and nothing is known of.
func (m *moves) unverified(owned map[string]map[int32]*partition) []*partition {
	seen := map[*partition]bool{}
	for _, o := range m.wanted {
		for topic, ns := range o {
			for n := range ns {
				if p := owned[topic][n]; p != nil && !p.verified {
					seen[p] = true
				}
			}
		}
	}
	return slices.Collect(maps.Keys(seen))
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

// watchGroups looks at the groups of the source again and again.
func (l *life) watchGroups(ctx context.Context) {
	for {
		look, err := l.lookAtGroups(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.log.Warn().Err(err).Msg("group offsets are not moved until the groups can be read")
		default:
			latest(l.groups, look)
		}
		if l.pause(ctx, l.flow.SyncGroupOffsetsInterval) != nil {
			return
		}
	}
}

func (l *life) lookAtGroups(ctx context.Context) (groupsLook, error) {
	source, err := l.sourceGroups(ctx)
	if err != nil {
		return groupsLook{}, err
	}
	target, err := fetchOffsets(ctx, l.target, slices.Collect(maps.Keys(source)))
	return groupsLook{source, target}, err
}

// latest puts v into a channel of one in place of what nobody has taken.
func latest[T any](ch chan T, v T) {
	select {
	case <-ch:
	default:
	}
	ch <- v // there is one sender
}

// stage is what the running transaction commits of groups on the target.
type stage struct {
	offsets groupOffsets
	moves   []move // that need nothing more when it commits
	before  onTarget
}

// planMoves translates moves. A group with members on the target is left alone until
// the next look, and an offset that the group has passed there already is done.
func (l *life) planMoves(ctx context.Context, due []move, staged map[*partition]*index) (stage, error) {
	s := stage{offsets: groupOffsets{}}
	groups := map[string]bool{}
	for _, d := range due {
		groups[d.group] = true
	}
	names := slices.Sorted(maps.Keys(groups))
	var err error
	if s.before, err = l.lookAtTarget(ctx, names); err != nil {
		return s, err
	}
	for _, d := range due {
		if s.before.active[d.group] {
			l.moves.drop(d.group)
			continue
		}
		in := staged[d.p]
		if in == nil {
			in = &index{}
		}
		to, err := l.translate(ctx, d.p, d.offset, in)
		if err != nil {
			return s, err
		}
		s.moves = append(s.moves, d)
		if have, ok := s.before.committed[d.group][d.p.remote][d.p.number]; ok && have >= to {
			continue
		}
		s.offsets.set(d.group, d.p.remote, d.p.number, to)
	}
	return s, nil
}
