package gtc

import (
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// This file has what a record says, in the words of the rules.

// busy: a decision is made and not every participant has acknowledged it.
func busy(v *txnlog.GlobalTransaction) bool { return holds(v) || v.State == txnlog.StatePrepareAbort }

// holds: what is pending keeps the id from going on. A commit does: whoever began
// the next transaction on a cluster that has not heard of it would end it there.
// An abort does not: InitProducerId, or the scan, ends there what the decision
// ends, and a cluster that is away for days must not keep its healthy partner
// waiting.
func holds(v *txnlog.GlobalTransaction) bool { return v.State == txnlog.StatePrepareCommit }

func decided(v *txnlog.GlobalTransaction) bool { return v.State != txnlog.StateEmpty }

// committed reports the last decision.
func committed(v *txnlog.GlobalTransaction) bool {
	return v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit
}

// tornLast: the last transaction is torn. A participant of it ended against its
// decision, or nobody can tell, and no operator has forgotten it.
func tornLast(v *txnlog.GlobalTransaction) bool {
	return !outcomeLost(v) && slices.ContainsFunc(v.Participants, isHeuristic)
}

// heuristic: the last transaction is torn, or an earlier one is, whose abort a
// cluster was still to be told when the next one was decided.
func heuristic(v *txnlog.GlobalTransaction) bool {
	return tornLast(v) || slices.ContainsFunc(v.Leftovers, isHeuristic)
}

// Torn reports whether a record says that a transaction of the id is torn, so
// that the id stands still until an operator has looked.
func Torn(v *txnlog.GlobalTransaction) bool { return v != nil && heuristic(v) }

// outcomeLost: the only participant has ended, and nobody can tell how. Its own
// answer was the outcome (R5), so the outcome is not known and never will be;
// but there is nothing that it could be torn from, and the id goes on. It comes
// about with nobody from outside, when a late copy of a one-phase request meets
// a coordinator that does not know of the end: the record was lost with its
// predecessor, and the client has gone on. (One that a scan has found may be a
// part of something larger, and counts as torn.)
func outcomeLost(v *txnlog.GlobalTransaction) bool {
	return len(v.Participants) == 1 && v.Participants[0].State == txnlog.ParticipantHeuristicUnknown && v.Participants[0].AuditTopic == ""
}

// tornAgain: an only participant whose abort was told shows that it has committed
// after all (tellAbortAgain).
func tornAgain(v *txnlog.GlobalTransaction) bool {
	return slices.ContainsFunc(v.Leftovers, func(l txnlog.Participant) bool {
		return isHeuristic(l) && slices.ContainsFunc(v.Participants, func(p txnlog.Participant) bool {
			return refOf(p) == refOf(l) && !below5(l)
		})
	})
}

// knownTorn: it is known that the participant has ended against its decision.
func knownTorn(p txnlog.Participant) bool {
	return p.State == txnlog.ParticipantHeuristicCommit || p.State == txnlog.ParticipantHeuristicAbort
}

func isPending(p txnlog.Participant) bool { return p.State == txnlog.ParticipantPending }

func isHeuristic(p txnlog.Participant) bool { return p.State.Heuristic() }

// named: a session or the record of the id names the cluster. What is open under
// the same name on any other is nobody's business: an ordinary transactional id,
// or another coordinator's.
func named(v *txnlog.GlobalTransaction, clusterID string) bool {
	there := func(p txnlog.Participant) bool { return p.ClusterID == clusterID }
	return slices.Contains(v.ClusterIDs, clusterID) || slices.Contains(v.FormerClusterIDs, clusterID) ||
		slices.ContainsFunc(v.Participants, there) || slices.ContainsFunc(v.Leftovers, there)
}

// decidedAbout is the participant of the last decision that is the open
// transaction, nil when the decision names another or none. Producer id and epoch
// alone do not tell: below EndTxn v5 the client's next transaction has the same,
// and so may one of a later session on a cluster that has gone back in time and
// hands out its epochs once more. The start tells, where it is known. Where it is
// not, because nobody looked before the end, it is the one if it cannot be another:
// with v5, and of a commit when no client has been let in to initialise a producer
// since. (To abort another one too early harms nobody.)
func decidedAbout(v *txnlog.GlobalTransaction, o open) *txnlog.Participant {
	for i := range v.Participants {
		p := &v.Participants[i]
		byName := refOf(*p) == o.ref() && p.AuditTopic == "" && !below5(*p) && nextOf(*p) != o.ref()
		if sameStart(*p, o) || byName && (!committed(v) || p.NextProducerID >= 0) {
			return p
		}
	}
	return nil
}

// sameStart: the recorded participant is the open transaction, for certain.
func sameStart(p txnlog.Participant, o open) bool {
	return refOf(p) == o.ref() && p.AuditTopic != "" && p.StartMillis == o.txn.StartMillis
}

func refOf(p txnlog.Participant) ParticipantRef {
	return ParticipantRef{ClusterID: p.ClusterID, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch}
}

// nextOf is what the client goes on with.
func nextOf(p txnlog.Participant) ParticipantRef {
	return ParticipantRef{ClusterID: p.ClusterID, ProducerID: p.NextProducerID, ProducerEpoch: p.NextProducerEpoch}
}

// below5 reports that the participant may be ended with an EndTxn that keeps
// the producer epoch. An unknown version counts as one.
func below5(p txnlog.Participant) bool { return p.EndTxnVersion < 5 }
