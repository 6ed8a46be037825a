package gtc

import (
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

// resolveRequest handles ResolveGlobalTransaction, the operator's ways to end
// what stands still. None of them can change a decision.
func (s *step) resolveRequest(r ResolveRequest) {
	w := s.load(r.ID)
	if w.value == nil {
		s.refuse(r.Request, CodeUnknownID, "the global transactional id is unknown here")
		return
	}
	defer w.store()
	if (r.Action == ResolveGiveUp) != (r.ClusterID != "") {
		s.refuse(r.Request, CodeInvalidRequest, "action 3 names the cluster to be given up, the others name none")
		return
	}
	var refused string
	switch r.Action {
	case ResolveAbort:
		refused = w.resolveAbort()
	case ResolveRetry:
		refused = w.resolveRetry()
	case ResolveForget:
		refused = w.resolveForget()
	case ResolveGiveUp:
		refused = w.resolveGiveUp(r.ClusterID)
	default:
		s.refuse(r.Request, CodeInvalidRequest, "unknown action; 0 aborts, 1 retries, 2 forgets, 3 gives a cluster up")
		return
	}
	if refused != "" {
		s.reply(r.Request, Response{Code: CodeInvalidTxnState, Message: refused, State: w.value.State})
		return
	}
	s.reply(r.Request, Response{State: w.value.State})
}

func (w *work) resolveAbort() string {
	switch e := w.volatile.ending; {
	case e != nil && e.onePhase:
		return "the only participant is being committed and decides by itself"
	case e != nil:
		w.decideAbort(e.refs, nil, "aborted by an operator")
	case w.abortOpen(0, "aborted by an operator"):
	case busy(w.value):
		return "already decided: " + w.pendingMessage()
	default:
		return "nothing undecided is known of this id; a scan that saw an open transaction must come first"
	}
	return ""
}

func (w *work) resolveRetry() string {
	all := w.volatile.drives()
	if len(all) == 0 {
		return "no participant of this id is pending"
	}
	for _, d := range all {
		d.nextTry = w.s.now.Mono
	}
	w.retryDue()
	return ""
}

func (w *work) resolveForget() string {
	v := w.value
	if !heuristic(v) || holds(v) { // an abort that a cluster has not heard holds nobody
		return "this id has no complete heuristic outcome to forget"
	}
	for i := range v.Participants {
		p := &v.Participants[i]
		word := endForgotten
		if p.State == txnlog.ParticipantHeuristicUnknown {
			word = doubtForgotten
		}
		switch {
		case !p.State.Heuristic():
			continue
		case len(v.Participants) == 1 && p.State == txnlog.ParticipantHeuristicUnknown:
			// Its answer is the outcome (R5). That an operator has looked does
			// not make it known here.
			p.AuditTopic = ""
		default:
			p.State = txnlog.ParticipantComplete
		}
		p.Detail = word + because(p.Detail)
	}
	v.Leftovers = slices.DeleteFunc(v.Leftovers, isHeuristic)
	w.persist(false)
	return ""
}

// What an operator's word leaves in the record. That nobody could tell how, and
// whether, a cluster had ended is kept apart from an end that it told: what it shows
// open later it has not forgotten then.
const (
	givenUp        = "given up by an operator"
	endForgotten   = "heuristic outcome forgotten by an operator"
	doubtForgotten = "unknown outcome forgotten by an operator"
)

// DoubtForgotten reports that an operator has forgotten of the participant that nobody
// could tell how it ended, or whether.
func DoubtForgotten(p txnlog.Participant) bool { return strings.HasPrefix(p.Detail, doubtForgotten) }

// resolveGiveUp waits no longer for a cluster that is gone for good: what is
// pending there is recorded as ended, nobody knows how. Nothing else leads to
// that without an answer of the cluster, and a decision is kept for ever
// otherwise (C-ATOM-6). The decision itself stays, and is told after all if the
// cluster comes back (tellAgain). That takes a look that begins after this: what
// earlier ones saw open is what is given up.
func (w *work) resolveGiveUp(clusterID string) string {
	c := w.volatile.view(clusterID)
	if c == nil || len(c.drives) == 0 {
		return "no participant of this id is pending on cluster " + plain.Name(clusterID)
	}
	given := c.drives
	c.drives, c.open, c.endedAt = nil, nil, w.s.now.Mono
	for _, d := range given {
		answer := EndAnswer{
			Outcome: EndUnknown, NextProducerID: -1, NextProducerEpoch: -1, Detail: givenUp + because(d.detail),
		}
		switch {
		case d.sequence == 0: // the scan finds it again if the cluster comes back
			w.leftoverEnded(d.ref, answer)
		case w.onePhase(&d):
			w.onePhaseEnded(answer, true)
		default:
			w.participantEnded(d.ref, answer, true)
		}
	}
	w.force() // the answer that it stands for could be asked for again, an operator's word could not
	return ""
}
