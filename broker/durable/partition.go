package durable

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// partition is one partition directory: what its log says, and from that what
// its snapshot must say.
type partition struct {
	topic  string
	number int32
	dir    string
	// compacted: cleanup.policy is compact alone, which never empties a log.
	compacted bool
	deleted   startJSON // by DeleteRecords, since the last stop

	old          *snapshotJSON // nil when there is none
	segments     []segment
	surplus      []segment // empty files that hide the snapshot from kfake
	next         int64     // the high watermark
	start        int64
	leaderEpoch  int32
	maxTimestamp int64
	aborted      []abortedJSON
	open         map[int64]*openRange // by producer id
	windows      map[int64]*windowJSON
}

// openRange is the records of a transaction that has no control record on the
// partition (yet).
type openRange struct {
	partition   *partition
	producerID  int64
	first, last int64
	epoch       int16
	// written is when the segment that holds the first record was last
	// written to: the transaction cannot have begun later.
	written time.Time
}

// readPartition reads a partition's files and records in seen what they prove
// about producers.
func readPartition(dir string, topic topicJSON, number int32, deleted startJSON, seen producers) (*partition, error) {
	p := &partition{
		topic: topic.Name, number: number, deleted: deleted, compacted: topic.Configs["cleanup.policy"] == "compact",
		dir:     partitionDir(dir, topic.Name, number),
		open:    make(map[int64]*openRange),
		windows: make(map[int64]*windowJSON),
	}
	var old snapshotJSON
	found, err := readJSON(filepath.Join(p.dir, snapshotFile), &old, &old.Version)
	if err != nil {
		return nil, err
	}
	if found {
		p.old = &old
	}
	bases, err := p.bases()
	if err != nil {
		return nil, err
	}
	for i, base := range bases {
		name := filepath.Join(p.dir, strconv.FormatInt(base, 10))
		var written time.Time
		if info, err := os.Stat(name + segmentSuffix); err == nil {
			written = info.ModTime()
		}
		if i == 0 {
			p.start, p.next = base, base
		}
		s, err := scanSegment(name+segmentSuffix, name+indexSuffix, base, p.next, i == len(bases)-1,
			func(b batch) { p.apply(b, written, seen) })
		if err != nil {
			return nil, err
		}
		p.segments = append(p.segments, s)
	}
	if err := p.checkEnd(); err != nil {
		return nil, err
	}
	p.setAsideEmpty()
	for id, r := range p.open {
		seen.of(id).open = append(seen.of(id).open, r)
	}
	return p, nil
}

// bases lists the segments of the partition by their first offset.
func (p *partition) bases() ([]int64, error) {
	entries, err := os.ReadDir(p.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // never written to
	}
	if err != nil {
		return nil, fmt.Errorf("durable: %w", err)
	}
	var bases []int64
	for _, e := range entries {
		name := e.Name()
		stem, isSegment := strings.CutSuffix(name, segmentSuffix)
		base, err := strconv.ParseInt(stem, 10, 64)
		switch {
		case isSegment && err == nil && base >= 0:
			bases = append(bases, base)
		case name == snapshotFile, strings.HasSuffix(name, tmpSuffix), strings.HasSuffix(name, indexSuffix):
		default:
			return nil, fmt.Errorf("%w: %s is neither a segment nor a snapshot", ErrLayout, filepath.Join(p.dir, name))
		}
	}
	slices.Sort(bases)
	return bases, nil
}

