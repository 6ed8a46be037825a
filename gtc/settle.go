package gtc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// driveAll starts to tell every pending participant of the decision, and every
// leftover. After a load (recovered) requests of an earlier coordinator may
// still be under way.
func (w *work) driveAll(recovered bool) {
	if w.busy() {
		for _, p := range w.value.Participants {
			if p.State == txnlog.ParticipantPending {
				w.drive(p, false, recovered)
			}
		}
	}
	w.driveLeftovers(recovered)
}

func (w *work) driveLeftovers(recovered bool) {
	for _, p := range w.value.Leftovers {
		if !w.volatile.driving(refOf(p), true) {
			w.drive(p, true, recovered)
		}
	}
}

func (w *work) drive(p txnlog.Participant, leftover, recovered bool) {
	w.volatile.drives = append(w.volatile.drives, drive{
		ref: refOf(p), leftover: leftover, inFlight: true, uncertain: recovered, since: w.s.now.Mono,
	})
	w.sendEnd(p, leftover)
}

func (w *work) driveOnePhase() {
	e := w.volatile.ending
	w.volatile.drives = append(w.volatile.drives, drive{ref: e.refs[0], inFlight: true, since: w.s.now.Mono})
	w.sendOnePhase(false)
}

func (w *work) sendOnePhase(fenced bool) {
	e := w.volatile.ending
	w.s.effect(EndTxn{
		ID: w.id, Sequence: e.sequence, Participant: participantsOf(e.refs)[0], Commit: true, OnePhase: true, Fenced: fenced,
	})
}

func (w *work) sendEnd(p txnlog.Participant, leftover bool) {
	eff := EndTxn{ID: w.id, Participant: p}
	if !leftover {
		eff.Sequence, eff.Commit = w.value.Sequence, committed(w.value)
		// An earlier coordinator may have committed an only participant in
		// one phase, so what its answer does not prove is not an abort (R5).
		eff.OnePhase = !eff.Commit && len(w.value.Participants) == 1
	}
	w.s.effect(eff)
}

// retryDue sends again what is pending and due.
func (w *work) retryDue() {
	for i := range w.volatile.drives {
		d := &w.volatile.drives[i]
		if d.inFlight || d.nextTry > w.s.now.Mono {
			continue
		}
		d.inFlight = true
		if e := w.volatile.ending; e != nil && e.onePhase && !d.leftover {
			w.sendOnePhase(d.fenced)
			continue
		}
		if p := w.target(d.ref, d.leftover); p != nil {
			w.sendEnd(*p, d.leftover)
		}
	}
}

// target is the recorded participant that a drive is about.
func (w *work) target(ref ParticipantRef, leftover bool) *txnlog.Participant {
	ps := w.value.Participants
	if leftover {
		ps = w.value.Leftovers
	}
	for i := range ps {
		if refOf(ps[i]) == ref {
			return &ps[i]
		}
	}
	return nil
}

// endAnswered takes one participant's answer in.
func (s *step) endAnswered(ev EndAnswered) {
	w := s.load(ev.ID)
	leftover := ev.Sequence == 0
	i := slices.IndexFunc(w.volatile.drives, func(d drive) bool { return d.ref == ev.Participant && d.leftover == leftover })
	if i < 0 || w.value == nil || !leftover && ev.Sequence != w.drivenSequence() {
		return
	}
	defer w.store()
	d := &w.volatile.drives[i]
	if e := w.volatile.ending; ev.Answer.Outcome == EndUnfenced && e != nil && e.onePhase {
		// The record says nothing new. That it can be written is what counts.
		d.fenced = true
		w.persist(false)
		w.sendOnePhase(true)
		return
	}
	d.inFlight = false
	d.uncertain = d.uncertain || ev.Answer.Uncertain
	d.detail = ev.Answer.Detail
	if ev.Answer.Outcome == EndRetry {
		d.attempts++
		d.nextTry = s.now.Mono + s.m.cfg.backoff(d.attempts)
		return
	}
	uncertain := d.uncertain
	s.out.Changes = append(s.out.Changes, setEnded{id: w.id, ended: ended{ev.Participant.ClusterID, s.now.Mono}})
	w.volatile.drives = slices.Delete(w.volatile.drives, i, i+1)
	w.forgetOpen(ev.Participant)
	switch {
	case leftover:
		w.value.Leftovers = slices.DeleteFunc(w.value.Leftovers, func(p txnlog.Participant) bool { return refOf(p) == ev.Participant })
		w.persist(true)
	case w.volatile.ending != nil:
		w.onePhaseEnded(ev.Answer, uncertain)
	default:
		w.participantEnded(ev.Participant, ev.Answer, uncertain)
	}
}

