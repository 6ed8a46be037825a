package gtc

import (
	"errors"
	"fmt"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Check holds the machine's state against what must be true between any two
// steps. Tests and the simulator call it after each of them.
func (m *Machine) Check() error {
	var errs []error
	for id, e := range m.entries {
		for _, msg := range e.violations() {
			errs = append(errs, fmt.Errorf("%s: %s", id, msg))
		}
		at, ok := e.volatile.deadline(e.value)
		if ok != (e.index >= 0) || ok && (e.deadline != at || m.due[e.index] != e) {
			errs = append(errs, fmt.Errorf("%s: the index of deadlines is wrong", id))
		}
	}
	for i := range m.due {
		if i > 0 && m.due.Less(i, (i-1)/2) {
			errs = append(errs, errors.New("the heap of deadlines is not one"))
		}
	}
	return errors.Join(errs...)
}

func (e *entry) violations() (found []string) {
	must := func(ok bool, msg string) {
		if !ok {
			found = append(found, msg)
		}
	}
	vol := e.volatile.clone()
	drives := vol.drives()
	for i, d := range drives {
		must(!slices.ContainsFunc(drives[:i], func(o *drive) bool { return o.ref == d.ref && o.sequence == d.sequence }),
			"two EndTxn for one participant")
	}
	for _, c := range vol.clusters {
		must(c.open == nil || c.open.clusterID == c.clusterID, "what is open stands at another cluster")
	}
	if e.value == nil {
		must(vol.check != nil && vol.ending == nil && len(drives) == 0, "an unknown id has more than an InitGlobalTxn under way")
		return found
	}
	v := e.value
	pending := 0
	for i, p := range v.Participants {
		if isPending(p) {
			pending++
			must(vol.drive(refOf(p), v.Sequence) != nil || e.volatile == nil, "a pending participant is not being told")
		}
		must(p.State != txnlog.ParticipantOrphaned, "a participant of the last decision is orphaned")
		must(!slices.ContainsFunc(v.Participants[:i], func(o txnlog.Participant) bool { return o.ClusterID == p.ClusterID }),
			"a cluster takes part twice")
		must(p.ProducerID >= 0 && p.ProducerEpoch >= 0, "a participant names no transaction")
	}
	must(!busy(v) || pending > 0, "a decision is being completed and nobody is pending")
	must(busy(v) || pending == 0, "a participant is pending and nothing is being completed")
	must(v.State != txnlog.StateEmpty || len(v.Participants) == 0, "Empty has participants")
	must(v.GlobalEpoch > 0, "the global epoch was never set")
	must(len(v.ClusterIDs) > 0, "a session without clusters")
	must(!committed(v) || v.Reason == "", "a commit has a reason to abort")
	told := 0
	for _, d := range drives {
		switch x := vol.ending; {
		case x != nil && d.sequence == x.sequence:
			told++
		case d.sequence == 0:
			must(slices.ContainsFunc(v.Leftovers, func(p txnlog.Participant) bool { return refOf(p) == d.ref && !isHeuristic(p) }),
				"an end is told to what is no leftover")
		default:
			must(d.sequence == v.Sequence && slices.ContainsFunc(v.Participants, func(p txnlog.Participant) bool { return refOf(p) == d.ref && isPending(p) }),
				"an end is told to who is not pending")
		}
	}
	if x := vol.ending; x != nil {
		must(!holds(v), "a new transaction is ending before the commit of the last is complete")
		must(x.epoch == v.GlobalEpoch && x.sequence > v.Sequence, "the transaction being ended is not of this session")
		must(!v.SessionEnded || x.onePhase, "votes are taken for a session that is over")
		must(x.onePhase || told == 0, "participants are told before the decision")
		must(!x.onePhase || told == 1, "a one-phase commit is not being told to its participant")
	}
	for _, x := range vol.waiters {
		must(vol.ending != nil && x.sequence == vol.ending.sequence || busy(v) && x.sequence == v.Sequence, "a request waits for nothing")
	}
	return found
}
