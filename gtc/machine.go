// Package gtc is the global transaction coordinator's state machine. It has no
// clock, network, goroutine or lock: Step looks at the state and an event and
// says what to change and what to do, Apply is the only writer of the state,
// and the IO edge (gtc/service) carries the rest out. DESIGN.md has the state
// diagram.
//
// There is no roll-back. An effect waits until the records before it are
// durable; when an append fails, the edge drops the whole machine and loads a
// new one from the log.
package gtc

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Config holds the machine's limits; times are milliseconds.
type Config struct {
	// MaxTimeoutMillis bounds the timeout of InitGlobalTxn
	// (global.transaction.max.timeout.ms).
	MaxTimeoutMillis int32
	// VoteTimeoutMillis bounds the look at the participants before a decision.
	VoteTimeoutMillis int64
	// RetryBackoffMillis and RetryBackoffMaxMillis bound the pause between
	// two attempts to end a pending participant.
	RetryBackoffMillis    int64
	RetryBackoffMaxMillis int64
	// ExpirationMillis is the age at which an idle id is forgotten
	// (global.transactional.id.expiration.ms).
	ExpirationMillis int64
	// ScanIntervalMillis is the pause between two recovery scans
	// (global.transaction.scan.interval.ms).
	ScanIntervalMillis int64
	// Clusters is how many participant clusters are configured. They are
	// counted, not named: the id of one is learned when it can be reached.
	Clusters int
	// MaxParticipants bounds the clusters of one session
	// (global.transaction.max.participants).
	MaxParticipants int
	// MaxIDs bounds the ids of one partition, 0: nothing does
	// (global.transactional.ids.max.per.partition).
	MaxIDs int
	// MaxWaiters bounds the requests that wait for one transaction.
	MaxWaiters int
}

// DefaultConfig returns the defaults that KIP.md names.
func DefaultConfig() Config {
	return Config{
		MaxTimeoutMillis:      900_000,
		VoteTimeoutMillis:     10_000,
		RetryBackoffMillis:    20,
		RetryBackoffMaxMillis: 10_000,
		ExpirationMillis:      7 * 24 * 3600 * 1000,
		ScanIntervalMillis:    10_000,
		MaxParticipants:       32,
		MaxIDs:                20_000,
		MaxWaiters:            16,
	}
}

// Machine is the state of one partition of the log.
type Machine struct {
	cfg     Config
	entries map[string]*entry
	due     deadlines // entries that wait for a time
	// scanned is when the last complete look at each cluster began, on the
	// monotonic clock; no id can expire while a cluster cannot be asked.
	scanned map[string]int64
	// sweepAt is when idle ids are next looked at for expiry; 0 before
	// Recover has started the machine.
	sweepAt int64
	// started is when Recover ran. Expiry counts elapsed time from there: a
	// wall clock that steps by a year while the coordinator runs must not
	// make it forget every id.
	started Time
}

// entry is one global transactional id: what the log says and what only this
// coordinator knows. Both are replaced, never changed in place.
type entry struct {
	id       string
	value    *txnlog.GlobalTransaction
	volatile *volatile // nil when nothing was ever under way here
	deadline int64
	index    int // in Machine.due, -1 when absent
}

// NewMachine returns an empty machine. Load it with Apply, then start it with
// Recover.
func NewMachine(cfg Config) *Machine {
	return &Machine{cfg: cfg, entries: map[string]*entry{}, scanned: map[string]int64{}}
}

// Step decides what an event means. It changes nothing: the caller applies the
// changes, in order, before the next Step.
func (m *Machine) Step(now Time, ev Event) Output {
	s := &step{m: m, now: now}
	switch ev := ev.(type) {
	case InitRequest:
		s.initRequest(ev)
	case ParticipantsChecked:
		s.participantsChecked(ev)
	case EndRequest:
		s.endRequest(ev)
	case VotesTaken:
		s.votesTaken(ev)
	case EndAnswered:
		s.endAnswered(ev)
	case ScanCompleted:
		s.scanCompleted(ev)
	case ResolveRequest:
		s.resolveRequest(ev)
	case Tick:
		s.tick()
	}
	return s.out
}

