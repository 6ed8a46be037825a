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
	if busy(w.value) {
		for _, p := range w.value.Participants {
			if isPending(p) && w.volatile.drive(refOf(p), w.value.Sequence) == nil {
				w.drive(p, w.value.Sequence, recovered)
			}
		}
	}
	w.driveLeftovers(recovered)
}

func (w *work) driveLeftovers(recovered bool) {
	for _, p := range w.value.Leftovers {
		if !isHeuristic(p) && w.volatile.drive(refOf(p), 0) == nil {
			w.drive(p, 0, recovered)
		}
	}
}

// drive begins to tell one participant: of transaction sequence, or with 0 a
// leftover.
func (w *work) drive(p txnlog.Participant, sequence int64, recovered bool) {
	from := p.StartMillis
	if sequence != 0 {
		from = w.value.DecidedMillis
	}
	w.addDrive(drive{ref: refOf(p), sequence: sequence, uncertain: recovered, before: ageBefore(w.s.now, from)})
	w.sendEnd(p, sequence)
}

func (w *work) addDrive(d drive) {
	d.inFlight, d.since, d.asked = true, w.s.now.Mono, d.sequence
	c := w.volatile.at(d.ref.ClusterID)
	c.drives = append(c.drives, d)
}

func (w *work) driveOnePhase() {
	e := w.volatile.ending
	w.addDrive(drive{ref: e.refs[0], sequence: e.sequence})
	w.sendOnePhase(false)
}

func (w *work) sendOnePhase(fenced bool) {
	e := w.volatile.ending
	w.s.effect(EndTxn{
		ID: w.id, Sequence: e.sequence, Participant: participantsOf(e.refs)[0], Commit: true, OnePhase: true, Fenced: fenced,
	})
}

func (w *work) sendEnd(p txnlog.Participant, sequence int64) {
	eff := EndTxn{ID: w.id, Sequence: sequence, Participant: p}
	if sequence != 0 {
		eff.Commit = committed(w.value)
		// An earlier coordinator may have committed an only participant in
		// one phase, so what its answer does not prove is not an abort (R5).
		eff.OnePhase = !eff.Commit && len(w.value.Participants) == 1
	}
	w.s.effect(eff)
}

// onePhase reports that the drive is the one-phase commit under way.
func (w *work) onePhase(d *drive) bool {
	e := w.volatile.ending
	return e != nil && e.onePhase && d.sequence == e.sequence
}

// retryDue sends again what is pending and due.
func (w *work) retryDue() {
	for _, d := range w.volatile.drives() {
		if d.inFlight || d.nextTry > w.s.now.Mono {
			continue
		}
		d.inFlight, d.asked = true, d.sequence
		if w.onePhase(d) {
			w.sendOnePhase(d.fenced)
		} else if p := w.target(d.ref, d.sequence); p != nil {
			w.sendEnd(*p, d.sequence)
		}
	}
}

// target is the recorded participant that a drive is about.
func (w *work) target(ref ParticipantRef, sequence int64) *txnlog.Participant {
	ps := w.value.Participants
	if sequence == 0 {
		ps = w.value.Leftovers
	}
	for i := range ps {
		// Below EndTxn v5 one that is torn may have the name of one that is told.
		if refOf(ps[i]) == ref && (sequence != 0 || !isHeuristic(ps[i])) {
			return &ps[i]
		}
	}
	return nil
}

