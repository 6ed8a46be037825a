package durable_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// worker is one producer with its model: what a reader must see of it. It
// repeats a request whose answer it did not get until it gets one, and demands
// the answer that an unbroken broker would have given.
type worker struct {
	id    string
	v4    bool
	rng   *rand.Rand
	c     *rawClient
	x     *txn
	count int

	pending   func(context.Context) error // what to repeat first
	batches   map[int32][]string          // of the open transaction
	staged    int64                       // -1 is none
	open      bool
	committed map[int32][]string
	group     int64
}

// errBroken is a request without an answer.
var errBroken = errors.New("no answer")

// try runs a request; without an answer it becomes the one to repeat.
func (w *worker) try(ctx context.Context, request func(context.Context) error) error {
	err := request(ctx)
	var answered *kerr.Error
	switch {
	case err == nil:
		w.pending = nil
		return nil
	case errors.As(err, &answered):
		return fmt.Errorf("%s: %w", w.id, err) // no answer of this kind is right
	default:
		w.pending = request
		return errBroken
	}
}

// run takes steps until ctx ends. A connection may be broken although the
// broker is there again, so it asks anew.
func (w *worker) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := w.step(ctx); err != nil && !errors.Is(err, errBroken) {
			return err
		}
	}
	return nil
}

// settle repeats what has no answer until it has one.
func (w *worker) settle(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for w.pending != nil {
		if err := w.step(ctx); err != nil && !errors.Is(err, errBroken) || ctx.Err() != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	return nil
}

// step does the next thing, and returns errBroken when the broker is gone.
func (w *worker) step(ctx context.Context) error {
	if w.pending != nil {
		return w.try(ctx, w.pending)
	}
	switch n := w.rng.IntN(100); {
	case w.x == nil || n < 3:
		return w.try(ctx, w.init)
	case n < 60:
		return w.try(ctx, w.produce())
	case n < 70:
		w.count++
		offset := int64(w.count)
		return w.try(ctx, func(ctx context.Context) error {
			if err := w.c.stage(ctx, w.x, w.id, offset); err != nil {
				return fmt.Errorf("TxnOffsetCommit: %w", err)
			}
			w.staged, w.open = offset, true
			return nil
		})
	case w.open:
		return w.try(ctx, w.end(w.rng.IntN(3) > 0))
	}
	return nil
}

func (w *worker) init(ctx context.Context) error {
	x, err := w.c.init(ctx, w.id, unlimited)
	if err != nil {
		return err
	}
	w.x = x
	w.begin() // what was open is aborted
	return nil
}

func (w *worker) begin() { w.open, w.staged, w.batches = false, -1, make(map[int32][]string) }

func (w *worker) produce() func(context.Context) error {
	partition := int32(w.rng.IntN(3))
	values := make([]string, 1+w.rng.IntN(3))
	for i := range values {
		w.count++
		values[i] = fmt.Sprintf("%s-%d", w.id, w.count)
	}
	return func(ctx context.Context) error {
		if _, err := w.c.produce(ctx, w.x, partition, w.x.seq[partition], values...); err != nil {
			return fmt.Errorf("Produce: %w", err)
		}
		w.x.seq[partition] += int32(len(values))
		w.batches[partition] = append(w.batches[partition], values...)
		w.open = true
		return nil
	}
}

func (w *worker) end(commit bool) func(context.Context) error {
	return func(ctx context.Context) error {
		if err := w.c.end(ctx, w.x, commit); err != nil {
			return fmt.Errorf("EndTxn(commit=%t): %w", commit, err)
		}
		if commit {
			for partition, values := range w.batches {
				w.committed[partition] = append(w.committed[partition], values...)
			}
			if w.staged >= 0 {
				w.group = w.staged
			}
		}
		w.begin()
		return nil
	}
}

// TestRandomKills kills the broker at 50 random moments under five producers
// and compares what read_committed shows in the end with the model.
func TestRandomKills(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("DURABLE_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		must(t, err)
	}
	t.Logf("DURABLE_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	addr := p.addr
	workers := make([]*worker, 5)
	for i := range workers {
		w := &worker{
			id: fmt.Sprintf("w%d", i), v4: i >= 3, rng: rand.New(rand.NewPCG(seed, uint64(i+1))),
			committed: make(map[int32][]string), group: -1,
		}
		w.c = dial(t, addr, w.v4)
		w.begin()
		workers[i] = w
	}
	for range 50 {
		var (
			wg        sync.WaitGroup
			failed    = make([]error, len(workers))
			ctx, stop = context.WithCancel(t.Context())
		)
		for i, w := range workers {
			wg.Go(func() { failed[i] = w.run(ctx) })
		}
		kill := time.NewTimer(time.Duration(5+rng.IntN(150)) * time.Millisecond)
		<-kill.C
		p.kill(t)
		stop()
		wg.Wait()
		must(t, errors.Join(failed...))
		report := repaired(t, dir)
		for _, w := range workers {
			open := slices.ContainsFunc(report.Open, func(o durable.Transaction) bool { return o.TransactionalID == w.id })
			if w.pending == nil && w.open != open {
				t.Fatalf("%s: open is %t, the model says %t", w.id, open, w.open)
			}
		}
		p = startProcess(t, dir, addr)
	}
	total := 0
	for _, w := range workers {
		if w.pending == nil && w.open {
			w.pending = w.end(true)
		}
		must(t, w.settle(t.Context()))
		if w.open {
			w.pending = w.end(true)
			must(t, w.settle(t.Context()))
		}
		if got := w.c.committed(t, w.id); got != w.group {
			t.Errorf("%s: group has %d, the model %d", w.id, got, w.group)
		}
	}
	for partition := range int32(3) {
		shown := readCommitted(t, addr, partition)
		total += len(shown)
		for _, w := range workers {
			var mine []string
			for _, v := range shown {
				if v[:2] == w.id {
					mine = append(mine, v)
				}
			}
			if !slices.Equal(mine, w.committed[partition]) {
				t.Errorf("%s on partition %d shows\n%v, the model has\n%v", w.id, partition, mine, w.committed[partition])
			}
		}
	}
	if total < 100 {
		t.Errorf("only %d records were committed: the workload tests nothing", total)
	}
	t.Logf("%d records committed", total)
}
