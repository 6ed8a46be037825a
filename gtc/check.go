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
	if e.value == nil {
		must(vol.check != nil && vol.ending == nil && len(vol.drives) == 0, "an unknown id has more than an InitGlobalTxn under way")
		return found
	}
	v := e.value
	pending := 0
	for i, p := range v.Participants {
		if p.State == txnlog.ParticipantPending {
			pending++
		}
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
	if x := vol.ending; x != nil {
		must(!busy(v), "a new transaction is ending before the last is complete")
		must(x.epoch == v.GlobalEpoch && x.sequence > v.Sequence, "the transaction being ended is not of this session")
		must(!v.SessionEnded || x.onePhase, "votes are taken for a session that is over")
	}
	must(len(vol.waiters) == 0 || vol.ending != nil || busy(v), "a request waits for nothing")
	own := 0
	for i, d := range vol.drives {
		must(!slices.ContainsFunc(vol.drives[:i], func(o drive) bool { return o.ref == d.ref && o.leftover == d.leftover }),
			"two EndTxn for one participant")
		if !d.leftover {
			own++
		}
	}
	switch {
	case vol.ending != nil && vol.ending.onePhase:
		must(own == 1, "a one-phase commit is not being told to its participant")
	case vol.ending != nil:
		must(own == 0, "participants are told before the decision")
	default:
		must(own == pending || own == 0 && vol.idle(), "a pending participant is not being told")
	}
	return found
}
