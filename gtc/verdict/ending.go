package verdict

import (
	"errors"
	"fmt"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// An Attempt is what one process knows of the ends that it sent for one
// participant transaction. It is kept by the producer id and epoch, which below
// EndTxn v5 name many transactions: what it knows is about the one that began at
// Start, but for Uncertain, because a copy reaches whatever is open when it arrives.
type Attempt struct {
	// Start is when the transaction began (View.StartMillis), 0 when that is not
	// known.
	Start int64
	// By is the broker that showed it open.
	By int32
	// Sent: one was sent before.
	Sent bool
	// Uncertain: a copy may still reach the cluster, because a connection
	// broke or a deadline passed after it was written, or because this
	// process did not vote on the transaction itself, so that another may
	// have sent one before it died.
	Uncertain bool
	Misses    int // audits that found no marker
	// Took: this process has taken the transaction over, and Taken ends it. To
	// lose that is safe: it is taken again.
	Took  bool
	Taken Pair
}

// A Pair is a producer id and epoch.
type Pair struct {
	ProducerID    int64
	ProducerEpoch int16
}

// Voted is the attempt of a process that was shown the transaction open that began at
// start, by a broker: no end of it was sent before, because the decision comes after
// the vote.
func Voted(start int64, by int32) Attempt { return Attempt{Start: start, By: by} }

// Voted is the attempt after such a vote, where there was one before: an end that it
// sent may still be under way.
func (a Attempt) Voted(start int64, by int32) Attempt {
	return Attempt{Start: start, By: by, Uncertain: a.Sent && a.Uncertain}
}

// Unvoted is the attempt of a process that did not see it.
func Unvoted() Attempt { return Attempt{Uncertain: true} }

// Ask is what has to be done next to end a participant transaction.
type Ask int8

// What can be asked of a cluster. Whatever cannot be done is reported with Failed
// or, of an EndTxn, with Lost.
const (
	// AskNothing: Answer has the result.
	AskNothing Ask = iota
	// AskBroker: find the transaction coordinator and the versions that it
	// knows; report Connected.
	AskBroker
	// AskBrokerAnew: the same over connections of its own, and after a new
	// FindCoordinator. What follows is asked over these.
	AskBrokerAnew
	// AskState: DescribeTransactions; report Seen.
	AskState
	// AskEnd: EndTxn in Version, by Pair; report Answered.
	AskEnd
	// AskPair: InitProducerId version 6 with Enable2Pc and KeepPreparedTxn;
	// report Kept.
	AskPair
	// AskMarkers: read the audit partition; report Audited.
	AskMarkers
)

// AuditTries is how often an audit must find nothing before that is believed. A
// new leader learns within replica.fetch.wait.max.ms (500 ms) up to where its log
// is safe to read; with the coordinator's back-off (20 ms, doubled) three tries
// would be over after 60 ms, seven are after more than a second.
const AuditTries = 7

// An Ending is one try to end one participant transaction. It says what to ask
// (Next), is told what came of it, and has the answer in the end. What has to be
// remembered from one try to the next is in the Attempt.
//
// An answer that needs proof is asked for twice: a deposed transaction coordinator
// answers from its cache of before until it learns. Only what is answered after a
// new look-up, over connections that the old answer cannot have come from, is
// believed.
type Ending struct {
	order   gtc.EndTxn
	attempt *Attempt
	next    Ask
	version int16 // chosen by the first broker when the record names none
	keeps   bool  // the broker offers KeepPreparedTxn
	anew    bool  // asked over connections of its own
	refused bool  // twice
	fenced  bool  // that is how
	asked   bool  // for a pair
	why     string
	seen    View
	answer  gtc.EndAnswer
}

// NewEnding begins to carry an order out. An attempt about another transaction of
// the same producer id and epoch says nothing about this one. Counter-example: the
// commit of the one that began at 100 was lost with the log of its cluster, so it is
// told again; this process has voted on the one of 200, and EndTxn v4 would commit
// that without a look.
func NewEnding(order gtc.EndTxn, attempt *Attempt) *Ending {
	if start := order.Participant.StartMillis; attempt.Start != start {
		*attempt = Attempt{Start: start, Uncertain: true}
	}
	return &Ending{order: order, attempt: attempt, next: AskBroker, version: order.Participant.EndTxnVersion}
}

// Next is what to ask.
func (e *Ending) Next() Ask { return e.next }

// Anew reports that what is asked goes over connections of its own.
func (e *Ending) Anew() bool { return e.anew }

// Version is the version of EndTxn, 0 while it is not known.
func (e *Ending) Version() int16 { return e.version }

// Pair is the producer id and epoch that EndTxn names: those of the transaction, or
// those by which it has been taken over.
func (e *Ending) Pair() Pair {
	if e.attempt.Took {
		return e.attempt.Taken
	}
	return e.pair()
}

func (e *Ending) pair() Pair {
	return Pair{e.order.Participant.ProducerID, e.order.Participant.ProducerEpoch}
}

// Answer is the result when there is nothing to be asked any more.
func (e *Ending) Answer() gtc.EndAnswer { return e.answer }

// Failed says that what Next asks for could not be done.
func (e *Ending) Failed(err error) {
	if e.why != "" {
		err = fmt.Errorf("%s; %w", e.why, err)
	}
	e.again("%v", err)
}

// Connected says that the transaction coordinator is the broker given and knows EndTxn
// up to version most, its cluster's transaction.version calls for the version given, and
// keeps says that it offers KeepPreparedTxn (InitProducerId version 6).
func (e *Ending) Connected(broker int32, version, most int16, keeps bool) {
	e.keeps = keeps
	if e.version == 0 {
		e.version = version
	}
	switch {
	case most < e.version:
		e.again("the broker knows EndTxn up to version %d, and version %d is needed", most, e.version)
	case e.version < EndTxnBumps && e.order.OnePhase && e.order.Commit && !e.order.Fenced:
		e.conclude(gtc.EndUnfenced, "EndTxn v%d does not name a single transaction", e.version)
	case e.version < EndTxnBumps && (e.attempt.Sent || e.attempt.Uncertain || e.attempt.By != broker):
		// An earlier end may have taken effect, and the producer may have
		// begun its next transaction under the same epoch: EndTxn v4 would
		// end that one (measured). Case: the record that says "complete" was
		// lost with the coordinator while the next transaction is open.
		//
		// Another broker than the one that showed it open may be deposed and not
		// know it: it has the commit of the transaction before in its cache, and
		// answers NONE to EndTxn v4(commit) without an append
		// (TransactionCoordinator.endTransaction). This one would be called
		// complete, and stay open. (Found by the simulator.)
		e.next = AskState
	default:
		e.next = AskEnd
	}
}

// Seen says what the transaction coordinator shows. Before an EndTxn it makes sure that
// what is open is the transaction decided about; after a refusal it tells what the
// refusal means.
func (e *Ending) Seen(v View) {
	e.seen = v
	found := v.outcome(e.order.Participant, e.version, e.order.OnePhase)
	switch found {
	case stillOpen:
		if !e.refused {
			e.next = AskEnd
			return
		}
		e.takeOver()
	case ending:
		e.again("its end is being carried out (%v)", v)
	case committed, aborted: // final, so true even from a stale cache
		// But of which? Below EndTxn v5 only the start time names it. Counter-example:
		// the commit of 1 is at (P, E); that of 2 is lost and was not carried out; the
		// broker at the other end of the connection was deposed between them, shows 1
		// complete, and 2 is told committed while it is open.
		if e.version < EndTxnBumps && !seenOpen(e.order.Participant) && !e.anew {
			e.doubt("it may be the one before (%v)", v)
			return
		}
		e.ended(found == committed, v.String())
		e.goesOnFrom(v)
	case neverBegun, movedOn:
		switch {
		case !e.refused:
			e.doubt("not open (%v)", v)
		case found == neverBegun && e.order.OnePhase:
			// Its own answer would be the outcome (R5), and this is none: it has been
			// written to (C-CLI-2), so either the broker answers from before that, or
			// the cluster has forgotten what was there. And where an end is
			// synchronous, as on kfake, Empty at the same epoch is also what EndTxn v4
			// leaves behind a commit. Counter-example to "nothing was written": its
			// commit is executed and the answer lost, abort is asked for, a deposed
			// transaction coordinator shows the state before, and "aborted" is told
			// over records that readers see.
			e.conclude(gtc.EndUnknown, "the only participant shows nothing written (%v), which proves neither", v)
		case found == neverBegun:
			// The client goes on under an epoch of its own: the broker may answer from
			// before, and the transaction be open under this one. (Found by the
			// simulator: the next transaction wrote into it.)
			e.conclude(gtc.EndDone, "nothing was written (%v)", v)
		default:
			e.moved()
		}
	}
}

// takeOver is about a transaction that is open under its producer id and epoch and
// cannot be ended by them. Somebody has initialised the producer with
// KeepPreparedTxn (KIP-939), by which the transaction stays, and only the pair that he
// was given ends it; a further InitProducerId with KeepPreparedTxn gives one that
// replaces his. Or the broker is stale in one of its two answers.
//
// It is asked for only when the transaction is seen open. Counter-example to asking
// after every PRODUCER_FENCED: the participant has ended long ago, its answer was
// lost, and the client is writing its next transaction, whose producer would be
// fenced in the middle.
func (e *Ending) takeOver() {
	if e.keeps && e.fenced && !e.asked && e.version >= EndTxnBumps {
		e.next = AskPair
		return
	}
	e.again("contradictory: refused, and yet open (%v)", e.seen)
}

// Kept says that InitProducerId was answered with the code, the pair to go on with, and the
// pair of the transaction that is open, whose producer id is -1 when none is. It is
// ended only if it is the one decided about. (It may have gone on between the look
// and this; the next one's client then finds its producer fenced, takes its
// transaction over itself, and begins again.)
func (e *Ending) Kept(code int16, pair, open Pair) {
	e.anew, e.asked = true, true // so it was asked for, and once in a try
	name, v := answerTo(code, e.version, e.order.Commit)
	switch {
	case code == 0 && open == e.pair():
		e.attempt.Took, e.attempt.Taken = true, pair
		e.next = AskEnd
	case code == 0:
		e.again("taken over when another transaction, or none, was open (producer id %d, epoch %d)", open.ProducerID, open.ProducerEpoch)
	case code == codeUnsupportedVersion: // Kafka 4.1 to 4.4, without effect (measured)
		e.again("refused, and yet open (%v); the broker does not keep prepared transactions", e.seen)
	case v == Alarm:
		e.again("operator: cluster %s refuses InitProducerId (Enable2Pc, KeepPreparedTxn) of transactional id %s, by which its transaction is taken over: %s",
			e.order.Participant.ClusterID, plain.Quote(e.order.ID), name)
	default:
		e.again("taking it over, InitProducerId: %s", name)
	}
}

// doubt asks once more over fresh connections, and then for the state.
func (e *Ending) doubt(format string, args ...any) {
	e.why = fmt.Sprintf(format, args...)
	if !e.anew {
		e.anew, e.next = true, AskBrokerAnew
		return
	}
	e.refused, e.next = true, AskState
}

// Lost says that EndTxn was sent, or could not be, and has no answer. mayHaveLeft says that a
// copy may still arrive.
func (e *Ending) Lost(err error, mayHaveLeft bool) {
	e.attempt.Sent = true
	e.attempt.Uncertain = e.attempt.Uncertain || mayHaveLeft
	e.Failed(err)
	e.answer.Uncertain = mayHaveLeft
}

// Answered says that EndTxn was answered with the code, and with the producer id and epoch to
// go on with where the version has them.
func (e *Ending) Answered(code int16, producerID int64, epoch int16) {
	e.attempt.Sent = true
	name, v := answerTo(code, e.version, e.order.Commit)
	switch v {
	case Done:
		e.conclude(gtc.EndDone, "")
		e.goesOn(producerID, epoch)
	case Prove:
		e.fenced = code != codeInvalidTxnState
		e.doubt("EndTxn: %s", name)
	case Alarm:
		e.again("operator: cluster %s refuses EndTxn of transactional id %s: %s", e.order.Participant.ClusterID, plain.Quote(e.order.ID), name)
	case Retry:
		e.again("EndTxn: %s", name)
	}
}

// moved settles what the state no longer tells.
func (e *Ending) moved() {
	p := e.order.Participant
	switch {
	case seenOpen(p):
		e.next = AskMarkers
	case !e.order.Commit && !e.order.OnePhase:
		// Abort of what was never seen open, one of several. Nobody who keeps
		// to the protocol has sent its commit, and there is nothing to look at.
		// (Not of an only participant, whose commit needs no record. That the
		// cluster does not know its id proves nothing either: the id of what was
		// committed before an outage may have expired in it,
		// transactional.id.expiration.ms.)
		e.conclude(gtc.EndDone, "not there any more, and never seen open (%v)", e.seen)
	default:
		e.conclude(gtc.EndUnknown, "%v; it was never seen open, so no control marker can tell", e.seen)
	}
}

// Audited says that the control markers tell that it was committed or aborted, or nothing
// (ErrNoMarker), or they could not be read (any other error).
func (e *Ending) Audited(commit bool, err error) {
	p := e.order.Participant
	where := fmt.Sprintf("audit of %s-%d", p.AuditTopic, p.AuditPartition)
	switch {
	case err == nil:
		e.ended(commit, where)
		return
	case !errors.Is(err, ErrNoMarker):
		e.again("%v; %s: %v", e.seen, where, err)
		return
	}
	// A new leader may not know yet up to where its log is safe to read, and
	// new topics are not known everywhere: not found once is not found.
	if e.attempt.Misses++; e.attempt.Misses < AuditTries {
		e.again("%v; %s: %v; trying again", e.seen, where, err)
		return
	}
	e.conclude(gtc.EndUnknown, "%v; %s: %v", e.seen, where, err)
}

// ended compares how it ended with what was asked.
func (e *Ending) ended(commit bool, how string) {
	switch {
	case commit == e.order.Commit:
		e.conclude(gtc.EndDone, "")
	case commit:
		e.conclude(gtc.EndCommitted, "committed although abort was decided: %s", how)
	default:
		e.conclude(gtc.EndAborted, "aborted although commit was decided: %s", how)
	}
}

func (e *Ending) again(format string, args ...any) { e.conclude(gtc.EndRetry, format, args...) }

func (e *Ending) conclude(outcome gtc.EndOutcome, format string, args ...any) {
	e.next = AskNothing
	e.answer = gtc.EndAnswer{
		Outcome: outcome, NextProducerID: -1, NextProducerEpoch: -1,
		EndTxnVersion: e.version, Detail: fmt.Sprintf(format, args...),
	}
}

// goesOnFrom: the client goes on from what the state shows. Below version 5 the
// abort of a fence is at an epoch that is not the client's.
func (e *Ending) goesOnFrom(v View) {
	if e.version >= EndTxnBumps || v.ProducerEpoch == e.order.Participant.ProducerEpoch {
		e.goesOn(v.ProducerID, v.ProducerEpoch)
	}
}

// goesOn says what the client goes on with after an end that left the cluster at
// the producer id and epoch given.
func (e *Ending) goesOn(producerID int64, epoch int16) {
	switch p := e.order.Participant; {
	case e.version < EndTxnBumps && e.attempt.Uncertain:
		// The epoch stays, so a copy of the request that is still on its way
		// would end the client's next transaction (measured). An epoch of its
		// own makes the copy harmless.
	case e.version < EndTxnBumps:
		e.answer.NextProducerID, e.answer.NextProducerEpoch = p.ProducerID, p.ProducerEpoch
	case producerID < 0 || epoch < 0 || epoch > LastEpoch:
	default:
		e.answer.NextProducerID, e.answer.NextProducerEpoch = producerID, epoch
	}
}
