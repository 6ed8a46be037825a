package gtc

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// endRequest handles EndGlobalTxn. Its parts are, in order: the transaction
// that was decided last (a repeat), what comes after its session was ended,
// refusals, the transaction whose votes are being taken (a repeat, or an abort
// that overtakes it), and a new one, of clusters of the session only.
func (s *step) endRequest(r EndRequest) {
	if msg := validateRefs(r.Participants); msg != "" {
		s.refuse(r.Request, CodeInvalidRequest, msg)
		return
	}
	w := s.load(r.ID)
	if w.value == nil {
		s.refuse(r.Request, CodeUnknownID, "the global transactional id is unknown here: it was never initialised, or has expired; what became of its transactions is not remembered")
		return
	}
	defer w.store()
	if w.repeatOfDecided(r) || w.ofEndedSession(r) {
		return
	}
	if code, msg := w.closedForEnd(r); code != CodeNone {
		s.refuse(r.Request, code, msg)
		return
	}
	if w.volatile.ending != nil {
		w.repeatOfEnding(r)
		return
	}
	// After the refusals for the sake of what is under way (C-WIRE-4).
	if msg := w.notOfSession(r.Participants); msg != "" {
		s.refuse(r.Request, CodeUnknownParticipant, msg)
		return
	}
	if len(r.Participants) == 1 && w.decidedAbort(r.Participants[0]) && !w.toldAgainBelow5(r.Participants[0]) {
		// A client that goes on under a name that it was not given. Alone it would be
		// an only participant, whose own answer is the outcome (R5), and it is a part
		// of what was aborted.
		s.refuse(r.Request, CodeFenced, "the abort of this participant is decided already; initialise again")
		return
	}
	w.wait(r)
	w.begin(r)
}

func validateRefs(refs []ParticipantRef) string {
	if len(refs) == 0 {
		return "no participant is listed; a transaction that touched no cluster needs no request"
	}
	for i, p := range refs {
		same := func(o ParticipantRef) bool { return o.ClusterID == p.ClusterID }
		switch {
		case slices.ContainsFunc(refs[:i], same):
			return fmt.Sprintf("cluster %s is listed twice", plain.Name(p.ClusterID))
		case p.ProducerID < 0 || p.ProducerEpoch < 0:
			return fmt.Sprintf("cluster %s: producer id %d and epoch %d name no transaction", plain.Name(p.ClusterID), p.ProducerID, p.ProducerEpoch)
		}
	}
	return ""
}

// repeatOfDecided answers a request about the transaction that was decided
// last, also when its session has been fenced since: the answer is known, and
// the producer ids and epochs in the list prove who asks.
func (w *work) repeatOfDecided(r EndRequest) bool {
	v := w.value
	switch {
	case !decided(v) || r.Sequence != v.Sequence || !sameRefs(v.Participants, r.Participants):
		return false
	case mayBeAnother(v):
		w.s.refuse(r.Request, CodeFenced, "the transaction, or the one before it, was ended by its session's timeout; initialise again")
	case busy(v):
		w.wait(r)
	default:
		w.s.reply(r.Request, w.answer(r.Sequence))
	}
	return true
}

// ofEndedSession answers a request of a session that the coordinator has ended.
// The scan has seen none of the participants that the client names, or some of
// them. No decision to commit can follow, because the session is over; so what
// is named is aborted under the number that it has, and the client hears when
// that is complete. (Answered "aborted" without a record, it would be pending
// for ever to a client that waits for completion.) Beside a decision that is
// pending, or torn, that has to wait until it is asked again.
//
// A single participant needs no decision of ours: an earlier coordinator may
// have committed it in one phase, so of it nothing is said.
func (w *work) ofEndedSession(r EndRequest) bool {
	v := w.value
	if r.GlobalEpoch != v.GlobalEpoch || !v.SessionEnded || r.Sequence < v.Sequence || w.volatile.ending != nil {
		return false
	}
	if len(r.Participants) == 1 || r.Sequence == v.Sequence && committed(v) {
		w.s.refuse(r.Request, CodeFenced, "the session ended by its timeout; initialise again")
		return true
	}
	if msg := w.notOfSession(r.Participants); msg != "" {
		w.s.refuse(r.Request, CodeUnknownParticipant, msg)
		return true
	}
	if msg := w.tooFarAhead(r.Sequence); msg != "" {
		w.s.refuse(r.Request, CodeInvalidRequest, msg)
		return true
	}
	ps := participantsOf(r.Participants)
	w.takeOver(ps)
	resp := Response{Outcome: OutcomeAborted, Message: "the session ended by its timeout", Participants: ps}
	switch {
	case slices.ContainsFunc(ps, isHeuristic):
		resp.Code, resp.Message = CodeHeuristicOutcome, heuristicMessage(v)
		w.s.reply(r.Request, resp)
	case heuristic(v):
		resp.Message = heuristicMessage(v)
		w.s.reply(r.Request, resp)
	case holds(v), busy(v) && r.Sequence == v.Sequence, !slices.ContainsFunc(ps, isPending):
		w.s.reply(r.Request, resp)
	default:
		w.wait(r)
		w.volatile.ending = &ending{epoch: v.GlobalEpoch, sequence: r.Sequence, refs: r.Participants}
		w.forgetEarlier(r.Participants)
		w.decide(txnlog.StatePrepareAbort, ps, resp.Message)
		w.driveAll(false)
	}
	return true
}