// drivenSequence is the transaction that the drives, leftovers aside, belong to.
func (w *work) drivenSequence() int64 {
	if e := w.volatile.ending; e != nil {
		return e.sequence
	}
	return w.value.Sequence
}

func (c Config) backoff(attempts int64) int64 {
	return min(c.RetryBackoffMillis<<min(attempts-1, 30), c.RetryBackoffMaxMillis)
}

// onePhaseEnded records the only participant's own decision (R5).
func (w *work) onePhaseEnded(a EndAnswer, uncertain bool) {
	v, e := w.value, w.volatile.ending
	p := participantsOf(e.refs)[0]
	state, reason := txnlog.StateCompleteCommit, ""
	switch a.Outcome {
	case EndAborted:
		state, reason = txnlog.StateCompleteAbort, "the participant had already aborted"+because(a.Detail)
		p.State = txnlog.ParticipantComplete
	case EndUnknown:
		p.State, p.Detail = txnlog.ParticipantHeuristicUnknown, a.Detail
	case EndRetry, EndUnfenced, EndDone, EndCommitted:
		p.State = txnlog.ParticipantComplete
	}
	goOn(&p, a, uncertain)
	v.State, v.Sequence, v.Participants, v.Reason = state, e.sequence, []txnlog.Participant{p}, reason
	v.DecidedMillis = w.s.now.Wall
	w.volatile.ending = nil
	w.complete()
}

// participantEnded records one participant's end after a decision.
func (w *work) participantEnded(ref ParticipantRef, a EndAnswer, uncertain bool) {
	v := w.value
	p := w.target(ref, false)
	switch a.Outcome {
	case EndRetry, EndUnfenced, EndDone:
		p.State = txnlog.ParticipantComplete
	case EndCommitted:
		switch {
		case committed(v):
			p.State = txnlog.ParticipantComplete
		case len(v.Participants) == 1:
			// The abort came too late for the only participant, and nobody
			// has been told: the record follows it (R5).
			p.State = txnlog.ParticipantComplete
			v.State, v.Reason = txnlog.StateCompleteCommit, ""
			goOn(p, a, uncertain)
			w.persist(false) // the log says abort until then
			w.answerAll(w.answer())
			return
		default:
			p.State, p.Detail = txnlog.ParticipantHeuristicCommit, a.Detail
		}
	case EndAborted:
		if committed(v) {
			p.State, p.Detail = txnlog.ParticipantHeuristicAbort, a.Detail
		} else {
			p.State = txnlog.ParticipantComplete
		}
	case EndUnknown:
		p.State, p.Detail = txnlog.ParticipantHeuristicUnknown, a.Detail
	}
	goOn(p, a, uncertain)
	if !w.settleIfEnded() {
		// Progress: the next coordinator need not ask this one again.
		w.persist(true)
	}
}

// goOn notes what the client continues with. Below EndTxn v5 the epoch stays,
// so a request of ours that is still under way would end the client's next
// transaction (measured); the client must then take a new epoch first.
func goOn(p *txnlog.Participant, a EndAnswer, uncertain bool) {
	if a.EndTxnVersion != 0 {
		p.EndTxnVersion = a.EndTxnVersion
	}
	p.NextProducerID, p.NextProducerEpoch = a.NextProducerID, a.NextProducerEpoch
	if below5(*p) && uncertain || p.State.Heuristic() {
		p.NextProducerID, p.NextProducerEpoch = -1, -1
	}
}

// settleIfEnded completes a decision when no participant is pending.
func (w *work) settleIfEnded() bool {
	v := w.value
	if slices.ContainsFunc(v.Participants, isPending) {
		return false
	}
	v.State = completed(v)
	w.complete()
	return true
}

// completed is the state after the decision.
func completed(v *txnlog.GlobalTransaction) txnlog.State {
	if committed(v) {
		return txnlog.StateCompleteCommit
	}
	return txnlog.StateCompleteAbort
}

