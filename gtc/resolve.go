package gtc

import (
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
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
	case w.busy():
		return "already decided: " + w.pendingMessage()
	case e != nil && e.onePhase:
		return "the only participant is being committed and decides by itself"
	case e != nil:
		w.decideAbort(e.refs, nil, "aborted by an operator")
	case !w.abortOpen(0, "aborted by an operator"):
		return "nothing undecided is known of this id; a scan that saw an open transaction must come first"
	}
	return ""
}

func (w *work) resolveRetry() string {
	if len(w.volatile.drives) == 0 {
		return "no participant of this id is pending"
	}
	for i := range w.volatile.drives {
		w.volatile.drives[i].nextTry = w.s.now.Mono
	}
	w.retryDue()
	return ""
}

func (w *work) resolveForget() string {
	v := w.value
	if !heuristic(v) || w.busy() {
		return "this id has no complete heuristic outcome to forget"
	}
	for i := range v.Participants {
		p := &v.Participants[i]
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
		p.Detail = "heuristic outcome forgotten by an operator" + because(p.Detail)
	}
	w.persist(false)
	return ""
}

// givenUp is what an operator's word leaves in the record.
const givenUp = "given up by an operator"

// resolveGiveUp waits no longer for a cluster that is gone for good: what is
// pending there is recorded as ended, nobody knows how. Nothing else leads to
// that without an answer of the cluster, and a decision is kept for ever
// otherwise (C-ATOM-6). The decision itself stays, and is told after all if the
// cluster comes back before the outcome is forgotten (tellAgain).
func (w *work) resolveGiveUp(clusterID string) string {
	v := w.value
	there := func(d drive) bool { return d.ref.ClusterID == clusterID }
	if !slices.ContainsFunc(w.volatile.drives, there) {
		return "no participant of this id is pending on cluster " + clusterID
	}
	var own *drive
	for _, d := range w.volatile.drives {
		if there(d) && !d.leftover {
			own = &d
		}
	}
	w.volatile.drives = slices.DeleteFunc(w.volatile.drives, there)
	v.Leftovers = slices.DeleteFunc(v.Leftovers, func(p txnlog.Participant) bool { return p.ClusterID == clusterID })
	switch {
	case own == nil: // a leftover: the scan finds it again if the cluster comes back
		w.persist(false)
	case w.volatile.ending != nil:
		w.onePhaseEnded(EndAnswer{
			Outcome: EndUnknown, NextProducerID: -1, NextProducerEpoch: -1, Detail: givenUp + because(own.detail),
		}, true)
	default:
		p := w.target(own.ref, false)
		p.State, p.Detail = txnlog.ParticipantHeuristicUnknown, givenUp+because(own.detail)
		if done := !slices.ContainsFunc(v.Participants, isPending); done {
			v.State = completed(v)
			defer func() { w.answerAll(w.answer()) }()
		}
		w.persist(false)
	}
	return ""
}

// sweepEvery is the pause between two looks for expired ids.
func (m *Machine) sweepEvery() int64 { return max(min(m.cfg.ExpirationMillis/10, 600_000), 1) }

// sweep forgets ids that nobody has used for the expiration time. One that is
// undecided, pending, heuristic or seen open stays, and none goes while a
// configured cluster could not be asked for some scans: a transaction may be
// open there that only this record can end.
func (s *step) sweep() {
	s.out.Changes = append(s.out.Changes, setSweep{at: s.now.Mono + s.m.sweepEvery()})
	var ids []string
	for id, e := range s.m.entries {
		if s.m.expired(e, s.now) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		s.out.Changes = append(s.out.Changes, Persist{Record: txnlog.Record{GlobalTransactionalID: id}, Lazy: true})
	}
}

// steadyWall is the wall clock at the start plus elapsed time. Records are stamped
// with it as well: stamped by a clock that has gained a second since, a record of
// a coordinator that runs for longer than the expiration time would count as one
// from the future, and its id as idle since the start. (Found by the simulator.)
func (m *Machine) steadyWall(now Time) int64 { return m.started.Wall + now.Mono - m.started.Mono }

func (m *Machine) expired(e *entry, now Time) bool {
	v := e.value
	if v == nil || e.volatile != nil || busy(v) || heuristic(v) || len(v.Leftovers) > 0 {
		return false
	}
	// A record stamped in the future (by a clock that was wrong once) counts
	// as stamped at the start, or it would live until the clock gets there.
	wall := m.steadyWall(now)
	updated := v.UpdatedMillis
	if updated > wall {
		updated = m.started.Wall
	}
	if wall-updated < m.cfg.ExpirationMillis {
		return false
	}
	for _, id := range v.ClusterIDs {
		if !m.lookedAt(id, now) {
			return false
		}
	}
	return m.lookedAtAll(now)
}

// lookedAt: the last complete look at the cluster is recent.
func (m *Machine) lookedAt(clusterID string, now Time) bool {
	at, ok := m.scanned[clusterID]
	return ok && now.Mono-at <= 3*m.cfg.ScanIntervalMillis
}

// lookedAtAll: so it is of as many clusters as are configured. The clusters of
// the session are not enough: an earlier session may have left something open on
// one that was away when a later one, which does not name it, began; nobody
// could end it any more once the id is forgotten.
func (m *Machine) lookedAtAll(now Time) bool {
	n := 0
	for id := range m.scanned {
		if m.lookedAt(id, now) {
			n++
		}
	}
	return n >= m.cfg.Clusters
}
