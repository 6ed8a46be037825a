package durable

import (
	"fmt"
	"time"
)

type groupPartition struct {
	group, topic string
	partition    int32
}

// groupsLog is groups.log: the committed offsets of groups, last entry wins.
type groupsLog struct {
	path        string
	valid, size int
	committed   map[groupPartition]offsetOf
	appended    []groupJSON
}

func readGroups(path string) (*groupsLog, error) {
	entries, valid, size, err := readFrames[groupJSON](path)
	if err != nil {
		return nil, err
	}
	g := &groupsLog{path: path, valid: valid, size: size, committed: make(map[groupPartition]offsetOf)}
	for i, e := range entries {
		at := groupPartition{e.Group, e.Topic, e.Partition}
		switch e.Type {
		case "commit":
			g.committed[at] = offsetOf{e.Offset, e.Epoch, e.Metadata}
		case "delete":
			delete(g.committed, at)
		case "meta", "meta848", "static":
		default:
			return nil, fmt.Errorf("%w: %s: entry %d has type %q", ErrLayout, path, i, e.Type)
		}
	}
	return g, nil
}

// has says whether every staged offset of t is what its group has committed.
func (g *groupsLog) has(t *stagedTxn) bool {
	all := len(t.offsets) > 0
	t.each(func(at groupPartition, o offsetOf) {
		c, ok := g.committed[at]
		all = all && ok && c.Offset == o.Offset && c.LeaderEpoch == o.LeaderEpoch
	})
	return all
}

// commit applies the staged offsets of t, as the end of its transaction does.
func (g *groupsLog) commit(t *stagedTxn, at time.Time) {
	millis := at.UnixMilli()
	t.each(func(p groupPartition, o offsetOf) {
		if c, ok := g.committed[p]; ok && c.Offset == o.Offset && c.LeaderEpoch == o.LeaderEpoch {
			return
		}
		g.committed[p] = o
		g.appended = append(g.appended, groupJSON{
			Type: "commit", Group: p.group, Topic: p.topic, Partition: p.partition,
			Offset: o.Offset, Epoch: o.LeaderEpoch, Metadata: o.Metadata, LastCommit: &millis,
		})
	})
}

func (g *groupsLog) flush() (changed bool, err error) {
	if g.valid < g.size {
		if err = truncateFile(g.path, int64(g.valid)); err != nil {
			return false, err
		}
		changed = true
	}
	if len(g.appended) == 0 {
		return changed, nil
	}
	var raw []byte
	for _, e := range g.appended {
		if raw, err = appendFrame(raw, e); err != nil {
			return false, err
		}
	}
	return true, appendFile(g.path, raw)
}
