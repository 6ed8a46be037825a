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

// groupsOf are the committed offsets of the groups of a cluster that a filter
// takes. Offsets of a transaction that is not decided are not among them.
func (l *life) groupsOf(ctx context.Context, s *side, filter Filter) (groupOffsets, error) {
	listed, err := s.adm.ListGroups(ctx)
	if err != nil {
		return nil, fmt.Errorf("list the groups of %s: %w", s.alias, err)
	}
	var names []string
	for _, g := range listed.Sorted() {
		consumes := g.ProtocolType == "consumer" || g.ProtocolType == "" // the latter: offsets without members
		if consumes && g.GroupType != "share" && !l.ownGroup(g.Group) && filter.Match(g.Group) {
			names = append(names, g.Group)
		}
	}
	return fetchOffsets(kadm.RequireStable(ctx), s, names)
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

// standing is what is known of groups on a cluster at one moment.
type standing struct {
	active    map[string]bool // has members
	committed groupOffsets
}

func standingOf(ctx context.Context, s *side, groups []string) (standing, error) {
	listed, err := s.adm.ListGroups(ctx)
	if err != nil {
		return standing{}, fmt.Errorf("list the groups of %s: %w", s.alias, err)
	}
	active := map[string]bool{}
	for _, g := range groups {
		if on, ok := listed[g]; ok && on.State != "Empty" && on.State != "Dead" {
			active[g] = true
		}
	}
	committed, err := fetchOffsets(ctx, s, groups)
	return standing{active, committed}, err
}

// changed names the groups that are no longer as they were, in what is being
// moved: another instance may be moving offsets of other partitions.
func (before standing) changed(now standing, moved groupOffsets) []string {
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

// watchGroups looks at the groups again and again.
func (l *life) watchGroups(ctx context.Context) {
	for {
		looks, err := l.lookAtGroups(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			l.log.Warn().Err(err).Msg("group offsets are not moved until the groups can be read")
		default:
			latest(l.looks, looks)
		}
		if l.pause(ctx, l.flow.SyncGroupOffsetsInterval) != nil {
			return
		}
	}
}

// lookAtGroups looks in each direction.
func (l *life) lookAtGroups(ctx context.Context) ([]groupsLook, error) {
	var looks []groupsLook
	for _, w := range l.ways {
		from, err := l.groupsOf(ctx, w.from, w.groups)
		if err != nil {
			return nil, err
		}
		there, err := fetchOffsets(ctx, w.to, slices.Collect(maps.Keys(from)))
		if err != nil {
			return nil, err
		}
		looks = append(looks, groupsLook{from, there})
	}
	return looks, nil
}

// latest puts v into a channel of one in place of what nobody has taken.
func latest[T any](ch chan T, v T) {
	select {
	case <-ch:
	default:
	}
	ch <- v // there is one sender
}