// takeOver notes how participants stand that the last decision names too. Below
// EndTxn v5 the same name may be that of the transaction before, whose end says
// nothing of this one. With v5 it names one transaction, whatever number the client
// gives it: the lazy record of the one before may be lost, and the scan has decided
// under a lower number then.
func (w *work) takeOver(ps []txnlog.Participant) {
	if committed(w.value) {
		return // an abort follows; what has committed is no part of it
	}
	for i := range ps {
		if p := w.target(refOf(ps[i]), w.value.Sequence); p != nil && !below5(*p) {
			ps[i] = *p
			ps[i].NextProducerID, ps[i].NextProducerEpoch = -1, -1 // the session is over
		}
	}
}

// mayBeAnother: the list does not tell the transaction that was decided last
// from the next one of its client. The scan has decided it, which only EndTxn
// below v5 cannot tell from one that the client began under the same epoch after
// an abort of its own. Of several participants either is aborted for good; an
// only one an earlier coordinator may yet commit (R5). No client has asked to end
// a single participant that was looked at: one phase takes no votes.
func mayBeAnother(v *txnlog.GlobalTransaction) bool {
	return len(v.Participants) == 1 && below5(v.Participants[0]) && (v.SessionEnded || v.Participants[0].AuditTopic != "")
}

func (w *work) closedForEnd(r EndRequest) (Code, string) {
	v := w.value
	switch {
	case r.GlobalEpoch != v.GlobalEpoch:
		return CodeFenced, fmt.Sprintf("global epoch %d is not the current one, %d; a newer client instance owns the id", r.GlobalEpoch, v.GlobalEpoch)
	case v.SessionEnded && w.volatile.ending == nil:
		return CodeFenced, "the session ended by its timeout; initialise again"
	case decided(v) && r.Sequence == v.Sequence:
		return CodeInvalidRequest, fmt.Sprintf("transaction %d was decided with other participants; the first list stands", r.Sequence)
	case r.Sequence <= v.Sequence:
		return CodeOutcomeTooOld, fmt.Sprintf("transaction %d is older than the last one remembered, %d; its outcome is not known here", r.Sequence, v.Sequence)
	case heuristic(v):
		return CodeHeuristicOutcome, heuristicMessage(v)
	case holds(v):
		return CodeConcurrentTransactions, w.pendingMessage()
	case len(v.Leftovers) >= maxLeftovers:
		return CodeConcurrentTransactions, w.leftoversMessage()
	}
	if msg := w.tooFarAhead(r.Sequence); msg != "" {
		return CodeInvalidRequest, msg
	}
	return CodeNone, ""
}

const (
	// maxSequenceGap bounds by how much a number may be above the last one known.
	// They may skip, because the end of a one-phase commit is recorded lazily and
	// can be lost; without a bound the number 2^63-1 would be accepted, and the id
	// be of no use for ever.
	maxSequenceGap = 1_000_000
	// maxLeftovers bounds the aborts that are remembered of one id beside its
	// last transaction.
	maxLeftovers = 100
)

func (w *work) leftoversMessage() string {
	return fmt.Sprintf("%d aborts of this id have not been heard by their clusters yet, and no more are begun beside them", len(w.value.Leftovers))
}

func (w *work) tooFarAhead(sequence int64) string {
	if sequence-w.value.Sequence <= maxSequenceGap {
		return ""
	}
	return fmt.Sprintf("transaction %d is more than %d above the last one known, %d; the next one is %d",
		sequence, maxSequenceGap, w.value.Sequence, w.value.Sequence+1)
}