// Apply makes one change. It is the only writer of the state, live and on load.
func (m *Machine) Apply(c Change) {
	switch c := c.(type) {
	case Persist:
		m.applyRecord(c.Record)
	case setVolatile:
		e := m.entry(c.id)
		e.volatile = c.volatile
		m.reindex(e)
		if e.value == nil && e.volatile.idle() {
			m.remove(e)
		}
	case setScanned:
		m.scanned[c.clusterID] = c.at
	case setSweep:
		m.sweepAt = c.at
	case setStarted:
		m.started = c.at
	}
}

func (m *Machine) applyRecord(r txnlog.Record) {
	e := m.entry(r.GlobalTransactionalID)
	e.value = r.Value
	if e.value == nil && e.volatile.idle() {
		m.remove(e)
		return
	}
	m.reindex(e)
}

func (m *Machine) entry(id string) *entry {
	e := m.entries[id]
	if e == nil {
		e = &entry{id: id, index: -1}
		m.entries[id] = e
	}
	return e
}

func (m *Machine) remove(e *entry) {
	if e.index >= 0 {
		heap.Remove(&m.due, e.index)
	}
	delete(m.entries, e.id)
}

func (m *Machine) reindex(e *entry) {
	at, ok := e.volatile.deadline(e.value)
	switch {
	case !ok && e.index >= 0:
		heap.Remove(&m.due, e.index)
	case ok && e.index < 0:
		e.deadline = at
		heap.Push(&m.due, e)
	case ok:
		e.deadline = at
		heap.Fix(&m.due, e.index)
	}
}

// Recover starts a loaded machine: every decision that is not complete is told
// to its participants again. Nothing undecided is ended here, however old it
// looks: its client may be alive, and only the scan's own count of time may
// end it.
func (m *Machine) Recover(now Time) Output {
	s := &step{m: m, now: now}
	s.out.Changes = append(s.out.Changes, setStarted{at: now}, setSweep{at: now.Mono + m.sweepEvery()})
	for _, id := range slices.Sorted(maps.Keys(m.entries)) {
		w := s.load(id)
		if w.value == nil || !busy(w.value) && len(w.value.Leftovers) == 0 {
			continue
		}
		w.driveAll(true)
		w.store()
	}
	return s.out
}

// NextDeadline is when Step wants a Tick, on the monotonic clock.
func (m *Machine) NextDeadline() (mono int64, ok bool) {
	at := m.sweepAt
	if len(m.due) > 0 && (at == 0 || m.due[0].deadline < at) {
		at = m.due[0].deadline
	}
	return at, at != 0
}

// Len is the number of ids that the machine knows.
func (m *Machine) Len() int { return len(m.entries) }

// Knows reports whether the id has been initialised here.
func (m *Machine) Knows(id string) bool {
	e := m.entries[id]
	return e != nil && e.value != nil
}

// tickBatch bounds the ids that one Tick handles, so that ten thousand due
// retries do not hold up the requests behind them; the next Tick is due at once.
const tickBatch = 256

func (s *step) tick() {
	if s.m.sweepAt != 0 && s.m.sweepAt <= s.now.Mono {
		s.sweep()
	}
	for _, id := range s.m.due.until(s.now.Mono, tickBatch) {
		w := s.load(id)
		w.elapsed()
		w.store()
	}
}

// deadlines is a heap of entries by deadline, then id.
type deadlines []*entry

func (d deadlines) Len() int { return len(d) }
func (d deadlines) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(d[i].deadline, d[j].deadline), strings.Compare(d[i].id, d[j].id)) < 0
}

func (d deadlines) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}

func (d *deadlines) Push(x any) {
	e := x.(*entry)
	e.index = len(*d)
	*d = append(*d, e)
}

func (d *deadlines) Pop() any {
	old := *d
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*d = old[:len(old)-1]
	e.index = -1
	return e
}

// until lists up to limit ids whose deadline has come, earliest first, without
// changing the heap: children of an entry that is not due are not due either.
func (d deadlines) until(mono int64, limit int) []string {
	var due []*entry
	open := []int{0}
	for len(open) > 0 && len(due) < limit {
		i := open[0]
		open = open[1:]
		if i >= len(d) || d[i].deadline > mono {
			continue
		}
		due = append(due, d[i])
		open = append(open, 2*i+1, 2*i+2)
	}
	slices.SortFunc(due, func(a, b *entry) int {
		return cmp.Or(cmp.Compare(a.deadline, b.deadline), strings.Compare(a.id, b.id))
	})
	ids := make([]string, len(due))
	for i, e := range due {
		ids[i] = e.id
	}
	return ids
}
