package verdict

import "github.com/kafka-gtc/kafka-gtc/txnlog"

// finding is what is known of one participant transaction.
type finding int8

const (
	// movedOn: the cluster has gone on since, and its state no longer tells
	// how this transaction ended.
	movedOn finding = iota
	// stillOpen: it is open and can be ended.
	stillOpen
	// ending: its end is decided and its markers are being written.
	ending
	// neverBegun: nothing was written under this producer id and epoch, and
	// nothing can be: there is no outcome to differ from.
	neverBegun
	committed
	aborted
)

// seenOpen reports whether the record says where and since when the transaction
// was open: it was voted on or found by a scan.
func seenOpen(p txnlog.Participant) bool { return p.AuditTopic != "" }

// outcome is what the state of the transaction coordinator proves about one
// participant transaction that is to be ended with the given version.
//
// What names a transaction? Under version 5 its producer epoch: every end moves
// the epoch by one, so Prepare* and Complete* at E+1 are about E, and at E
// about E-1, which means that E was never used. (An application that ends
// transactions with v4 on such a cluster breaks this; no client library of a
// cluster at transaction.version 2 does.) When a timeout or a re-init fences E,
// the abort is also shown at E+1 (measured on 4.4.0), but a further re-init
// makes it Empty.
//
// Under version 4 the epoch stays for many transactions, and the abort of a
// fence is shown at E+1, where a later transaction of the next session can be
// as well. There the start time names the transaction: it is set when the first
// partition is added, kept to the end, and two transactions of one id do not
// begin in the same millisecond, because between them lie a vote, a decision
// and two appends. Empty proves nothing there: 3.9.1 keeps the start time of
// the last transaction when the id is initialised again (measured).
//
// sole says that p is the only participant, whose own answer is the outcome
// (R5): it is ended without a look before, so its start is not known.
func (v View) outcome(p txnlog.Participant, version int16, sole bool) finding {
	sameProducer := v.ProducerID == p.ProducerID && v.ProducerEpoch == p.ProducerEpoch
	sameStart := !seenOpen(p) || v.StartMillis == p.StartMillis
	switch v.State {
	case Unknown: // expired; what it was before is not known here
		return movedOn
	case Ongoing:
		if sameProducer && sameStart {
			return stillOpen
		}
		return movedOn
	case Empty:
		// Empty comes from InitProducerId alone. Where the transaction was
		// seen open, Empty at the same epoch cannot be, except when the
		// cluster lost its transaction log.
		if sameProducer && !seenOpen(p) {
			return neverBegun
		}
		return movedOn
	case PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort:
		if version >= EndTxnBumps && sameProducer {
			if seenOpen(p) {
				return movedOn // as with Empty
			}
			return neverBegun
		}
		if !sameStart || !v.endOf(p, version, sole) {
			return movedOn
		}
		return v.ended(p, version, sole)
	}
	return movedOn
}

// ended reads the state of a transaction that has ended, or is about to.
func (v View) ended(p txnlog.Participant, version int16, sole bool) finding {
	switch {
	case v.State == CompleteAbort:
		return aborted
	case v.State != CompleteCommit:
		return ending
	case version < EndTxnBumps && !seenOpen(p) && !sole:
		// It may be the commit of the transaction before, and p was never
		// begun. Counter-example: commit 1; vote on 2 refused because nothing
		// was written; the abort of 2 must not report 1 as "committed". An
		// only participant is committed without a look, and whoever asks to
		// end it has written to it: there this is its own commit, by a
		// coordinator that died before it could tell.
		return movedOn
	default:
		return committed
	}
}

// endOf reports whether the producer id and epoch of an ended transaction are
// those that p can have got by its end.
func (v View) endOf(p txnlog.Participant, version int16, sole bool) bool {
	same, next := v.ProducerEpoch == p.ProducerEpoch, v.ProducerEpoch == p.ProducerEpoch+1
	switch {
	case v.ProducerID != p.ProducerID:
		// The end of epoch 32766 hands out a new producer id. Only the start
		// time ties the two together, or that nothing can have come between.
		return version >= EndTxnBumps && p.ProducerEpoch == LastEpoch && v.ProducerEpoch == 0 && (seenOpen(p) || sole)
	case version >= EndTxnBumps:
		return next
	default:
		// At E+1 only the start time tells the abort of a fence from a
		// transaction of the session after it, an only participant's too.
		// Counter-example (found by the simulator): a superseded coordinator
		// asks again about its one-phase commit, which was executed; a new
		// session has initialised, written and aborted at E+1 meanwhile, and
		// the client of the committed transaction is told "aborted".
		return same || next && seenOpen(p)
	}
}
