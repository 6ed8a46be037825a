package memlog

import (
	"context"
	"sync"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// writer is one claim. All of it but the callbacks happens under the lock of
// the store.
type writer struct {
	log   *Log
	id    int32
	pid   int64
	epoch int16
	// flight holds the batches in flight: the first is on its way, the last
	// fills.
	flight []*batch
	err    error // why it is dead
	silent bool  // it crashed: nobody is there to be called back

	// calls are what a goroutine of their own calls back, in order.
	callsMu sync.Mutex
	calls   []*batch
	calling bool
}

var _ txnlog.Writer = (*writer)(nil)

type batch struct {
	records []raw
	dones   []func(error)
	err     error
	sent    bool
}

type raw struct{ key, value []byte }

// encode fails for an id that no key can hold.
func encode(records []txnlog.Record) ([]raw, error) {
	var raws []raw
	for _, r := range records {
		key, err := txnlog.AppendKey(nil, r.GlobalTransactionalID)
		if err != nil {
			return nil, err
		}
		var value []byte
		if r.Value != nil {
			value = txnlog.AppendValue(nil, r.Value)
		}
		raws = append(raws, raw{key, value})
	}
	return raws, nil
}

// Append implements txnlog.Writer.
func (w *writer) Append(records []txnlog.Record, done func(error)) {
	raws, err := encode(records)
	s := w.log.store
	s.mu.Lock()
	defer s.mu.Unlock()
	w.log.stats.Appends++
	w.log.stats.Records += int64(len(records))
	if w.silent {
		return
	}
	if w.err != nil {
		w.call(&batch{dones: []func(error){done}, err: w.err})
		return
	}
	b := w.filling()
	if err != nil && len(b.records)+len(b.dones) > 0 {
		b = w.push() // what was appended before is not spoilt
	}
	b.records, b.dones, b.err = append(b.records, raws...), append(b.dones, done), err
	if !s.partitions[w.id].held {
		for _, b := range w.arrive() {
			w.call(b)
		}
	}
}

// filling is the batch that the next append joins: not the one on its way, and
// none that fails by itself.
func (w *writer) filling() *batch {
	if n := len(w.flight); n > 0 {
		if b := w.flight[n-1]; !b.sent && b.err == nil {
			return b
		}
	}
	return w.push()
}

func (w *writer) push() *batch {
	b := &batch{sent: len(w.flight) == 0}
	w.flight = append(w.flight, b)
	return b
}

// arrive lets the batch on its way reach the log, and returns those that are
// to be answered: it alone, or all when it ends the writer.
func (w *writer) arrive() []*batch {
	if len(w.flight) == 0 {
		return nil
	}
	b := w.flight[0]
	if b.err != nil {
		return w.end(b.err, b.err)
	}
	if !w.write(b) {
		return w.end(txnlog.ErrFenced, txnlog.ErrFenced)
	}
	w.flight = w.flight[1:]
	if len(w.flight) > 0 {
		w.flight[0].sent = true
	}
	return []*batch{b}
}

// write puts a batch into the log, if the claim is still the last one.
func (w *writer) write(b *batch) bool {
	p := &w.log.store.partitions[w.id]
	if p.pid != w.pid || p.epoch != w.epoch {
		return false
	}
	for _, r := range b.records {
		p.write(w.pid, w.epoch, r.key, r.value)
	}
	if len(b.records) > 0 {
		w.log.stats.Batches++
		w.log.stats.ForcedWrites++
	}
	return true
}

// end makes the writer dead. What is in flight fails with err, what comes
// later with after.
func (w *writer) end(err, after error) []*batch {
	if w.err == nil {
		w.err = after
	}
	ended := w.flight
	w.flight = nil
	for _, b := range ended {
		b.err = err
	}
	return ended
}

// answer calls back, in order.
func answer(batches []*batch) {
	for _, b := range batches {
		for _, done := range b.dones {
			done(b.err)
		}
	}
}

// call calls back from another goroutine, in the order of the calls.
func (w *writer) call(b *batch) {
	w.callsMu.Lock()
	defer w.callsMu.Unlock()
	w.calls = append(w.calls, b)
	if !w.calling {
		w.calling = true
		go w.callBack()
	}
}

func (w *writer) callBack() {
	for {
		w.callsMu.Lock()
		batches := w.calls
		w.calls = nil
		if len(batches) == 0 {
			w.calling = false
			w.callsMu.Unlock()
			return
		}
		w.callsMu.Unlock()
		answer(batches)
	}
}

// Close implements txnlog.Writer. It waits for appends in flight, and so for
// the test that holds them.
func (w *writer) Close(ctx context.Context) error {
	idle := make(chan struct{})
	s := w.log.store
	s.mu.Lock()
	last := &batch{dones: []func(error){func(error) { close(idle) }}}
	switch {
	case w.silent:
		close(idle)
	case len(w.flight) > 0:
		w.flight = append(w.flight, last)
		last.err = txnlog.ErrClosed // ends the writer when its turn comes
	default:
		w.end(txnlog.ErrClosed, txnlog.ErrClosed)
		w.call(last)
	}
	s.mu.Unlock()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
