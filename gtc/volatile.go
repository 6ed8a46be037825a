package gtc

import (
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// volatile is what the coordinator knows of an id and does not log: losing it
// costs a repeated question, never an answer.
type volatile struct {
	check   *check   // InitGlobalTxn under way
	ending  *ending  // EndGlobalTxn under way and not decided
	waiters []waiter // requests about the transaction that is ending or was decided last
	drives  []drive  // participants being told to end
	open    []open   // what the recovery scan saw open
}

// check is an InitGlobalTxn whose participants are being asked.
type check struct {
	attempt  uint64
	request  InitRequest
	requests []RequestID // with the repeats of it
}

// ending is an EndGlobalTxn that has asked for commit and is not decided: votes
// are being taken, or the only participant is being told (one-phase).
type ending struct {
	epoch    int32
	sequence int64
	refs     []ParticipantRef
	onePhase bool
	votesBy  int64 // monotonic; no votes by then is a refusal
}

// waiter is a request to be answered when its transaction is complete, or at
// its deadline with what is known then.
type waiter struct {
	request  RequestID
	deadline int64
}

// drive is one participant transaction that is being ended.
type drive struct {
	ref      ParticipantRef
	leftover bool
	inFlight bool  // an EndTxn is under way; at most one
	fenced   bool  // see EndTxn
	attempts int64 // that ended in EndRetry
	nextTry  int64
	// uncertain: an earlier EndTxn may still arrive. Below EndTxn v5 it
	// would end whatever is open under the same epoch then, so the client
	// must not go on under it.
	uncertain bool
	since     int64
	detail    string
}

// open is a participant transaction that a scan saw open.
type open struct {
	clusterID string
	txn       OpenTransaction
	firstSeen int64 // monotonic
}

func (o open) ref() ParticipantRef {
	return ParticipantRef{ClusterID: o.clusterID, ProducerID: o.txn.ProducerID, ProducerEpoch: o.txn.ProducerEpoch}
}

func (o open) participant() txnlog.Participant {
	return txnlog.Participant{
		ClusterID: o.clusterID, ProducerID: o.txn.ProducerID, ProducerEpoch: o.txn.ProducerEpoch,
		EndTxnVersion:  o.txn.EndTxnVersion,
		NextProducerID: -1, NextProducerEpoch: -1,
		AuditTopic: o.txn.AuditTopic, AuditPartition: o.txn.AuditPartition, StartMillis: o.txn.StartMillis,
	}
}

func (v *volatile) clone() *volatile {
	if v == nil {
		return &volatile{}
	}
	c := *v
	if v.check != nil {
		k := *v.check
		k.requests = slices.Clone(k.requests)
		c.check = &k
	}
	if v.ending != nil {
		e := *v.ending
		c.ending = &e
	}
	c.waiters, c.drives, c.open = slices.Clone(v.waiters), slices.Clone(v.drives), slices.Clone(v.open)
	return &c
}

func (v *volatile) idle() bool {
	return v.check == nil && v.ending == nil && len(v.waiters) == 0 && len(v.drives) == 0 && len(v.open) == 0
}

// deadline is the first time at which something is due without an event.
func (v *volatile) deadline(value *txnlog.GlobalTransaction) (int64, bool) {
	if v == nil {
		return 0, false
	}
	var at int64
	found := false
	take := func(t int64) {
		if !found || t < at {
			at, found = t, true
		}
	}
	for _, w := range v.waiters {
		take(w.deadline)
	}
	for _, d := range v.drives {
		if !d.inFlight {
			take(d.nextTry)
		}
	}
	if v.ending != nil && !v.ending.onePhase {
		take(v.ending.votesBy)
	}
	if value != nil && (v.ending == nil || v.ending.onePhase) {
		for _, o := range v.open {
			if !v.driving(o.ref(), false) && !v.driving(o.ref(), true) {
				take(o.firstSeen + int64(value.TimeoutMillis))
			}
		}
	}
	return at, found
}

func (v *volatile) driving(ref ParticipantRef, leftover bool) bool {
	return slices.ContainsFunc(v.drives, func(d drive) bool { return d.ref == ref && d.leftover == leftover })
}

// busy: a decision is made and not every participant has acknowledged it.
func busy(v *txnlog.GlobalTransaction) bool {
	return v.State == txnlog.StatePrepareCommit || v.State == txnlog.StatePrepareAbort
}

func decided(v *txnlog.GlobalTransaction) bool { return v.State != txnlog.StateEmpty }

// committed reports the last decision.
func committed(v *txnlog.GlobalTransaction) bool {
	return v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit
}

// heuristic: the last transaction is torn. A participant of it ended against its
// decision, or nobody can tell, and no operator has forgotten it.
func heuristic(v *txnlog.GlobalTransaction) bool {
	return !outcomeLost(v) && slices.ContainsFunc(v.Participants, func(p txnlog.Participant) bool { return p.State.Heuristic() })
}

// Torn reports whether a record says that the id's last transaction is torn, so
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

func isPending(p txnlog.Participant) bool { return p.State == txnlog.ParticipantPending }

func refOf(p txnlog.Participant) ParticipantRef {
	return ParticipantRef{ClusterID: p.ClusterID, ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch}
}

// below5 reports that the participant may be ended with an EndTxn that keeps
// the producer epoch. An unknown version counts as one.
func below5(p txnlog.Participant) bool { return p.EndTxnVersion < 5 }

// setVolatile, setEnded, setScanned, setSweep and setStarted are the changes
// that are not logged.
type setVolatile struct {
	id       string
	volatile *volatile
}

type setScanned struct {
	clusterID string
	at        int64
}

type setEnded struct {
	id string
	ended
}

type setSweep struct{ at int64 }

type setStarted struct{ at Time }

func (setStarted) change()  {}
func (setVolatile) change() {}
func (setEnded) change()    {}
func (setScanned) change()  {}
func (setSweep) change()    {}
