package durable

import (
	"fmt"
	"maps"
	"slices"
	"time"
)

// groupKey names what one entry of groups.log replaces.
type groupKey struct {
	kind, group, topic string
	partition          int32
	instance           string
}

func commitKey(group, topic string, partition int32) groupKey {
	return groupKey{kind: "commit", group: group, topic: topic, partition: partition}
}

// groupsLog is groups.log: groups, their static members and committed offsets.
// The last entry of a key is the one that counts.
type groupsLog struct {
	path        string
	valid, size int
	entries     []groupJSON      // of the file, and behind them what is new
	inFile      int              // how many of them are in the file
	last        map[groupKey]int // the entry that counts
}

func readGroups(path string) (*groupsLog, error) {
	entries, valid, size, err := readFrames[groupJSON](path)
	if err != nil {
		return nil, err
	}
	g := &groupsLog{path: path, valid: valid, size: size, entries: entries, inFile: len(entries), last: make(map[groupKey]int)}
	for i, e := range entries {
		switch e.Type {
		case "commit":
			g.last[commitKey(e.Group, e.Topic, e.Partition)] = i
		case "delete":
			delete(g.last, commitKey(e.Group, e.Topic, e.Partition))
		case "meta", "meta848":
			g.last[groupKey{kind: "meta", group: e.Group}] = i
		case "static":
			key := groupKey{kind: "static", group: e.Group, instance: e.InstanceID}
			if e.MemberID == "" {
				delete(g.last, key) // it has left
			} else {
				g.last[key] = i
			}
		default:
			return nil, fmt.Errorf("%w: %s: entry %d has type %q", ErrLayout, path, i, e.Type)
		}
	}
	return g, nil
}

// hasCommitted says that a group has committed this offset.
func (g *groupsLog) hasCommitted(key groupKey, o offsetOf) bool {
	i, ok := g.last[key]
	return ok && g.entries[i].Offset == o.Offset && g.entries[i].Epoch == o.LeaderEpoch
}

// has says whether every staged offset of t is what its group has committed.
func (g *groupsLog) has(t *stagedTxn) bool {
	all := len(t.offsets) > 0
	t.each(func(at groupKey, o offsetOf) { all = all && g.hasCommitted(at, o) })
	return all
}

// commit applies the staged offsets of t, as the end of its transaction does.
func (g *groupsLog) commit(t *stagedTxn, at time.Time) {
	millis := at.UnixMilli()
	t.each(func(p groupKey, o offsetOf) {
		if g.hasCommitted(p, o) {
			return
		}
		g.last[p] = len(g.entries)
		g.entries = append(g.entries, groupJSON{
			Type: "commit", Group: p.group, Topic: p.topic, Partition: p.partition,
			Offset: o.Offset, Epoch: o.LeaderEpoch, Metadata: o.Metadata, LastCommit: &millis,
		})
	})
}

// flush adds what is new, or writes the log anew when little of it counts.
func (g *groupsLog) flush() (changed bool, err error) {
	if overgrown(len(g.entries), len(g.last)) {
		return true, g.rewrite()
	}
	if g.valid < g.size {
		if err = truncateFile(g.path, int64(g.valid)); err != nil {
			return false, err
		}
		changed = true
	}
	if g.inFile == len(g.entries) {
		return changed, nil
	}
	raw, err := appendFrames(nil, g.entries[g.inFile:])
	if err != nil {
		return false, err
	}
	return true, appendFile(g.path, raw)
}

// rewrite leaves the entries that count.
func (g *groupsLog) rewrite() error {
	var raw []byte
	for _, i := range slices.Sorted(maps.Values(g.last)) {
		var err error
		if raw, err = appendFrame(raw, g.entries[i]); err != nil {
			return err
		}
	}
	return writeFile(g.path, raw)
}
