package gtc

import (
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// votesTaken turns the votes into a decision. It is the point of no return: the
// record is forced before any EndTxn leaves (R1).
func (s *step) votesTaken(ev VotesTaken) {
	w := s.load(ev.ID)
	e := w.volatile.ending
	if e == nil || e.onePhase || e.epoch != ev.GlobalEpoch || e.sequence != ev.Sequence || len(ev.Votes) != len(e.refs) {
		return
	}
	defer w.store()
	var against []string
	for i, v := range ev.Votes {
		switch v.Code {
		case VotePrepared:
		case VoteRefused, VoteUnavailable:
			against = append(against, e.refs[i].ClusterID+": "+v.Detail)
		}
	}
	if len(against) > 0 {
		w.decideAbort(e.refs, ev.Votes, "not prepared: "+strings.Join(against, "; "))
		return
	}
	w.decide(txnlog.StatePrepareCommit, voted(e.refs, ev.Votes), "")
	w.driveAll(false)
}

// voted joins what the votes say to the participants.
func voted(refs []ParticipantRef, votes []Vote) []txnlog.Participant {
	ps := participantsOf(refs)
	for i, v := range votes {
		p := &ps[i]
		p.EndTxnVersion = v.EndTxnVersion
		p.AuditTopic, p.AuditPartition, p.StartMillis = v.AuditTopic, v.AuditPartition, v.StartMillis
	}
	return ps
}

// decideAbort records the abort of the transaction under way and tells all
// listed participants, those that could not be asked included: one of them may
// be prepared. votes may be nil.
func (w *work) decideAbort(refs []ParticipantRef, votes []Vote, reason string) {
	ps := voted(refs, votes)
	w.decide(txnlog.StatePrepareAbort, ps, reason)
	w.driveAll(false)
}

// decide writes the decision about the transaction under way.
func (w *work) decide(state txnlog.State, ps []txnlog.Participant, reason string) {
	v := w.value
	w.orphan(ps)
	v.State = state
	v.Sequence = w.volatile.ending.sequence
	v.Participants = ps
	v.Reason = reason
	v.DecidedMillis = w.s.now.Wall
	w.volatile.ending = nil
	w.persist(false)
}

// orphan keeps what the decision that is about to be replaced by one about next
// has not been told yet: an abort that a cluster has not heard. It is told for
// ever, and nobody waits for it. Whoever waited hears what is known.
//
// An only participant's abort leaves nothing that could turn out torn (R5): its
// own answer is the outcome, and the one who could still ask has gone on. What has
// turned out torn while the next transaction was voted on is kept as well. (Found by
// the simulator.)
func (w *work) orphan(next []txnlog.Participant) {
	v := w.value
	if busy(v) {
		w.answerDecided()
	}
	// What a scan had found left over is told as a part of the next decision.
	v.Leftovers = slices.DeleteFunc(v.Leftovers, func(p txnlog.Participant) bool {
		again := !isHeuristic(p) && slices.ContainsFunc(next, func(n txnlog.Participant) bool { return refOf(n) == refOf(p) })
		if again {
			w.volatile.stopDriving(refOf(p), 0)
		}
		return again
	})
	if tornLast(v) {
		v.Leftovers = append(v.Leftovers, slices.DeleteFunc(slices.Clone(v.Participants), func(p txnlog.Participant) bool { return !isHeuristic(p) })...)
	}
	state := txnlog.ParticipantOrphaned
	if len(v.Participants) == 1 {
		state = txnlog.ParticipantPending
	}
	for _, p := range v.Participants {
		if !isPending(p) {
			continue
		}
		if slices.ContainsFunc(next, func(n txnlog.Participant) bool { return refOf(n) == refOf(p) }) {
			w.volatile.stopDriving(refOf(p), v.Sequence) // the next decision tells it
			continue
		}
		p.State = state
		v.Leftovers = append(v.Leftovers, p)
		if d := w.volatile.drive(refOf(p), v.Sequence); d != nil {
			d.sequence = 0
		}
	}
}
