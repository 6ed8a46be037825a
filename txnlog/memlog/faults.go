package memlog

import (
	"errors"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Hold keeps the appends of a partition, whoever makes them, in flight.
func (s *Store) Hold(id int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions[id].held = true
}

// Release ends Hold. What the view has in flight arrives and is answered.
func (l *Log) Release(id int32) {
	l.store.mu.Lock()
	l.store.partitions[id].held = false
	var answered []*batch
	if w := l.owned[id]; w != nil {
		for len(w.flight) > 0 {
			answered = append(answered, w.arrive()...)
		}
	}
	l.store.mu.Unlock()
	answer(answered)
}

// InFlight is how many batches the view's last claim of the partition has in
// flight, the one that is still filling included.
func (l *Log) InFlight(id int32) int {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	if w := l.owned[id]; w != nil {
		return len(w.flight)
	}
	return 0
}

// Ack lets the oldest batch in flight arrive: it is written and answered, or
// refused with ErrFenced if a newer claim exists. It tells whether there was
// one.
func (l *Log) Ack(id int32) bool {
	return l.settle(id, func(w *writer) []*batch { return w.arrive() })
}

// LoseAck lets the oldest batch in flight be written, and its acknowledgement
// be lost for good: the writer ends with ErrUnknownFate, and what was in
// flight behind is not written.
func (l *Log) LoseAck(id int32) bool {
	return l.settle(id, func(w *writer) []*batch {
		err := txnlog.ErrUnknownFate
		if !w.write(w.flight[0]) {
			err = txnlog.ErrFenced
		}
		return w.end(err, err)
	})
}

// Fail loses everything in flight before it is written. To the writer it looks
// like LoseAck: ErrUnknownFate.
func (l *Log) Fail(id int32) bool {
	return l.settle(id, func(w *writer) []*batch { return w.end(txnlog.ErrUnknownFate, txnlog.ErrUnknownFate) })
}

func (l *Log) settle(id int32, how func(*writer) []*batch) bool {
	l.store.mu.Lock()
	w := l.owned[id]
	if w == nil || len(w.flight) == 0 {
		l.store.mu.Unlock()
		return false
	}
	answered := how(w)
	l.store.mu.Unlock()
	answer(answered)
	return true
}

// Crash is the death of the view's process: no callback comes any more, from
// what is in flight or later. The oldest `keep` batches in flight are written
// all the same (if no newer claim exists), the others are lost.
func (l *Log) Crash(id int32, keep int) {
	l.store.mu.Lock()
	defer l.store.mu.Unlock()
	w := l.owned[id]
	if w == nil {
		return
	}
	for _, b := range w.flight[:min(keep, len(w.flight))] {
		if b.err != nil || !w.write(b) {
			break
		}
	}
	w.flight, w.silent, w.err = nil, true, errCrashed
}

var errCrashed = errors.New("memlog: the process of this writer has crashed")

// FailReads makes every claim of the partition fail with err while reading,
// until it is called with nil.
func (s *Store) FailReads(id int32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions[id].readErr = err
}

// Compact keeps, of everything but the last record, the last one of each key;
// tombstones too, if keepTombstones.
func (s *Store) Compact(id int32, keepTombstones bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := &s.partitions[id]
	if len(p.records) < 2 {
		return
	}
	cleanable := p.records[:len(p.records)-1]
	last := make(map[string]int64)
	for _, r := range cleanable {
		last[string(r.Key)] = r.Offset
	}
	kept := slices.DeleteFunc(slices.Clone(cleanable), func(r txnlog.RawRecord) bool {
		return last[string(r.Key)] != r.Offset || (r.Value == nil && !keepTombstones)
	})
	p.records = append(kept, p.records[len(p.records)-1])
}

// Inject writes a raw record as somebody who does not obey the fence. Its
// offset is chosen here.
func (s *Store) Inject(id int32, r txnlog.RawRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partitions[id].write(r.ProducerID, r.ProducerEpoch, r.Key, r.Value)
}

// Records returns the raw records of a partition, claims and all.
func (s *Store) Records(id int32) []txnlog.RawRecord {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.partitions[id].records)
}

// Entries returns what a claim of the partition would replay.
func (s *Store) Entries(id int32) ([]txnlog.Entry, error) {
	var entries []txnlog.Entry
	r := txnlog.Replay{
		Partition: id,
		Entry:     func(e txnlog.Entry) error { entries = append(entries, e); return nil },
		Skipped:   func(error) {},
	}
	err := feed(&r, s.Records(id))
	return entries, err
}

// Store returns the store behind the view.
func (l *Log) Store() *Store { return l.store }
