package gtc

import (
	"fmt"
	"maps"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// scanCompleted compares what one cluster has open with what was seen before.
// The age of an open transaction is counted from the first scan that saw it,
// on the monotonic clock: a stepped wall clock ends nothing early, and a new
// coordinator counts anew, which is late and safe.
//
// A look that began before an end of the id on that cluster, before this
// coordinator (which does not know when its predecessor ended something), or before
// the session (of which, or of one before, what it saw may be), says nothing. (Ends on other clusters do not matter: an id that commits all the
// time on two would never have its leftover on a third seen.) Taken as
// news, a transaction that was committed meanwhile would be decided abort when
// its timeout is over and no later look has succeeded: a false heuristic
// outcome with EndTxn v5, and the answer to the wrong transaction below, where
// the next one has the same epoch.
func (s *step) scanCompleted(ev ScanCompleted) {
	news := func(id string) bool {
		e := s.m.entries[id]
		return e != nil && e.value != nil && named(e.value, ev.ClusterID) &&
			e.volatile.endedAt(ev.ClusterID) <= ev.BeganMono && e.volatile.openedAt() <= ev.BeganMono && s.m.started.Mono <= ev.BeganMono
	}
	seen := map[string]*OpenTransaction{}
	for i, t := range ev.Open {
		if news(t.ID) {
			seen[t.ID] = &ev.Open[i]
		}
	}
	ids := slices.Collect(maps.Keys(seen))
	if ev.Failed == "" && s.m.started.Mono <= ev.BeganMono { // else ids that were being loaded were left out
		s.out.Changes = append(s.out.Changes, setScanned{clusterID: ev.ClusterID, at: ev.BeganMono})
		for id, e := range s.m.entries {
			if c := e.volatile.view(ev.ClusterID); c != nil && c.open != nil && seen[id] == nil && news(id) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		w := s.load(id)
		w.sawOpen(ev.ClusterID, seen[id])
		w.tellAgain()
		w.abortOverdue()
		w.store()
	}
}

// sawOpen notes what a look at a cluster saw open of the id, nil for nothing. A
// cluster has one open transaction of an id at most: to see another is to see that
// the one of before has ended.
func (w *work) sawOpen(clusterID string, seen *OpenTransaction) {
	c := w.volatile.at(clusterID)
	switch {
	case seen == nil:
		c.open = nil
	case c.open == nil || !sameTxn(*seen, c.open.txn):
		c.open = &open{
			clusterID: clusterID, txn: *seen, firstSeen: w.s.now.Mono, before: ageBefore(w.s.now, seen.StartMillis),
		}
	}
}

func sameTxn(a, b OpenTransaction) bool {
	return a.ProducerID == b.ProducerID && a.ProducerEpoch == b.ProducerEpoch && a.StartMillis == b.StartMillis
}

// forgetEarlier drops what was seen open, on the clusters of a transaction that
// its client asks to end, of the transactions before it. They have ended, or
// this one could not have begun; and a client ends its own aborts by itself, so
// that only the next complete look would tell. If none succeeds for as long as
// the timeout, because the cluster does not answer or because ends of this id
// come and go during each look, a healthy session would be ended for what was
// over long ago.
func (w *work) forgetEarlier(refs []ParticipantRef) {
	for _, ref := range refs {
		if c := w.volatile.view(ref.ClusterID); c != nil && c.open != nil && c.open.ref() != ref {
			c.open = nil
		}
	}
}

// tellAgain tells a decision again to a participant that it names and that is open
// after all: its cluster was given up by an operator and is back, or it has forgotten
// the end (restored from a copy, an unclean election of its transaction log). Left to
// its timeout a decided commit would be aborted beside those that have committed, by
// us.
//
// What is known to have ended against its decision is not told until an operator has
// forgotten that. Counter-example: a look that a deposed transaction coordinator
// answers shows it open, it is pending again, and what is torn is told as complete.
func (w *work) tellAgain() {
	v := w.value
	if w.volatile.ending != nil || !decided(v) {
		return // the next transaction has begun; its decision replaces the one of before
	}
	for _, o := range w.volatile.opens() {
		p := decidedAbout(v, o)
		if p == nil || isPending(*p) || knownTorn(*p) || w.volatile.driving(o.ref()) {
			continue
		}
		if !committed(v) && len(v.Participants) == 1 && !outcomeLost(v) {
			w.tellAbortAgain(o, *p)
			continue
		}
		*p = pendingAgain(o, *p)
		v.State = pendingState(v)
		w.persist(false)
		w.drive(*p, v.Sequence, true)
		w.volatile.drive(refOf(*p), v.Sequence).again = true
	}
	for i := range v.Leftovers {
		p := &v.Leftovers[i]
		c := w.volatile.view(p.ClusterID)
		if c == nil || c.open == nil || !sameStart(*p, *c.open) || !isHeuristic(*p) || knownTorn(*p) || c.driving(refOf(*p)) {
			continue
		}
		p.State, p.Detail = txnlog.ParticipantOrphaned, ""
		w.persist(false)
		w.drive(*p, 0, true)
	}
}

// tellAbortAgain tells the abort of an only participant that was told as complete.
// Pending again, the participant's own answer would be the outcome (R5), and what the
// client was told would turn. So it is told beside the record, as an abort that is
// decided.
func (w *work) tellAbortAgain(o open, p txnlog.Participant) {
	again := pendingAgain(o, p)
	again.State = txnlog.ParticipantOrphaned
	w.value.Leftovers = append(w.value.Leftovers, again)
	w.persist(false)
	w.drive(again, 0, true)
}

// pendingAgain is a recorded participant that is open after all.
func pendingAgain(o open, p txnlog.Participant) txnlog.Participant {
	next := o.participant()
	if p.AuditTopic != "" {
		next.AuditTopic, next.AuditPartition, next.StartMillis = p.AuditTopic, p.AuditPartition, p.StartMillis
	}
	next.UnknownTags = p.UnknownTags
	return next
}

// abortOverdue ends what has been open for longer than the session's timeout
// and is not being ended already.
func (w *work) abortOverdue() {
	if w.value == nil {
		return
	}
	limit := int64(w.value.TimeoutMillis)
	w.abortOpen(limit, fmt.Sprintf("open for longer than its timeout of %d ms", limit))
}

// abortOpen aborts the open transactions that are at least age old, and reports
// whether there were any. Those of a live session are one global transaction:
// it is decided and the session ended, so that a commit that comes later is
// refused (R3).
//
// The others are leftovers: of an earlier session, on a cluster that the session
// does not name, of a session that is over, or begun while a commit still waits
// for another cluster. The last kind must not wait with it: a cluster that is away
// for days would hold back the readers of the healthy one. And beside a torn
// transaction everything is left over: a decision would replace the record of
// what is torn before an operator has seen it. Leftovers are recorded before
// they are told (R1), and use up no sequence number.
//
// What the last decision names is never one of them: it is told that decision
// (tellAgain).
func (w *work) abortOpen(age int64, reason string) bool {
	v := w.value
	if e := w.volatile.ending; e != nil && !e.onePhase {
		return false // the votes decide, and are bounded themselves
	}
	inSession := func(o open) bool {
		return !v.SessionEnded && !o.former && slices.Contains(v.ClusterIDs, o.clusterID)
	}
	due := func(o open) bool { return o.firstSeen+age <= w.s.now.Mono }
	var overdue, session []open
	for _, o := range w.volatile.opens() {
		switch {
		case w.volatile.driving(o.ref()) || decidedAbout(v, o) != nil:
		case inSession(o) && !holds(v) && w.volatile.ending == nil && !heuristic(v):
			session = append(session, o)
		case due(o):
			overdue = append(overdue, o)
		}
	}
	if !slices.ContainsFunc(session, due) {
		session = nil
	}
	if len(overdue)+len(session) == 0 {
		return false
	}
	for _, o := range overdue {
		// Below EndTxn v5 an abort keeps the epoch, and a slow client could
		// write on and have the rest of its transaction committed.
		v.SessionEnded = v.SessionEnded || inSession(o)
		w.addLeftover(o)
	}
	if session == nil {
		w.persist(false)
		w.driveLeftovers(false)
		return true
	}
	v.SessionEnded = true
	ps := make([]txnlog.Participant, len(session))
	for i, o := range session {
		ps[i] = o.participant()
	}
	w.volatile.ending = &ending{epoch: v.GlobalEpoch, sequence: v.Sequence + 1}
	w.decide(txnlog.StatePrepareAbort, ps, reason)
	w.driveAll(false)
	return true
}

// addLeftover records an open transaction to be aborted. A cluster has at most
// one of an id: an earlier leftover there that a scan found is over, or the later
// could not have begun. One whose abort was decided stays until it is known how it
// ended.
func (w *work) addLeftover(o open) {
	over := func(p txnlog.Participant) bool { return p.ClusterID == o.clusterID && isPending(p) }
	for _, p := range w.value.Leftovers {
		if over(p) {
			w.volatile.stopDriving(refOf(p), 0)
		}
	}
	w.value.Leftovers = append(slices.DeleteFunc(w.value.Leftovers, over), o.participant())
}