// endAnswered takes one participant's answer in. One about what is not being told
// any more, because a later decision has replaced it, is dropped.
func (s *step) endAnswered(ev EndAnswered) {
	w := s.load(ev.ID)
	d := w.volatile.asked(ev.Participant, ev.Sequence)
	if d == nil || w.value == nil {
		return
	}
	defer w.store()
	if ev.Answer.Outcome == EndUnfenced && w.onePhase(d) {
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
	ended, onePhase := *d, w.onePhase(d)
	uncertain := d.uncertain
	w.nothingOpen(d)
	w.volatile.stopDriving(ended.ref, ended.sequence)
	switch {
	case ended.sequence == 0:
		w.leftoverEnded(ev.Participant, ev.Answer)
	case onePhase:
		w.onePhaseEnded(ev.Answer, uncertain)
	default:
		w.participantEnded(ev.Participant, ev.Answer, uncertain)
	}
}

// nothingOpen notes that a participant has ended now. What a look has seen of it,
// or sees that began before, is no news. One of the same name that began at another
// time is another transaction (EndTxn below v5), and still open.
func (w *work) nothingOpen(d *drive) {
	var told *txnlog.Participant
	if !w.onePhase(d) { // the record names the one before, on v4 with the same name
		told = w.target(d.ref, d.sequence)
	}
	c := w.volatile.at(d.ref.ClusterID)
	c.endedAt = w.s.now.Mono
	if c.open != nil && c.open.ref() == d.ref && (told == nil || told.AuditTopic == "" || sameStart(*told, *c.open)) {
		c.open = nil
	}
}

// leftoverEnded records the end of a leftover. One whose abort was decided as a
// part of a transaction, and that has committed, or may have, is torn from it: it
// stays until an operator has looked. What a scan has found has no other part.
func (w *work) leftoverEnded(ref ParticipantRef, a EndAnswer) {
	p := w.target(ref, 0)
	switch decided := p.State == txnlog.ParticipantOrphaned; {
	case decided && a.Outcome == EndCommitted:
		p.State, p.Detail = txnlog.ParticipantHeuristicCommit, a.Detail
	case decided && a.Outcome == EndUnknown:
		p.State, p.Detail = txnlog.ParticipantHeuristicUnknown, a.Detail
	default:
		w.value.Leftovers = slices.DeleteFunc(w.value.Leftovers, func(p txnlog.Participant) bool { return refOf(p) == ref && !isHeuristic(p) })
		w.persist(true)
		return
	}
	w.persist(false)
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
	ps := []txnlog.Participant{p}
	w.orphan(ps)
	v.State, v.Sequence, v.Participants, v.Reason = state, e.sequence, ps, reason
	v.DecidedMillis = w.s.now.Wall
	w.volatile.ending = nil
	w.complete()
}

// participantEnded records one participant's end after a decision.
func (w *work) participantEnded(ref ParticipantRef, a EndAnswer, uncertain bool) {
	v := w.value
	p := w.target(ref, v.Sequence)
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
			w.answerDecided()
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

// pendingState is the state before every participant has ended as decided.
func pendingState(v *txnlog.GlobalTransaction) txnlog.State {
	if committed(v) {
		return txnlog.StatePrepareCommit
	}
	return txnlog.StatePrepareAbort
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
	w.persist(!reask && !slices.ContainsFunc(v.Participants, isHeuristic))
	w.answerDecided()
}

// answer is what is known of a transaction: the one that is ending, or the one that
// was decided last.
func (w *work) answer(sequence int64) Response {
	v := w.value
	if e := w.volatile.ending; e != nil && e.sequence == sequence {
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
	case tornLast(v) || tornAgain(v):
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
		if d := w.volatile.drive(refOf(p), v.Sequence); d != nil {
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
	var seen []string
	if tornLast(v) {
		decision := "abort"
		if committed(v) {
			decision = "commit"
		}
		seen = append(seen, fmt.Sprintf("of transaction %d: %s was decided, but %s", v.Sequence, decision, strings.Join(against(v.Participants), "; ")))
	}
	if earlier := against(v.Leftovers); len(earlier) > 0 {
		seen = append(seen, "of an earlier transaction: abort was decided, but "+strings.Join(earlier, "; "))
	}
	return "heuristic outcome " + strings.Join(seen, ", and ") + "; an operator must look and forget it before this id goes on"
}

// against tells which participants ended against the decision, or may have.
func against(ps []txnlog.Participant) (seen []string) {
	for _, p := range ps {
		switch p.State {
		case txnlog.ParticipantHeuristicCommit:
			seen = append(seen, p.ClusterID+" committed"+because(p.Detail))
		case txnlog.ParticipantHeuristicAbort:
			seen = append(seen, p.ClusterID+" aborted"+because(p.Detail))
		case txnlog.ParticipantHeuristicUnknown:
			seen = append(seen, p.ClusterID+" ended and nobody can tell how"+because(p.Detail))
		case txnlog.ParticipantPending, txnlog.ParticipantComplete, txnlog.ParticipantOrphaned:
		}
	}
	return seen
}

func because(detail string) string {
	if detail == "" {
		return ""
	}
	return " (" + detail + ")"
}