// complete writes the end of the transaction and answers whoever waits. The
// record is lazy: without it the decision is told again, and EndTxn v5 answers
// a repeat with a fence that ends nothing. EndTxn v4 has no such fence: told
// again, it would end the client's next transaction under the same epoch. So
// with such a participant nobody hears "complete" before it is durable.
func (w *work) complete() {
	v := w.value
	reask := slices.ContainsFunc(v.Participants, func(p txnlog.Participant) bool {
		return below5(p) && p.NextProducerID >= 0
	})
	strange := slices.ContainsFunc(v.Participants, func(p txnlog.Participant) bool { return p.State.Heuristic() })
	w.persist(!reask && !strange)
	w.answerAll(w.answer())
}

// answer is what is known of the last transaction.
func (w *work) answer() Response {
	v := w.value
	if w.volatile.ending != nil {
		return Response{Outcome: OutcomeUnknown, Message: "not decided yet; ask again with the same request"}
	}
	resp := Response{Outcome: OutcomeAborted, Message: v.Reason, Participants: slices.Clone(v.Participants)}
	if committed(v) {
		resp.Outcome = OutcomeCommitted
	}
	if busy(v) {
		resp.Message = w.pendingMessage()
	}
	for i := range resp.Participants {
		// Below v5 its end is not durable yet, see complete. And a session that
		// is over has no next transaction: a client that went on without asking
		// InitGlobalTxn would hear "aborted" for ever.
		if p := &resp.Participants[i]; busy(v) && below5(*p) || v.SessionEnded {
			p.NextProducerID, p.NextProducerEpoch = -1, -1
		}
	}
	switch {
	case len(v.Participants) == 1 && (busy(v) && !committed(v) || v.Participants[0].State == txnlog.ParticipantHeuristicUnknown):
		// The only participant's own answer is the outcome, and it is out (R5).
		resp.Outcome = OutcomeUnknown
	case v.Reason == "" && !committed(v) && !busy(v):
		resp.Message = "aborted as asked"
	}
	switch {
	case outcomeLost(v):
		p := v.Participants[0]
		resp.Code, resp.Message = CodeOutcomeTooOld, fmt.Sprintf("the only participant, %s, has ended, and nobody can tell how%s", p.ClusterID, because(p.Detail))
	case heuristic(v):
		resp.Code, resp.Message = CodeHeuristicOutcome, heuristicMessage(v)
	}
	return resp
}

func (w *work) pendingMessage() string {
	v := w.value
	verb := "aborted"
	switch {
	case committed(v):
		verb = "committed"
	case len(v.Participants) == 1:
		verb = "abort asked"
	}
	var waiting []string
	for _, p := range v.Participants {
		if p.State != txnlog.ParticipantPending {
			continue
		}
		text := p.ClusterID
		i := slices.IndexFunc(w.volatile.drives, func(d drive) bool { return d.ref == refOf(p) && !d.leftover })
		if i >= 0 {
			d := w.volatile.drives[i]
			text += fmt.Sprintf(" since %d ms", w.s.now.Mono-d.since)
			if d.detail != "" {
				text += " (" + d.detail + ")"
			}
		}
		waiting = append(waiting, text)
	}
	if v.Reason != "" {
		// Who asked to commit wants to know why it was not: a participant that did
		// not vote is often the one that is waited for.
		verb += " (" + v.Reason + ")"
	}
	return verb + ", waiting for " + strings.Join(waiting, ", ")
}

func heuristicMessage(v *txnlog.GlobalTransaction) string {
	decision := "abort"
	if committed(v) {
		decision = "commit"
	}
	var seen []string
	for _, p := range v.Participants {
		switch p.State {
		case txnlog.ParticipantHeuristicCommit:
			seen = append(seen, p.ClusterID+" committed"+because(p.Detail))
		case txnlog.ParticipantHeuristicAbort:
			seen = append(seen, p.ClusterID+" aborted"+because(p.Detail))
		case txnlog.ParticipantHeuristicUnknown:
			seen = append(seen, p.ClusterID+" ended and nobody can tell how"+because(p.Detail))
		case txnlog.ParticipantPending, txnlog.ParticipantComplete:
		}
	}
	return fmt.Sprintf("heuristic outcome of transaction %d: %s was decided, but %s; an operator must look and forget it before this id goes on",
		v.Sequence, decision, strings.Join(seen, "; "))
}

func because(detail string) string {
	if detail == "" {
		return ""
	}
	return " (" + detail + ")"
}
