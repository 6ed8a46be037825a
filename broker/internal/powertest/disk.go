package powertest

import (
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// change is one thing done to a file or a directory.
type change struct {
	at int // the number of the event

	// Of a file.
	data     []byte
	offset   int64 // of data; -1 is the end
	truncate int64 // when data is nil

	// Of a directory: name stands for child from now on, or for nothing; from,
	// when not empty, stands for nothing any more.
	name, from string
	child      *node
}

// node is a file or a directory.
type node struct {
	dir     bool
	changes []change
	// forced are the numbers of changes that were on the disk, by event.
	forced []mark
}

type mark struct{ at, changes int }

// Disk is what a process has done to a directory, event by event.
type Disk struct {
	root  *node
	path  string
	nodes []*node
	times []time.Time // of the events
	live  map[string]*node
}

// NewDisk is an empty directory at path.
func NewDisk(path string) *Disk {
	d := &Disk{path: path, root: &node{dir: true}, live: make(map[string]*node)}
	d.nodes, d.live[path] = []*node{d.root}, d.root
	return d
}

// Events is the number of events so far.
func (d *Disk) Events() int { return len(d.times) }

// Before is when the event after the first n began; what a client had been told
// by then was told with no more than n events done.
func (d *Disk) Before(n int) time.Time {
	if n < len(d.times) {
		return d.times[n]
	}
	return time.Now()
}

// Since is the number of events that had begun before a moment.
func (d *Disk) Since(moment time.Time) int {
	n, _ := slices.BinarySearchFunc(d.times, moment, func(at, moment time.Time) int { return at.Compare(moment) })
	return n
}

// Add appends the recording of one process, which begins with no file open.
func (d *Disk) Add(recording io.Reader) error {
	all, err := calls(recording)
	if err != nil {
		return err
	}
	first := len(d.times)
	for i := range all {
		d.times = append(d.times, all[i].at)
		if all[i].ret < 0 {
			continue
		}
		if err := d.apply(first+i, first+all[i].begun, &all[i]); err != nil {
			return fmt.Errorf("call %d, %s: %w", i, all[i].name, err)
		}
	}
	return nil
}

func (d *Disk) apply(at, begun int, c *call) error {
	switch c.name {
	case "openat":
		return d.open(at, c)
	case "write", "pwrite64", "ftruncate":
		return d.write(at, c)
	case "fsync", "fdatasync":
		n, err := d.of(c)
		if n != nil {
			n.force(at, begun)
		}
		return err
	case "sync", "syncfs":
		for _, n := range d.nodes {
			n.force(at, begun)
		}
		return nil
	case "mkdirat":
		path, err := c.path(0, 1)
		if err == nil {
			d.make(at, path, true)
		}
		return err
	case "renameat", "renameat2":
		return d.rename(at, c)
	case "unlinkat":
		path, err := c.path(0, 1)
		if dir, ok := d.live[filepath.Dir(path)]; err == nil && ok && path != d.path {
			dir.changes = append(dir.changes, change{at: at, name: filepath.Base(path)})
			delete(d.live, path)
		}
		return err
	}
	for n := range c.args {
		if path, err := c.descriptor(n); err == nil && strings.HasPrefix(path, d.path) {
			return fmt.Errorf("not modelled: %v", c.args)
		}
	}
	return nil
}

// of is the file or directory that the descriptor of a call stands for; nil when
// it is not in the directory, or has no name any more.
func (d *Disk) of(c *call) (*node, error) {
	path, err := c.descriptor(0)
	return d.live[path], err
}

func (d *Disk) open(at int, c *call) error {
	path, err := c.path(0, 1)
	if err != nil {
		return err
	}
	n := d.live[path]
	if _, ok := d.live[filepath.Dir(path)]; n == nil && !ok {
		return nil // elsewhere
	}
	if n == nil {
		d.make(at, path, false)
	} else if strings.Contains(c.args[2], "O_TRUNC") {
		n.changes = append(n.changes, change{at: at})
	}
	return nil
}

func (d *Disk) write(at int, c *call) error {
	n, err := d.of(c)
	if n == nil {
		return err
	}
	done := change{at: at, offset: -1}
	switch c.name {
	case "ftruncate":
		done.truncate, err = c.number(1)
	case "pwrite64":
		if done.offset, err = c.number(3); err != nil {
			return err
		}
		fallthrough
	default:
		if done.data, err = c.data(1); err == nil {
			done.data = done.data[:c.ret]
		}
	}
	if c.name != "ftruncate" && len(done.data) == 0 {
		return err
	}
	n.changes = append(n.changes, done)
	return err
}

func (d *Disk) make(at int, path string, dir bool) {
	n := &node{dir: dir}
	if parent := d.live[filepath.Dir(path)]; parent != nil {
		parent.changes = append(parent.changes, change{at: at, name: filepath.Base(path), child: n})
		d.nodes, d.live[path] = append(d.nodes, n), n
	}
}

func (d *Disk) rename(at int, c *call) error {
	from, err := c.path(0, 1)
	if err != nil {
		return err
	}
	to, err := c.path(2, 3)
	n, dir := d.live[from], d.live[filepath.Dir(to)]
	if err != nil || n == nil {
		return err
	}
	if filepath.Dir(from) != filepath.Dir(to) {
		return fmt.Errorf("not modelled: %s becomes %s", from, to)
	}
	dir.changes = append(dir.changes, change{at: at, name: filepath.Base(to), from: filepath.Base(from), child: n})
	for path, child := range maps.Clone(d.live) {
		if rest, below := strings.CutPrefix(path+"/", from+"/"); below {
			delete(d.live, path)
			d.live[filepath.Join(to, rest)] = child
		}
	}
	return nil
}

// force notes that what was done before the event begun is on the disk at the
// event at.
func (n *node) force(at, begun int) {
	done := n.before(begun)
	if len(n.forced) == 0 || n.forced[len(n.forced)-1].changes < done {
		n.forced = append(n.forced, mark{at, done})
	}
}

// before is the number of changes made by the first n events.
func (n *node) before(events int) int {
	i, _ := slices.BinarySearchFunc(n.changes, events, func(c change, at int) int { return c.at - at })
	return i
}

// Image writes to dir what the disk may hold when the power fails after the
// first events, and nothing but those: of each file and each directory the
// changes that were forced, and of the others the first ones, as many as rng
// says. The last write to a file may be there in part, or in its length only;
// in some directories each name is as old as it happens to be.
func (d *Disk) Image(dir string, events int, rng *rand.Rand) error {
	return d.root.image(dir, events, rng)
}

func (n *node) image(path string, events int, rng *rand.Rand) error {
	least, most := 0, n.before(events)
	for _, m := range n.forced {
		if m.at < events {
			least = m.changes
		}
	}
	if !n.dir {
		return os.WriteFile(path, n.content(some(least, most, rng), most, rng), 0o600)
	}
	if err := os.MkdirAll(path, 0o750); err != nil {
		return err
	}
	names := make(map[string]*node)
	kept := make(map[string]int) // by name
	all, loose := some(least, most, rng), rng.IntN(2) == 0
	for i, c := range n.changes[:most] {
		if _, ok := kept[c.name]; !ok {
			if kept[c.name] = all; loose {
				kept[c.name] = some(least, most, rng)
			}
		}
		if i >= kept[c.name] {
			continue
		}
		delete(names, c.from)
		if c.child == nil {
			delete(names, c.name)
		} else {
			names[c.name] = c.child
		}
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := names[name].image(filepath.Join(path, name), events, rng); err != nil {
			return err
		}
	}
	return nil
}

// some is a number of changes: none that could be lost, all, or any.
func some(least, most int, rng *rand.Rand) int {
	switch rng.IntN(4) {
	case 0:
		return least
	case 1:
		return most
	}
	return least + rng.IntN(most-least+1)
}

func (n *node) content(kept, most int, rng *rand.Rand) (b []byte) {
	for _, c := range n.changes[:kept] {
		b = c.to(b, c.data)
	}
	if kept == most || n.changes[kept].data == nil || rng.IntN(2) == 0 {
		return b
	}
	part := slices.Clone(n.changes[kept].data)
	cut := rng.IntN(len(part))
	if rng.IntN(4) == 0 {
		clear(part[cut:]) // the length is there, the rest is not
	} else {
		part = part[:cut]
	}
	return n.changes[kept].to(b, part)
}

func (c *change) to(b, data []byte) []byte {
	if c.data == nil {
		return append(b, make([]byte, max(0, int(c.truncate)-len(b)))...)[:c.truncate]
	}
	at := int(c.offset)
	if at < 0 {
		return append(b, data...)
	}
	b = append(b, make([]byte, max(0, at+len(data)-len(b)))...)
	copy(b[at:], data)
	return b
}
