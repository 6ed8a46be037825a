package durable

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// producerState is what kfake knows of a producer after it has loaded.
type producerState struct {
	epoch   int16
	txid    string
	timeout int32 // milliseconds
	// lastWasCommit decides the answer to a repeated EndTxn.
	lastWasCommit bool
}

// producer is a producer as pids.log has it, with what the partitions add.
type producer struct {
	id int64
	producerState
	logged     bool // it is in pids.log
	superseded bool // its transactional id has gone on to another producer id

	// The last "endtx" entry of this producer id; endEpoch -1 without one.
	endEpoch  int16
	endCommit bool
	// outcomeKnown: the last "init" entry carried the outcome.
	outcomeKnown bool

	// What the partitions show.
	seenEpoch  int16 // the highest, -1 when there is no batch
	idempotent bool  // it wrote outside of a transaction
	marks      map[int16]marks
	open       []*openRange
}

// marks are the latest control records of one producer and epoch, by their
// timestamps in milliseconds; -1 is none.
type marks struct{ commit, abort int64 }

type producers map[int64]*producer

// of gives the producer, which need not be in pids.log: an idempotent one is
// known from its batches alone.
func (ps producers) of(id int64) *producer {
	p := ps[id]
	if p == nil {
		p = &producer{id: id, endEpoch: -1, seenEpoch: -1}
		ps[id] = p
	}
	return p
}

// sorted gives the producers in the order of their ids.
func (ps producers) sorted() []*producer {
	all := make([]*producer, 0, len(ps))
	for _, id := range slices.Sorted(maps.Keys(ps)) {
		all = append(all, ps[id])
	}
	return all
}

// mark remembers a control record. Only the present epoch and the one before
// it can still be asked about.
func (p *producer) mark(b batch) {
	p.seenEpoch = max(p.seenEpoch, b.producerEpoch)
	if b.producerEpoch < p.epoch-1 {
		return
	}
	m, ok := p.marks[b.producerEpoch]
	if !ok {
		m = marks{-1, -1}
	}
	if b.commit {
		m.commit = max(m.commit, b.maxTimestamp)
	} else {
		m.abort = max(m.abort, b.maxTimestamp)
	}
	if p.marks == nil {
		p.marks = make(map[int16]marks)
	}
	p.marks[b.producerEpoch] = m
}

// wrote remembers a data batch.
func (p *producer) wrote(b batch) {
	p.seenEpoch = max(p.seenEpoch, b.producerEpoch)
	p.idempotent = p.idempotent || !b.transactional
}

// marksAt gives the control records of an epoch.
func (p *producer) marksAt(epoch int16) marks {
	if m, ok := p.marks[epoch]; ok {
		return m
	}
	return marks{-1, -1}
}

// pidsLog is pids.log as it is on the disk.
type pidsLog struct {
	path        string
	valid, size int
	entries     int
	// loads is what kfake makes of the file. It can differ from the truth:
	// EndTxn version 5 logs the end and then an "init" with the next epoch
	// that does not carry the outcome, and to kfake an init forgets the
	// outcome before it. A repeated EndTxn(commit) would be told
	// INVALID_TXN_STATE, which reads as "the cluster aborted it".
	loads map[int64]producerState
}

// readPids replays pids.log.
func readPids(path string) (producers, pidsLog, error) {
	entries, valid, size, err := readFrames[pidJSON](path)
	if err != nil {
		return nil, pidsLog{}, err
	}
	var (
		log  = pidsLog{path: path, valid: valid, size: size, entries: len(entries), loads: make(map[int64]producerState)}
		all  = make(producers)
		byID = make(map[string]int64)
	)
	for i, e := range entries {
		if !slices.Contains([]string{"init", "endtx", "timeout"}, e.Type) {
			return nil, pidsLog{}, fmt.Errorf("%w: %s: entry %d has type %q", ErrLayout, path, i, e.Type)
		}
		loaded, p := log.loads[e.PID], all[e.PID]
		if e.Type != "init" && p == nil {
			continue // kfake skips it too
		}
		switch e.Type {
		case "init":
			state := producerState{epoch: e.Epoch, txid: e.TxID, timeout: e.Timeout, lastWasCommit: e.Commit != nil && *e.Commit}
			loaded = state
			next := &producer{id: e.PID, producerState: state, logged: true, endEpoch: -1, seenEpoch: -1, outcomeKnown: e.Commit != nil}
			if p != nil && e.Commit == nil && p.endEpoch == e.Epoch-1 {
				next.endEpoch, next.endCommit, next.lastWasCommit = p.endEpoch, p.endCommit, p.endCommit
			}
			all[e.PID] = next
			if e.TxID != "" {
				byID[e.TxID] = e.PID
			}
		case "endtx":
			commit := p.lastWasCommit
			if e.Commit != nil {
				commit = *e.Commit
				loaded.lastWasCommit = commit
			}
			loaded.epoch = e.Epoch
			p.epoch, p.lastWasCommit, p.endEpoch, p.endCommit = e.Epoch, commit, e.Epoch, commit
		case "timeout":
			loaded.epoch = e.Epoch
			p.epoch, p.lastWasCommit, p.endEpoch, p.outcomeKnown = e.Epoch, false, -1, true
		}
		log.loads[e.PID] = loaded
	}
	for _, p := range all {
		p.superseded = p.txid != "" && byID[p.txid] != p.id
	}
	return all, log, nil
}

// kept gives what kfake must know of each producer that lives on.
func (ps producers) kept() map[int64]producerState {
	want := make(map[int64]producerState)
	for id, p := range ps {
		if p.superseded || !p.logged && !p.idempotent {
			continue
		}
		want[id] = p.producerState
	}
	return want
}

// flush writes the log anew, in the form that Close gives it, unless kfake
// would already load what is wanted, and quickly.
func (l pidsLog) flush(ps producers) (changed bool, err error) {
	want := ps.kept()
	if l.valid == l.size && maps.Equal(l.loads, want) && !overgrown(l.entries, len(want)) {
		return false, nil
	}
	var raw []byte
	for _, id := range slices.Sorted(maps.Keys(want)) {
		state := want[id]
		e := pidJSON{Type: "init", PID: id, Epoch: state.epoch, TxID: state.txid}
		if state.txid != "" {
			e.Timeout, e.Commit = state.timeout, &state.lastWasCommit
		}
		if raw, err = appendFrame(raw, e); err != nil {
			return false, err
		}
	}
	return true, writeFile(l.path, raw)
}

// nextEpoch is the epoch after an end that moves it on. At the last but one a
// new producer id is due; the end stands and the client's next
// InitProducerId, which it needs anyway, gives it one.
func nextEpoch(epoch int16) int16 {
	if epoch >= math.MaxInt16-1 {
		return epoch
	}
	return epoch + 1
}
