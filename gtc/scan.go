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
// A look that began before an end of the id on that cluster, or before this
// coordinator (which does not know when its predecessor ended something), says
// nothing. (Ends on other clusters do not matter: an id that commits all the
// time on two would never have its leftover on a third seen.) Taken as
// news, a transaction that was committed meanwhile would be decided abort when
// its timeout is over and no later look has succeeded: a false heuristic
// outcome with EndTxn v5, and the answer to the wrong transaction below, where
// the next one has the same epoch.
func (s *step) scanCompleted(ev ScanCompleted) {
	began := ev.BeganMono
	news := func(id string) bool {
		return s.m.Knows(id) && s.m.entries[id].endedAt(ev.ClusterID) <= began && s.m.started.Mono <= began
	}
	seen := map[string][]OpenTransaction{}
	for _, t := range ev.Open {
		if news(t.ID) {
			seen[t.ID] = append(seen[t.ID], t)
		}
	}
	ids := slices.Collect(maps.Keys(seen))
	if ev.Failed == "" && s.m.started.Mono <= began { // else ids that were being loaded were left out
		s.out.Changes = append(s.out.Changes, setScanned{clusterID: ev.ClusterID, at: began})
		for id, e := range s.m.entries {
			if e.volatile == nil || seen[id] != nil || !news(id) {
				continue
			}
			if slices.ContainsFunc(e.volatile.open, func(o open) bool { return o.clusterID == ev.ClusterID }) {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		w := s.load(id)
		w.sawOpen(ev.ClusterID, seen[id], ev.Failed == "")
		w.tellAgain()
		w.abortOverdue()
		w.store()
	}
}

func (w *work) sawOpen(clusterID string, seen []OpenTransaction, whole bool) {
	var now []open
	for _, o := range w.volatile.open {
		again := slices.ContainsFunc(seen, func(t OpenTransaction) bool { return sameTxn(t, o.txn) })
		// A look that failed proves nothing about what it did not see, but a
		// cluster has one open transaction of an id at most: to see another
		// is to see that this one has ended.
		if o.clusterID != clusterID || again || !whole && len(seen) == 0 {
			now = append(now, o)
		}
	}
	for _, t := range seen {
		known := func(o open) bool { return o.clusterID == clusterID && sameTxn(t, o.txn) }
		if !slices.ContainsFunc(now, known) {
			now = append(now, open{clusterID: clusterID, txn: t, firstSeen: w.s.now.Mono})
		}
	}
	w.volatile.open = now
}

func sameTxn(a, b OpenTransaction) bool {
	return a.ProducerID == b.ProducerID && a.ProducerEpoch == b.ProducerEpoch && a.StartMillis == b.StartMillis
}

func (w *work) forgetOpen(ref ParticipantRef) {
	w.volatile.open = slices.DeleteFunc(w.volatile.open, func(o open) bool { return o.ref() == ref })
}

// forgetEarlier drops what was seen open, on the clusters of a transaction that
// its client asks to end, of the transactions before it. They have ended, or
// this one could not have begun; and a client ends its own aborts by itself, so
// that only the next complete look would tell. If none succeeds for as long as
// the timeout, because the cluster does not answer or because ends of this id
// come and go during each look, a healthy session would be ended for what was
// over long ago.
func (w *work) forgetEarlier(refs []ParticipantRef) {
	w.volatile.open = slices.DeleteFunc(w.volatile.open, func(o open) bool {
		return slices.ContainsFunc(refs, func(ref ParticipantRef) bool {
			return ref.ClusterID == o.clusterID && ref != o.ref()
		})
	})
}

// tellAgain tells the decision to commit to a participant that an operator had
// given up and that is open after all: its cluster has come back. Left to its
// timeout it would be aborted beside those that have committed.
func (w *work) tellAgain() {
	v := w.value
	if !heuristic(v) || !committed(v) || w.volatile.ending != nil {
		return
	}
	for _, o := range w.volatile.open {
		p := w.target(o.ref(), false)
		if p == nil || p.State != txnlog.ParticipantHeuristicUnknown || p.StartMillis != o.txn.StartMillis || w.ending(o.ref()) {
			continue
		}
		p.State, p.Detail = txnlog.ParticipantPending, ""
		v.State = txnlog.StatePrepareCommit
		w.persist(false)
		w.drive(*p, false, true)
	}
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
// The others are leftovers: on a cluster that the session does not name, of a
// session that is over, or begun while an earlier transaction still waits for
// another cluster. The last kind must not wait with it: a cluster that is away
// for days would hold back the readers of the healthy one. And beside a torn
// transaction everything is left over: a decision would replace the record of
// what is torn before an operator has seen it. Leftovers are recorded before
// they are told (R1), and use up no sequence number.
func (w *work) abortOpen(age int64, reason string) bool {
	v := w.value
	if e := w.volatile.ending; e != nil && !e.onePhase {
		return false // the votes decide, and are bounded themselves
	}
	inSession := func(o open) bool { return !v.SessionEnded && slices.Contains(v.ClusterIDs, o.clusterID) }
	var overdue, session []open
	for _, o := range w.volatile.open {
		switch {
		case w.ending(o.ref()):
		case inSession(o) && !w.busy() && w.volatile.ending == nil && !heuristic(v):
			session = append(session, o)
		case o.firstSeen+age <= w.s.now.Mono:
			overdue = append(overdue, o)
		}
	}
	due := func(o open) bool { return o.firstSeen+age <= w.s.now.Mono }
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

// ending reports that the transaction is being ended: by the decision that is
// pending, by a one-phase commit, or as a leftover.
func (w *work) ending(ref ParticipantRef) bool {
	return w.volatile.driving(ref, false) || w.volatile.driving(ref, true)
}

// addLeftover records an open transaction to be aborted. A cluster has at most
// one of an id: an earlier leftover there is over, or the later could not have
// begun.
func (w *work) addLeftover(o open) {
	elsewhere := func(p txnlog.Participant) bool { return p.ClusterID == o.clusterID }
	w.value.Leftovers = append(slices.DeleteFunc(w.value.Leftovers, elsewhere), o.participant())
	w.volatile.drives = slices.DeleteFunc(w.volatile.drives, func(d drive) bool {
		return d.leftover && d.ref.ClusterID == o.clusterID
	})
}
