package gtc

import (
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// step collects the output of one Step.
type step struct {
	m   *Machine
	now Time
	id  string // that is being worked on
	out Output
}

// work is one id's state while a Step thinks about it: copies, so that the
// machine itself stays as it is until Apply.
type work struct {
	s        *step
	id       string
	value    *txnlog.GlobalTransaction // nil when the id is unknown
	volatile *volatile
}

func (s *step) load(id string) *work {
	s.id = id
	w := &work{s: s, id: id}
	e := s.m.entries[id]
	if e == nil {
		w.volatile = &volatile{}
		return w
	}
	if e.value != nil {
		w.value = e.value.Clone()
	}
	w.volatile = e.volatile.clone()
	return w
}

// store hands the volatile state over. Every handler ends with it.
func (w *work) store() {
	v := w.volatile
	if v.idle() && len(v.clusters) == 0 && v.opened == 0 {
		v = nil
	}
	w.s.out.Changes = append(w.s.out.Changes, setVolatile{id: w.id, volatile: v})
}

// persist logs the value as it is now. The machine gets a copy of its own,
// because the handler may go on with this one.
func (w *work) persist(lazy bool) {
	w.value.UpdatedMillis = w.s.m.steadyWall(w.s.now)
	w.s.out.Changes = append(w.s.out.Changes, Persist{
		Record: txnlog.Record{GlobalTransactionalID: w.id, Value: w.value.Clone()},
		Lazy:   lazy,
	})
}

// force makes the record that was written last one that effects wait for.
func (w *work) force() {
	last := &w.s.out.Changes[len(w.s.out.Changes)-1]
	p := (*last).(Persist)
	p.Lazy = false
	*last = p
}

func (s *step) effect(e Effect) { s.out.Effects = append(s.out.Effects, e) }

func (s *step) reply(r RequestID, resp Response) {
	s.effect(Reply{ID: s.id, Request: r, Response: resp})
}

func (s *step) refuse(r RequestID, code Code, message string) {
	s.reply(r, Response{Code: code, Message: message, GlobalEpoch: -1, Sequence: -1})
}

// elapsed does what is due for one id.
func (w *work) elapsed() {
	if e := w.volatile.ending; e != nil && !e.onePhase && e.votesBy <= w.s.now.Mono {
		w.decideAbort(e.refs, nil, "votes could not be taken in time")
	}
	w.abortOverdue()
	w.retryDue()
	w.answerOverdue()
}

// wait adds a request that is answered when its transaction is complete, or when
// its client's patience is over.
func (w *work) wait(r EndRequest) {
	if len(w.volatile.waiters) >= w.s.m.cfg.MaxWaiters {
		w.s.refuse(r.Request, CodeConcurrentTransactions, "too many requests wait for this transaction; ask again")
		return
	}
	w.volatile.waiters = append(w.volatile.waiters,
		waiter{request: r.Request, sequence: r.Sequence, deadline: w.s.now.Mono + max(int64(r.TimeoutMillis), 0)})
}

// answerOverdue answers the waiters whose deadline has come with what is known.
func (w *work) answerOverdue() {
	w.answerWaiters(func(x waiter) bool { return x.deadline <= w.s.now.Mono })
}

// answerDecided answers whoever waits for the transaction that was decided last.
func (w *work) answerDecided() {
	w.answerWaiters(func(x waiter) bool { return x.sequence == w.value.Sequence })
}

func (w *work) answerWaiters(which func(waiter) bool) {
	w.volatile.waiters = slices.DeleteFunc(w.volatile.waiters, func(x waiter) bool {
		if !which(x) {
			return false
		}
		w.s.reply(x.request, w.answer(x.sequence))
		return true
	})
}

// refuseWaiters refuses whoever waits for one transaction.
func (w *work) refuseWaiters(sequence int64, code Code, message string) {
	w.volatile.waiters = slices.DeleteFunc(w.volatile.waiters, func(x waiter) bool {
		if x.sequence != sequence {
			return false
		}
		w.s.reply(x.request, Response{Code: code, Message: message})
		return true
	})
}