// checkEnd compares the end of the log with what was known of it, by the last
// snapshot or by a DeleteRecords, from which it can only have grown. It has shrunk when kfake died in a compaction:
// that removes the old segments before it writes the new ones.
//
// A log without any segment may have been deleted as a whole. kfake would
// let its offsets begin at 0 again; an empty segment of the right name keeps
// the place.
func (p *partition) checkEnd() error {
	end := p.deleted.End
	if p.old != nil {
		end = max(end, p.old.HighWatermark)
	}
	switch {
	case end <= p.next:
		return nil
	case len(p.segments) > 0 || p.compacted && p.deleted.End < end:
		return fmt.Errorf("%w: %s: the log ends at offset %d, but it was at %d before; restore the partition from a copy, or remove %s to go on without what is missing",
			ErrDamaged, p.dir, p.next, end, snapshotFile)
	}
	p.start, p.next = end, end
	name := filepath.Join(p.dir, strconv.FormatInt(p.next, 10))
	p.segments = []segment{{base: p.next, path: name + segmentSuffix, indexPath: name + indexSuffix, indexStale: true, created: true}}
	return nil
}

// setAsideEmpty takes the segments without a batch out. One is left behind
// when the process dies between opening a new segment and writing to it, or
// when its only batch was cut off. kfake drops it from memory but counts the
// file, and then never finds the snapshot to match. The only segment stays:
// its name is all that remembers the high watermark.
func (p *partition) setAsideEmpty() {
	var kept []segment
	for _, s := range p.segments {
		if s.batches == 0 {
			p.surplus = append(p.surplus, s)
			continue
		}
		kept = append(kept, s)
	}
	if len(kept) == 0 && len(p.surplus) > 0 {
		last := len(p.surplus) - 1
		kept, p.surplus = p.surplus[last:], p.surplus[:last:last]
	}
	p.segments = kept
}

// apply folds one batch into the state of the partition.
func (p *partition) apply(b batch, written time.Time, seen producers) {
	if b.first > p.next {
		// Compaction took something out between here and the batch before:
		// perhaps the newest batch of some producer. With the older one as
		// its last, its next would be refused as out of order.
		clear(p.windows)
	}
	p.next = b.last + 1
	p.leaderEpoch = b.leaderEpoch
	p.maxTimestamp = max(p.maxTimestamp, b.maxTimestamp)
	if b.producerID < 0 {
		return
	}
	producer := seen.of(b.producerID)
	r := p.open[b.producerID]
	if b.control {
		producer.mark(b)
		if r != nil && !b.commit {
			p.aborted = append(p.aborted, abortedJSON{b.producerID, r.first, b.first})
		}
		delete(p.open, b.producerID)
		return
	}
	producer.wrote(b)
	p.window(b)
	if !b.transactional {
		return
	}
	if r != nil && r.epoch < b.producerEpoch {
		// A later epoch's records without a control record in between: a
		// kfake without us aborted the earlier ones when it loaded.
		p.aborted = append(p.aborted, abortedJSON{b.producerID, r.first, r.last})
		r = nil
	}
	if r == nil {
		r = &openRange{partition: p, producerID: b.producerID, first: b.first, epoch: b.producerEpoch, written: written}
		p.open[b.producerID] = r
	}
	r.last = b.last
}

// window folds one batch into its producer's sequence window, as the broker
// does when it accepts the batch.
func (p *partition) window(b batch) {
	if b.firstSequence < 0 {
		return
	}
	const wrap = 1<<31 - 1
	next := int32((int64(b.firstSequence) + b.last - b.first + 1) % wrap)
	w := p.windows[b.producerID]
	if w == nil || w.Epoch != b.producerEpoch {
		w = &windowJSON{PID: b.producerID, Topic: p.topic, Partition: p.number, Epoch: b.producerEpoch, Seen: true}
		p.windows[b.producerID] = w
	}
	w.Entries[w.At] = batchJSON{b.firstSequence, next, b.first}
	w.At = (w.At + 1) % uint8(len(w.Entries))
	w.Count = min(w.Count+1, uint8(len(w.Entries)))
	w.NextSeq = next
}

