package service

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// shard is one owned partition. Its goroutine is the only one that touches the
// machine; everybody else puts closures into its inbox.
type shard struct {
	s         *Service
	partition int32
	inbox     inbox
	ctx       context.Context
	cancel    context.CancelFunc
	done      chan struct{} // closed when run has ended
	active    atomic.Bool
	refused   atomic.Pointer[error] // why the partition cannot be read

	// term is the present life of the machine: from one claim to the first
	// failure. It belongs to the shard's goroutine.
	term *term
	// unknown are the appends of earlier terms whose fate is not known.
	unknown []*batch
}

// term is what lives from a claim to the first failure.
type term struct {
	ctx     context.Context
	cancel  context.CancelFunc
	machine *gtc.Machine
	writer  txnlog.Writer
	failed  error

	lazy      []txnlog.Record
	lazyOf    map[string]int // where in lazy the record of an id is
	lazyBytes int            // about
	lingering bool
	// forced and durable count the forced appends; last is the newest of
	// each id that is not durable yet, held are the effects behind it.
	forced, durable uint64
	last            map[string]uint64
	held            []heldEffect

	timerAt   int64
	stopTimer func()

	// requests have been handed to the machine and are not answered.
	requests map[gtc.RequestID]struct{}

	// news are those of the records since the last append, flight are the
	// appends that are not acknowledged, oldest first.
	news     []news
	flight   []*batch
	reopened reopened
}

type heldEffect struct {
	after uint64
	do    func()
	gone  func() // instead, when the term ends first; nil when nobody waits
}

func newShard(s *Service, partition int32) *shard {
	sh := &shard{s: s, partition: partition, done: make(chan struct{})}
	sh.inbox.signal = make(chan struct{}, 1)
	sh.ctx, sh.cancel = context.WithCancel(s.ctx)
	return sh
}

func (sh *shard) stop() { sh.cancel() }

// run claims, loads and serves until the shard is stopped. Every failure comes
// back here.
func (sh *shard) run() {
	defer close(sh.done)
	log := sh.s.o.Logger.With().Int32("partition", sh.partition).Logger()
	for sh.ctx.Err() == nil {
		err := sh.life()
		if sh.ctx.Err() != nil {
			return
		}
		if err != nil {
			sh.refused.Store(&err)
			log.Error().Err(err).Msg("the partition is given up for now; it will be claimed and read again")
		}
		for sh.pause(sh.s.o.ReloadBackoff); !sh.confirmed(); sh.pause(sh.s.o.ReloadBackoff) {
		}
	}
}

// confirmed asks whether the partition is still this node's to claim. A node
// that slept through its own funeral is refused by the log first; were it to
// claim the partition again at once, it would take it from the rightful owner,
// who would claim it back, and so on until the group had told the sleeper.
func (sh *shard) confirmed() bool {
	m := sh.s.o.Membership
	if m == nil || sh.ctx.Err() != nil {
		return true
	}
	err := m.Confirm(sh.ctx)
	if err != nil && sh.ctx.Err() == nil {
		sh.s.o.Logger.Warn().Int32("partition", sh.partition).Err(err).Msg("the partition is not claimed while it may be another node's")
	}
	return err == nil
}

func (sh *shard) pause(d time.Duration) {
	done := make(chan struct{})
	stop := sh.s.o.Clock.After(d, func() { close(done) })
	defer stop()
	select {
	case <-done:
	case <-sh.ctx.Done():
	}
}

// life is one term, from the claim to the first failure.
func (sh *shard) life() error {
	t := &term{
		machine: gtc.NewMachine(sh.s.o.Config), last: map[string]uint64{}, lazyOf: map[string]int{},
		requests: map[gtc.RequestID]struct{}{}, reopened: reopened{},
	}
	t.ctx, t.cancel = context.WithCancel(sh.ctx)
	defer t.cancel()
	elapsed := stopwatch()
	records, landed := 0, newLanded(sh.unknown)
	writer, err := sh.s.o.Log.Claim(t.ctx, sh.partition, func(e txnlog.Entry) error {
		records++
		landed.see(e.Record)
		sh.s.retentions.session(e.Value)
		t.reopened.follow(e.GlobalTransactionalID, t.machine.Value(e.GlobalTransactionalID), e.Value)
		t.machine.Apply(gtc.Persist{Record: e.Record})
		return nil
	})
	if err != nil {
		return err
	}
	landed.tell()
	t.writer = writer
	defer func() {
		sh.closeWriter(writer)
		sh.unknown = t.flight
	}()
	sh.term = t
	defer func() { sh.term = nil }()
	took := elapsed()
	sh.s.metrics.loaded(sh.partition, took)
	level := zerolog.InfoLevel
	if records == 0 { // of a new log fifty would bury what else there is to say
		level = zerolog.DebugLevel
	}
	sh.s.o.Logger.WithLevel(level).Int32("partition", sh.partition).Int("records", records).Int("ids", t.machine.Len()).
		Int64("ms", took.Milliseconds()).Msg("partition loaded")
	sh.inbox.open()
	sh.carryOut(nil, t.machine.Recover(sh.s.o.Clock.Now()))
	sh.refused.Store(nil)
	sh.active.Store(true)
	if err = sh.serve(); err == nil && len(t.lazy) > 0 {
		// A partition that is given up in order leaves the next owner nothing to
		// tell again.
		sh.append(sh.takeLazy(), 0, pointLazy)
	}
	return err
}

