// Package memlog is a txnlog.Log in memory, for tests and simulation. It is
// deterministic, and everything that can go wrong with a log can be made to.
//
// By default an append is durable at once and its callback comes from another
// goroutine, as the interface says. After Hold the appends of a partition stay
// in flight, grouped into batches as a real log groups them, until the test
// decides what becomes of each batch: Ack, LoseAck, Fail or Crash. Those call
// the callbacks before they return, on the goroutine of the test, so that a
// simulation has no other one.
package memlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Store is what outlives every coordinator: the partitions. Log views share
// one, as coordinators share a topic.
type Store struct {
	mu         sync.Mutex
	partitions []partition
}

type partition struct {
	records []txnlog.RawRecord
	next    int64 // offset
	pid     int64
	epoch   int16
	held    bool
	readErr error
}

// NewStore returns an empty store.
func NewStore(partitions int32) *Store {
	s := &Store{partitions: make([]partition, partitions)}
	for i := range s.partitions {
		s.partitions[i].pid, s.partitions[i].epoch = int64(1000+i), -1
	}
	return s
}

// New returns a log on a store of its own.
func New(partitions int32) *Log { return NewStore(partitions).Open() }

// Open returns another coordinator's view of the store.
func (s *Store) Open() *Log {
	return &Log{store: s, owned: make(map[int32]*writer)}
}

// Log is one coordinator's view of a Store.
type Log struct {
	store  *Store
	owned  map[int32]*writer // the last claim of each partition
	closed bool
	stats  Stats
}

var _ txnlog.Log = (*Log)(nil)

// Stats counts what one view has done.
type Stats struct {
	Appends, Records int64
	// ForcedWrites are the batches written and the claims.
	ForcedWrites, Batches, Claims int64
	// Foreign and UnknownTypes are records that claims left out.
	Foreign, UnknownTypes int64
}

// Stats returns the counters as they are now.
func (l *Log) Stats() Stats {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	return l.stats
}

// Partitions implements txnlog.Log.
func (l *Log) Partitions() int32 { return int32(len(l.store.partitions)) }

// Claim implements txnlog.Log. Appends of an older claim that are still in
// flight arrive after this one, and so are refused: to have them arrive before
// it, call Ack, LoseAck or Crash first.
func (l *Log) Claim(ctx context.Context, id int32, replay func(txnlog.Entry) error) (txnlog.Writer, error) {
	if id < 0 || id >= l.Partitions() {
		return nil, fmt.Errorf("memlog: there is no partition %d", id)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	records, err := l.readable(id)
	if err != nil {
		return nil, err
	}
	// The reader runs without the lock: it may use the log. What is written
	// meanwhile is read under the lock, together with the claim.
	r := &txnlog.Replay{Partition: id, Entry: replay, Skipped: l.skipped}
	if err = feed(r, records); err != nil {
		return nil, err
	}
	w, rest, err := l.claim(id, records)
	if err != nil {
		return nil, err
	}
	if err = feed(r, rest); err != nil {
		return nil, err
	}
	return w, nil
}

func feed(r *txnlog.Replay, records []txnlog.RawRecord) error {
	for _, rec := range records {
		if err := r.Feed(rec); err != nil {
			return err
		}
	}
	return r.Finish()
}

// readable returns the records of a partition, or why they cannot be read.
func (l *Log) readable(id int32) ([]txnlog.RawRecord, error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return nil, txnlog.ErrClosed
	}
	p := &l.store.partitions[id]
	if p.readErr != nil {
		return nil, fmt.Errorf("memlog: partition %d: %w", id, p.readErr)
	}
	return slices.Clone(p.records), nil
}

// claim fences the older claims and returns the writer and the records that
// have come since those that were read.
func (l *Log) claim(id int32, read []txnlog.RawRecord) (*writer, []txnlog.RawRecord, error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if l.closed {
		return nil, nil, txnlog.ErrClosed
	}
	p := &l.store.partitions[id]
	p.epoch++
	p.write(p.pid, p.epoch, txnlog.AppendClaimKey(nil),
		txnlog.AppendClaim(nil, &txnlog.Claim{ProducerID: p.pid, ProducerEpoch: p.epoch, Host: "memory"}))
	l.stats.Claims++
	l.stats.ForcedWrites++
	w := &writer{log: l, id: id, pid: p.pid, epoch: p.epoch}
	l.owned[id] = w
	last := int64(-1)
	if len(read) > 0 {
		last = read[len(read)-1].Offset
	}
	from, _ := slices.BinarySearchFunc(p.records, last+1, func(r txnlog.RawRecord, at int64) int { return int(r.Offset - at) })
	return w, slices.Clone(p.records[from:]), nil
}

func (p *partition) write(pid int64, epoch int16, key, value []byte) {
	p.records = append(p.records, txnlog.RawRecord{
		Offset: p.next, ProducerID: pid, ProducerEpoch: epoch, Key: key, Value: value,
	})
	p.next++
}

func (l *Log) skipped(err error) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if errors.As(err, new(*txnlog.ForeignRecordError)) {
		l.stats.Foreign++
		return
	}
	l.stats.UnknownTypes++
}

// Close implements txnlog.Log. The view's writers end; what they have in
// flight is of unknown fate and is not written.
func (l *Log) Close() {
	l.store.mu.Lock()
	l.closed = true
	var ended []*batch
	for id := range l.Partitions() {
		if w := l.owned[id]; w != nil {
			ended = append(ended, w.end(txnlog.ErrUnknownFate, txnlog.ErrClosed)...)
		}
	}
	l.store.mu.Unlock()
	answer(ended)
}
