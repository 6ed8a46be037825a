package sim

import (
	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Mutant names a deliberately broken variant of what surrounds the core. If the
// checker did not find it, the checker would be worth nothing.
type Mutant string

// The mutants.
const (
	// effectBeforeAppend lets effects leave before their record is durable.
	effectBeforeAppend Mutant = "effect-before-append"
	// withoutFence lets a host whose claim was superseded go on appending.
	noFence Mutant = "no-fence"
	// forgottenDeadline never ticks the machine.
	forgottenDeadline Mutant = "forgotten-deadline"
	// oldEpochAccepted takes EndGlobalTxn of a fenced client for one of the
	// present session.
	oldEpochAccepted Mutant = "old-epoch-accepted"
	// presumedCommit commits what nobody decided and its timeout ends.
	presumedCommit Mutant = "presumed-commit"
	// voteSkipped takes every participant for prepared without a look.
	voteSkipped Mutant = "vote-skipped"
	// withoutR1 tells aborts before they are appended.
	withoutR1 Mutant = "without-R1"
	// withoutR2 aborts with a bare InitProducerId.
	withoutR2 Mutant = "without-R2"
	// withoutR3 initialises producers before InitGlobalTxn.
	withoutR3 Mutant = "without-R3"
	// withoutR3Ended does not record that a timeout ended the session.
	withoutR3Ended Mutant = "without-R3-session-ended"
	// withoutR4 lets a client abort by itself after it has asked for commit.
	withoutR4 Mutant = "without-R4"
	// withoutR5 tells an only participant's abort before its answer.
	withoutR5 Mutant = "without-R5"
	// withoutR5Record does not let the record follow an only participant that
	// had committed.
	withoutR5Record Mutant = "without-R5-record"
	// unfencedOnePhase sends the commit of an only participant below EndTxn v5
	// without a record before it.
	unfencedOnePhase Mutant = "unfenced-one-phase"
	// givesUp takes a participant that does not answer for one that has ended,
	// nobody knows how, without an operator's word.
	givesUp Mutant = "gives-up-by-itself"
	// forgottenIsAborted lets the record of an end forget which transaction it was,
	// so that one that is open again is nobody's and ends by its age.
	forgottenIsAborted Mutant = "forgotten-is-aborted"
	// strangersEnded takes a cluster that no session names for one that did.
	strangersEnded Mutant = "strangers-ended"
	// ageBeginsAnew counts the age of what is open from each new session on.
	ageBeginsAnew Mutant = "age-begins-anew"
	// readOnlyVote leaves a participant that shows nothing open out of a commit, as
	// complete.
	readOnlyVote Mutant = "read-only-vote"
	// oldConnection asks once more over the connection that there was.
	oldConnection Mutant = "asks-over-the-old-connection"
	// anyBroker sends EndTxn v4 to whoever is taken for the transaction coordinator,
	// whether it has shown the transaction open or not.
	anyBroker Mutant = "any-broker"
	// initWithoutKeep initialises without KeepPreparedTxn where clusters have it.
	initWithoutKeep Mutant = "init-without-keep"
	// abortsAnyKept aborts what was kept for a client without asking InitGlobalTxn
	// whether it is still the owner.
	abortsAnyKept Mutant = "aborts-any-kept"
	// endsAnyKept ends whatever the coordinator is given when it takes a transaction
	// over. Chance finds it once in twenty thousand worlds, the search at once.
	endsAnyKept Mutant = "ends-any-kept"
	// sameSession goes on in its session when an outcome is called lost: a copy of the
	// question may be under way, and be decided to commit beside the InitProducerId that
	// follows. Chance does not find it in forty thousand worlds, the search at once.
	sameSession Mutant = "same-session-after-a-lost-outcome"
	// expiredIsAborted presumes abort of what an expired id has decided.
	expiredIsAborted Mutant = "expired-is-aborted"
)

// Mutants lists those that chance finds.
func Mutants() []Mutant {
	return []Mutant{
		effectBeforeAppend, noFence, forgottenDeadline, oldEpochAccepted, presumedCommit, voteSkipped,
		withoutR1, withoutR2, withoutR3, withoutR3Ended, withoutR4, withoutR5, withoutR5Record,
		unfencedOnePhase, givesUp, forgottenIsAborted, strangersEnded, ageBeginsAnew, readOnlyVote, expiredIsAborted,
		oldConnection, anyBroker,
		initWithoutKeep, abortsAnyKept,
	}
}

// Rules lists those that leave out one of the rules R1 to R5.
func Rules() []Mutant {
	return []Mutant{withoutR1, withoutR2, withoutR3, withoutR3Ended, withoutR4, withoutR5, withoutR5Record}
}

// leavesEarly reports whether an effect does not wait for its record.
func (m Mutant) leavesEarly(e gtc.Effect) bool {
	end, ok := e.(gtc.EndTxn)
	return m == effectBeforeAppend || m == withoutR1 && ok && !end.Commit
}

func (w *world) mutateEvent(h *host, ev gtc.Event) gtc.Event {
	switch ev := ev.(type) {
	case gtc.EndRequest:
		if w.mutant == oldEpochAccepted {
			if d, ok := h.term.machine.Describe(h.clock, globalID); ok && ev.GlobalEpoch < d.Value.GlobalEpoch {
				ev.GlobalEpoch = d.Value.GlobalEpoch
			}
			return ev
		}
	case gtc.EndAnswered:
		switch {
		case w.mutant == withoutR5Record && ev.Answer.Outcome == gtc.EndCommitted:
			ev.Answer.Outcome = gtc.EndDone
		case w.mutant == givesUp && ev.Answer.Outcome == gtc.EndRetry:
			ev.Answer.Outcome = gtc.EndUnknown
		}
		return ev
	case gtc.ScanCompleted:
		if v := h.term.machine.Value(globalID); w.mutant == ageBeginsAnew && v != nil {
			for i := range ev.Open {
				if k := clusterOf(ev.ClusterID); int(k) >= w.n || w.clusters[k].owner() < 0 || w.txns[w.clusters[k].owner()].asked {
					continue // it may be decided about, by its start
				}
				ev.Open[i].StartMillis += 1000 * int64(v.GlobalEpoch%10) // startOf takes it out
			}
		}
	case gtc.InitRequest, gtc.ParticipantsChecked, gtc.VotesTaken, gtc.ResolveRequest, gtc.Tick:
	}
	return ev
}

func (w *world) mutateChange(c gtc.Change) gtc.Change {
	p, ok := c.(gtc.Persist)
	if ok && w.mutant == withoutR3Ended && p.Record.Value != nil && p.Record.Value.SessionEnded {
		p.Record.Value = p.Record.Value.Clone()
		p.Record.Value.SessionEnded = false
		return p
	}
	switch {
	case !ok || p.Record.Value == nil:
	case w.mutant == strangersEnded:
		p.Record.Value = p.Record.Value.Clone()
		p.Record.Value.FormerClusterIDs = []string{strangerID}
		return p
	case w.mutant == forgottenIsAborted:
		p.Record.Value = p.Record.Value.Clone()
		for i := range p.Record.Value.Participants {
			if q := &p.Record.Value.Participants[i]; q.State != txnlog.ParticipantPending {
				q.StartMillis = -1
			}
		}
		return p
	}
	return c
}

func (w *world) mutateReply(r gtc.Response) gtc.Response {
	if w.mutant == expiredIsAborted && r.Code == gtc.CodeUnknownID {
		return gtc.Response{Outcome: gtc.OutcomeAborted}
	}
	if w.mutant != withoutR5 || r.Outcome != gtc.OutcomeUnknown || len(r.Participants) != 1 {
		return r
	}
	if r.Participants[0].State == txnlog.ParticipantPending {
		r.Outcome = gtc.OutcomeAborted
	}
	return r
}

func (w *world) mutateOrder(o *endOrder) {
	if w.mutant != presumedCommit || o.commit {
		return
	}
	// What no client has asked to end is ended by its timeout.
	for t := range w.txns {
		x := &w.txns[t]
		if x.asked && x.listed&(1<<o.cluster) != 0 && x.producers[o.cluster] == o.producer {
			return
		}
	}
	o.commit = true
	w.ledger.landed = append(w.ledger.landed, recorded{o.sequence, o.cluster, o.producer, true}) // not what this mutant is about
}