// closeTimeout is how long a partition that is given up waits for its appends
// in flight.
const closeTimeout = 5 * time.Second

func (sh *shard) closeWriter(w txnlog.Writer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(sh.ctx), closeTimeout)
	defer cancel()
	if err := w.Close(ctx); err != nil && !errors.Is(err, txnlog.ErrFenced) && !errors.Is(err, txnlog.ErrClosed) {
		sh.s.o.Logger.Warn().Int32("partition", sh.partition).Err(err).Msg("closing the log")
	}
}

func (sh *shard) serve() error {
	t := sh.term
	defer func() {
		if t.stopTimer != nil {
			t.stopTimer()
		}
		sh.active.Store(false)
		sh.inbox.shut()
		// What is held or half-way may be durable or not: the clients ask
		// again and hear what the log says.
		for r := range t.requests {
			sh.s.calls.answer(r, answer{err: errLoading})
		}
		for _, h := range t.held {
			if h.gone != nil {
				h.gone()
			}
		}
	}()
	for {
		select {
		case <-sh.inbox.signal:
		case <-t.ctx.Done():
			return nil
		}
		for _, do := range sh.inbox.take() {
			if t.failed == nil {
				do.run(t)
			} else {
				do.lost()
			}
		}
		if t.failed != nil {
			return t.failed
		}
		sh.armTimer()
	}
}

// step feeds the machine one event and carries out what it decides.
func (sh *shard) step(ev gtc.Event) {
	sh.carryOut(ev, sh.term.machine.Step(sh.s.o.Clock.Now(), ev))
}

// carryOut applies the changes, writes the forced records, and lets each effect
// go when the records of its id are durable. cause is nil at the start.
func (sh *shard) carryOut(cause gtc.Event, out gtc.Output) {
	t := sh.term
	var forced []txnlog.Record
	for _, c := range out.Changes {
		p, ok := c.(gtc.Persist)
		if ok {
			sh.observe(cause, p.Record)
		}
		t.machine.Apply(c)
		switch {
		case !ok:
		case p.Lazy && len(forced) == 0:
			sh.later(p.Record)
		default:
			forced = append(forced, p.Record)
			if !p.Lazy {
				t.last[p.Record.GlobalTransactionalID] = t.forced + 1
			}
		}
	}
	if forced != nil {
		t.forced++
		sh.append(append(sh.takeLazy(), forced...), t.forced, appendPoint(forced))
	}
	sh.linger()
	for _, e := range out.Effects {
		id, do := effectID(e), sh.effect(e)
		if after := t.last[id]; after > t.durable {
			t.held = append(t.held, heldEffect{after: after, do: do})
		} else {
			do()
		}
	}
}

// append writes one batch; ticket 0 is a batch of lazy records that nothing
// waits for.
func (sh *shard) append(records []txnlog.Record, ticket uint64, point string) {
	t := sh.term
	sh.s.o.Fault(point + "/before")
	elapsed, b := stopwatch(), sh.takeBatch(records)
	t.writer.Append(records, func(err error) {
		sh.s.metrics.appended(len(records), elapsed(), err)
		if err == nil {
			sh.s.o.Fault(point + "/after")
			b.tell()
		}
		sh.inbox.put(task{run: func(now *term) {
			if now != t {
				return
			}
			if err != nil {
				t.failed = err
				t.cancel()
				return
			}
			t.flight[0] = nil       // it holds records
			t.flight = t.flight[1:] // they are acknowledged in order
			if ticket > 0 {
				sh.becameDurable(ticket)
			}
		}})
	})
}

// becameDurable lets go what waited for the append.
func (sh *shard) becameDurable(ticket uint64) {
	t := sh.term
	t.durable = ticket
	for id, at := range t.last {
		if at <= ticket {
			delete(t.last, id)
		}
	}
	held := t.held
	t.held = nil
	for _, h := range held {
		if h.after <= ticket {
			h.do()
		} else {
			t.held = append(t.held, h)
		}
	}
}