// end writes, in memory, the control record that ends a range.
func (p *partition) end(r *openRange, commit bool, at time.Time) {
	raw := markerBatch(p.next, p.leaderEpoch, r.producerID, r.epoch, commit, at)
	b := batch{
		first: p.next, last: p.next, size: len(raw), leaderEpoch: p.leaderEpoch, maxTimestamp: at.UnixMilli(),
		producerID: r.producerID, producerEpoch: r.epoch, transactional: true, control: true, commit: commit,
	}
	s := &p.segments[len(p.segments)-1]
	s.appended = append(s.appended, raw...)
	s.size += int64(len(raw))
	s.batches++
	s.index = appendIndex(s.index, b, max(p.maxTimestamp, b.maxTimestamp))
	p.apply(b, time.Time{}, producers{})
}

// unchanged says that nothing was appended since the snapshot was written.
func (p *partition) unchanged() bool {
	return p.old != nil && (len(p.segments) == 0 || p.old.HighWatermark == p.next)
}

// snapshot is what Close would have written.
func (p *partition) snapshot() snapshotJSON {
	var want snapshotJSON
	if p.old != nil {
		want = *p.old
	} else {
		want.CreatedAt = p.segments[0].modTime
	}
	want.Version = persistVersion
	want.HighWatermark = p.next
	want.LogStartOffset = min(max(want.LogStartOffset, p.start, p.deleted.Offset), p.next)
	want.LastStableOffset = p.next
	for _, r := range p.open {
		want.LastStableOffset = min(want.LastStableOffset, r.first)
	}
	want.Epoch = max(want.Epoch, p.leaderEpoch)
	want.MaxTimestamp = p.maxTimestamp
	want.AbortedTxns = p.abortedSince(want.LogStartOffset)
	want.Segments = nil
	for _, s := range p.segments {
		want.Segments = append(want.Segments, segmentJSON{s.base, s.size, s.minEpoch, s.maxEpoch})
	}
	return want
}

// abortedSince joins the aborted transactions of the old snapshot with those
// found in the log. The snapshot's go first: it knows where one began whose
// first records were deleted since.
func (p *partition) abortedSince(start int64) []abortedJSON {
	type end struct{ producerID, offset int64 }
	var all []abortedJSON
	known := make(map[end]bool)
	if p.old != nil {
		for _, a := range p.old.AbortedTxns {
			if a.LastOffset < p.next {
				all = append(all, a)
				known[end{a.ProducerID, a.LastOffset}] = true
			}
		}
	}
	for _, a := range p.aborted {
		if a.LastOffset >= start && !known[end{a.ProducerID, a.LastOffset}] {
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b abortedJSON) int { return cmp.Compare(a.LastOffset, b.LastOffset) })
	return all
}

// flush writes what differs from the disk: first the log, then the snapshot
// that describes it.
func (p *partition) flush() (changed bool, err error) {
	if len(p.segments) == 0 {
		return false, nil
	}
	for i := range p.segments {
		did, err := p.segments[i].flush()
		if err != nil {
			return false, err
		}
		changed = changed || did
	}
	for _, s := range p.surplus {
		if err := errors.Join(os.Remove(s.path), removeIfThere(s.indexPath)); err != nil {
			return false, fmt.Errorf("durable: %w", err)
		}
		changed = true
	}
	want := p.snapshot()
	if !changed && p.old != nil && sameSnapshot(*p.old, want) {
		return false, nil
	}
	return true, writeJSON(filepath.Join(p.dir, snapshotFile), want)
}

// sameSnapshot compares what kfake reads. The rest (times, epoch ranges of
// segments) it computes anew, and a trimmed log has it different.
func sameSnapshot(a, b snapshotJSON) bool {
	sameSegment := func(a, b segmentJSON) bool { return a.BaseOffset == b.BaseOffset && a.Size == b.Size }
	return a.HighWatermark == b.HighWatermark && a.LastStableOffset == b.LastStableOffset &&
		a.LogStartOffset == b.LogStartOffset && a.Epoch == b.Epoch &&
		slices.Equal(a.AbortedTxns, b.AbortedTxns) && slices.EqualFunc(a.Segments, b.Segments, sameSegment)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
