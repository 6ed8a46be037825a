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
func (s *step) scanCompleted(ev ScanCompleted) {
	seen := map[string][]OpenTransaction{}
	for _, t := range ev.Open {
		if s.m.Knows(t.ID) {
			seen[t.ID] = append(seen[t.ID], t)
		}
	}
	ids := slices.Collect(maps.Keys(seen))
	if ev.Failed == "" {
		s.out.Changes = append(s.out.Changes, setScanned{clusterID: ev.ClusterID, at: s.now.Mono})
		for id, e := range s.m.entries {
			if e.volatile == nil || seen[id] != nil {
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
		w.abortOverdue()
		w.store()
	}
}

func (w *work) sawOpen(clusterID string, seen []OpenTransaction, whole bool) {
	var now []open
	for _, o := range w.volatile.open {
		again := o.clusterID == clusterID && slices.ContainsFunc(seen, func(t OpenTransaction) bool { return sameTxn(t, o.txn) })
		// A look that failed proves nothing about what it did not see.
		if o.clusterID != clusterID || again || !whole {
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

// abortOverdue ends what has been open for longer than the session's timeout
// and is not being ended already.
func (w *work) abortOverdue() {
	if w.value == nil || w.volatile.ending != nil || w.busy() {
		return
	}
	limit := int64(w.value.TimeoutMillis)
	if slices.ContainsFunc(w.volatile.open, func(o open) bool {
		return o.firstSeen+limit <= w.s.now.Mono && !w.volatile.driving(o.ref(), true)
	}) {
		w.abortOpen(limit, fmt.Sprintf("open for longer than its timeout of %d ms", limit))
	}
}

// abortOpen aborts the open transactions that are at least age old. Those of a
// live session are one global transaction: it is decided and the session
// ended, so that a commit that comes later is refused (R3). Those that no live
// session can ask to commit are recorded as leftovers first (R1).
func (w *work) abortOpen(age int64, reason string) {
	v := w.value
	var session []txnlog.Participant
	leftovers := false
	due := func(o open) bool { return o.firstSeen+age <= w.s.now.Mono }
	inSession := func(o open) bool { return !v.SessionEnded && slices.Contains(v.ClusterIDs, o.clusterID) }
	sessionDue := slices.ContainsFunc(w.volatile.open, func(o open) bool { return inSession(o) && due(o) })
	for _, o := range w.volatile.open {
		switch {
		case w.volatile.driving(o.ref(), true):
		case inSession(o):
			if sessionDue {
				session = append(session, o.participant())
			}
		case due(o):
			w.addLeftover(o)
			leftovers = true
		}
	}
	if session != nil {
		v.SessionEnded = true
		w.volatile.ending = &ending{epoch: v.GlobalEpoch, sequence: v.Sequence + 1}
		w.decide(txnlog.StatePrepareAbort, session, reason)
	} else if leftovers {
		w.persist(false)
	}
	if session != nil || leftovers {
		w.driveAll(false)
	}
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