// linger bounds how long lazy records wait when no forced one comes by.
func (sh *shard) linger() {
	t := sh.term
	if len(t.lazy) == 0 || t.lingering {
		return
	}
	t.lingering = true
	sh.s.o.Clock.After(sh.s.o.LazyLinger, func() {
		sh.inbox.put(task{run: func(now *term) {
			if now != t {
				return
			}
			t.lingering = false
			if len(t.lazy) > 0 {
				sh.append(sh.takeLazy(), 0, pointLazy)
			}
		}})
	})
}

// lazyRide bounds what rides with a forced append. An append is one batch, and
// one above the topic's max.message.bytes ends the term: the expiry of ten
// thousand ids would end each one that tries it.
const lazyRide = 128 << 10

// later keeps a lazy record for the next append. It says all of its id, so an
// older one is not needed beside it: that one participant has answered is worth
// a record only if the other keeps the coordinator waiting.
func (sh *shard) later(r txnlog.Record) {
	t := sh.term
	if i, ok := t.lazyOf[r.GlobalTransactionalID]; ok {
		t.lazyBytes += roughSize(r) - roughSize(t.lazy[i])
		t.lazy[i] = r
		return
	}
	t.lazyOf[r.GlobalTransactionalID] = len(t.lazy)
	t.lazy = append(t.lazy, r)
	if t.lazyBytes += roughSize(r); t.lazyBytes > lazyRide {
		sh.append(sh.takeLazy(), 0, pointLazy)
	}
}

func (sh *shard) takeLazy() []txnlog.Record {
	records := sh.term.lazy
	sh.term.lazy, sh.term.lazyBytes = nil, 0
	clear(sh.term.lazyOf)
	return records
}

// roughSize is the length of a record's encoding or somewhat more.
func roughSize(r txnlog.Record) int {
	const fixed = 128 // of a record, and of a participant
	n := fixed + len(r.GlobalTransactionalID)
	if r.Value == nil {
		return n
	}
	n += len(r.Value.Reason)
	for _, id := range r.Value.ClusterIDs {
		n += len(id)
	}
	for _, ps := range [][]txnlog.Participant{r.Value.Participants, r.Value.Leftovers} {
		for _, p := range ps {
			n += fixed + len(p.ClusterID) + len(p.AuditTopic) + len(p.Detail) + len(p.UnknownTags)
		}
	}
	return n
}

// armTimer asks for a Tick at the machine's next deadline.
func (sh *shard) armTimer() {
	t := sh.term
	at, ok := t.machine.NextDeadline()
	if !ok || t.stopTimer != nil && t.timerAt == at {
		return
	}
	if t.stopTimer != nil {
		t.stopTimer()
	}
	wait := max(at-sh.s.o.Clock.Now().Mono, 0)
	t.timerAt = at
	t.stopTimer = sh.s.o.Clock.After(time.Duration(wait)*time.Millisecond, func() {
		sh.inbox.put(task{run: func(now *term) {
			if now == t {
				t.stopTimer = nil
				sh.step(gtc.Tick{})
			}
		}})
	})
}

// whenDurable runs f in the shard, when everything that the machine has decided
// so far is durable: an answer must not show what a crash may take back. gone,
// if any, runs instead when the term ends before that.
func (sh *shard) whenDurable(f, gone func()) {
	t := sh.term
	if t.forced > t.durable {
		t.held = append(t.held, heldEffect{after: t.forced, do: f, gone: gone})
		return
	}
	f()
}

// task is a piece of work for the shard's goroutine.
type task struct {
	run func(*term)
	// gone is called instead when the term ends first; nil when nobody waits.
	gone func()
}

func (t task) lost() {
	if t.gone != nil {
		t.gone()
	}
}

// inbox is an unbounded queue: its producers are bounded themselves (requests
// by the connections, answers by the effects), and a bounded one could lock the
// shard out of the log, whose callbacks come through here. It is open during a
// term only: before, nobody would take what comes, for as long as the partition
// cannot be loaded.
type inbox struct {
	signal chan struct{}
	mu     sync.Mutex
	opened bool
	tasks  []task
}

// put hands the task over, or loses it when there is no term.
func (in *inbox) put(t task) {
	in.mu.Lock()
	opened := in.opened
	if opened {
		in.tasks = append(in.tasks, t)
	}
	in.mu.Unlock()
	if !opened {
		t.lost()
		return
	}
	select {
	case in.signal <- struct{}{}:
	default:
	}
}

func (in *inbox) take() []task {
	in.mu.Lock()
	defer in.mu.Unlock()
	ts := in.tasks
	in.tasks = nil
	return ts
}

func (in *inbox) open() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.opened = true
}

// shut loses what was not taken and what comes from now on.
func (in *inbox) shut() {
	in.mu.Lock()
	in.opened = false
	in.mu.Unlock()
	for _, t := range in.take() {
		t.lost()
	}
}
