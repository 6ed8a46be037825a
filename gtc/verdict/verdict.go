// Package verdict says what the answers of a participant cluster prove about one
// participant transaction. It asks nobody: gtc/participant asks real clusters,
// gtc/sim a model of them, and both do what this package says, so that what is
// searched is what runs.
//
//	Vote     may it be committed?              (before the decision)
//	Ending   what to ask next to end it as decided, and what came of it
//	Answers  what each answer to EndTxn proves
//	Markers  what the control markers of a partition prove
//
// What does not prove anything is never an outcome: it is gtc.EndRetry, or
// gtc.EndUnknown when it will never be known.
package verdict

import (
	"fmt"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// Unlimited is the transaction timeout that both ways to opt in store, and the
// only one that never ends a prepared transaction: 2,147,483,647 ms. (Brokers
// that do not know KIP-939, seen in 3.9.1 and 4.0.0, end it after these 24.8
// days, TransactionStateManager.timedOutTransactions; there is no longer one.)
const Unlimited = 1<<31 - 1

// LastEpoch is the last producer epoch that Kafka hands out under one producer
// id; 32767 only ever fences.
const LastEpoch = 32766

// State is a state of Kafka's TransactionState, by Kafka's name, or Unknown.
type State string

// The states that matter here. PrepareEpochFence is never stored, and a Dead id
// is answered as not found.
const (
	Unknown        State = "" // the cluster does not know the transactional id
	Empty          State = "Empty"
	Ongoing        State = "Ongoing"
	PrepareCommit  State = "PrepareCommit"
	PrepareAbort   State = "PrepareAbort"
	CompleteCommit State = "CompleteCommit"
	CompleteAbort  State = "CompleteAbort"
)

// View is what a transaction coordinator says about one transactional id
// (DescribeTransactions). It may be old: a broker that has lost the id and does
// not know yet answers as of before.
type View struct {
	State         State
	ProducerID    int64
	ProducerEpoch int16
	TimeoutMillis int32
	// StartMillis is when the transaction began, on the clock of the
	// transaction coordinator; -1 before the first. 3.9.1 leaves the value of
	// the last transaction there when the id is initialised anew (Empty).
	StartMillis int64
	// AuditTopic and AuditPartition are a partition that the transaction
	// writes to, in which its outcome can be audited; the topic is empty when
	// none is shown.
	AuditTopic     string
	AuditPartition int32
}

func (v View) String() string {
	if v.State == Unknown {
		return "no such transactional id"
	}
	return fmt.Sprintf("%s at producer id %d, epoch %d", v.State, v.ProducerID, v.ProducerEpoch)
}

// Vote is what a look at one participant transaction means before the decision.
// Version is the EndTxn version that the cluster's transaction.version calls for.
//
// Only an open transaction can be committed. A listed participant has been written
// to (C-CLI-2), so a cluster that shows nothing open has lost or ended what was
// there, or its answer is old. Counter-example to "nothing was written, so either
// decision is right for it": a transaction coordinator of B that was deposed while
// it slept answers Complete*, the state before; A is committed, B is called
// complete, and B's records join the next transaction.
func Vote(v View, ref gtc.ParticipantRef, version int16) gtc.Vote {
	refused := func(format string, args ...any) gtc.Vote {
		return gtc.Vote{Code: gtc.VoteRefused, Detail: fmt.Sprintf(format, args...)}
	}
	same := v.ProducerID == ref.ProducerID && v.ProducerEpoch == ref.ProducerEpoch
	switch v.State {
	case Ongoing:
		switch {
		case !same:
			return refused("fenced: another transaction is open (%v)", v)
		case v.TimeoutMillis != Unlimited:
			return refused("its transaction timeout is %d ms, so the cluster may abort it by itself; the producer must ask for %d", v.TimeoutMillis, Unlimited)
		case v.AuditTopic == "":
			return refused("it is open and has no partitions")
		}
		return gtc.Vote{
			Code: gtc.VotePrepared, EndTxnVersion: version,
			AuditTopic: v.AuditTopic, AuditPartition: v.AuditPartition, StartMillis: v.StartMillis,
		}
	case Empty:
		if !same {
			return refused("fenced: the producer was initialised again (%v)", v)
		}
		return refused("nothing was written (%v); leave out a participant that was not written to", v)
	case PrepareCommit, PrepareAbort, CompleteCommit, CompleteAbort:
		if !same {
			return refused("it has ended (%v)", v)
		}
		return refused("it has ended, or nothing was written (%v); leave out a participant that was not written to", v)
	case Unknown:
		return refused("the cluster does not know the transactional id")
	default:
		return refused("it is in a state unknown to this coordinator (%v)", v)
	}
}