func (w *work) notOfSession(refs []ParticipantRef) string {
	for _, p := range refs {
		if !slices.Contains(w.value.ClusterIDs, p.ClusterID) {
			return fmt.Sprintf("cluster %s is not of this session, which was initialised with %s",
				plain.Name(p.ClusterID), plain.Names(w.value.ClusterIDs))
		}
	}
	return ""
}

// repeatOfEnding joins a request to the undecided transaction under way. An
// abort overtakes the vote, because nothing is decided; it cannot overtake the
// one-phase commit, whose EndTxn may have been executed (R4, R5).
//
// A later number while an earlier one is being ended means that what is being
// ended is a late copy: of a one-phase commit that an earlier coordinator has
// told its client about, and not recorded. Its client goes on when that is over.
func (w *work) repeatOfEnding(r EndRequest) {
	e := w.volatile.ending
	if r.Sequence > e.sequence {
		w.s.refuse(r.Request, CodeConcurrentTransactions, fmt.Sprintf("transaction %d is being ended; ask again", e.sequence))
		return
	}
	if r.Sequence != e.sequence || !slices.Equal(sortedRefs(r.Participants), sortedRefs(e.refs)) {
		w.s.refuse(r.Request, CodeInvalidRequest, fmt.Sprintf(
			"transaction %d is being ended with other participants or another number; the first request stands", e.sequence))
		return
	}
	w.wait(r)
	if !r.Commit && !e.onePhase {
		w.decideAbort(e.refs, nil, "")
	}
}

// begin starts to end a transaction for the first time.
func (w *work) begin(r EndRequest) {
	e := &ending{
		epoch: r.GlobalEpoch, sequence: r.Sequence,
		refs: slices.Clone(r.Participants), votesBy: w.s.now.Mono + w.s.m.cfg.VoteTimeoutMillis,
	}
	w.volatile.ending = e
	w.forgetEarlier(e.refs)
	switch {
	case !r.Commit:
		w.decideAbort(e.refs, nil, "")
	case len(e.refs) > 1 && slices.ContainsFunc(e.refs, w.volatile.driving):
		// Its EndTxn(abort) may arrive between the vote and the decision.
		w.decideAbort(e.refs, nil, "a participant is being aborted already")
	case len(e.refs) == 1 && w.decidedAbort(e.refs[0]):
		w.decideAbort(e.refs, nil, "its abort is decided already")
	case len(e.refs) == 1:
		// One-phase: nobody else can end differently, so the participant's
		// own decision is the outcome and costs no record before it (R5).
		e.onePhase = true
		w.driveOnePhase()
	default:
		w.s.effect(TakeVotes{
			ID: w.id, GlobalEpoch: e.epoch, Sequence: e.sequence,
			Participants: e.refs, DeadlineMono: e.votesBy,
		})
	}
}

// decidedAbort: the abort of the very participant transaction is decided, and its
// cluster has not heard of it yet.
func (w *work) decidedAbort(ref ParticipantRef) bool {
	orphaned := func(p txnlog.Participant) bool { return refOf(p) == ref && p.State == txnlog.ParticipantOrphaned }
	return w.volatile.drive(ref, w.value.Sequence) != nil || slices.ContainsFunc(w.value.Leftovers, orphaned)
}

// toldAgainBelow5: what is told again there was the client's transaction before, whose
// name this one has. What is told may end this one, so it cannot be committed.
func (w *work) toldAgainBelow5(ref ParticipantRef) bool {
	d, p := w.volatile.drive(ref, w.value.Sequence), w.target(ref, w.value.Sequence)
	return d != nil && d.again && p != nil && below5(*p)
}

func sameRefs(ps []txnlog.Participant, refs []ParticipantRef) bool {
	have := make([]ParticipantRef, len(ps))
	for i, p := range ps {
		have[i] = refOf(p)
	}
	return slices.Equal(sortedRefs(have), sortedRefs(refs))
}

func sortedRefs(refs []ParticipantRef) []ParticipantRef {
	return slices.SortedFunc(slices.Values(refs), func(a, b ParticipantRef) int {
		return strings.Compare(a.ClusterID, b.ClusterID)
	})
}

func participantsOf(refs []ParticipantRef) []txnlog.Participant {
	ps := make([]txnlog.Participant, len(refs))
	for i, r := range refs {
		ps[i] = txnlog.Participant{
			ClusterID: r.ClusterID, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch,
			NextProducerID: -1, NextProducerEpoch: -1,
		}
	}
	return ps
}
