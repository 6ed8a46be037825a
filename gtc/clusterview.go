package gtc

import (
	"slices"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// clusterView is what this coordinator knows of one id on one cluster: the only
// place for it, so that what was seen, what is being told and what has ended
// cannot contradict one another. Counter-example, from lists of their own: a
// cluster was given up, the list of what scans had seen still named it, and the
// next Tick sent an abort for what was decided commit.
type clusterView struct {
	clusterID string
	// open is the transaction that the newest look saw open, nil when it saw
	// none. A cluster has at most one of an id.
	open *open
	// drives are the participants there that are being told to end.
	drives []drive
	// endedAt is when one was last ended or given up here, on the monotonic
	// clock, 0 for never. What a look that began before saw open may be that.
	endedAt int64
}

// busy: something is open there, or being ended.
func (c clusterView) busy() bool { return c.open != nil || len(c.drives) > 0 }

func (c clusterView) driving(ref ParticipantRef) bool {
	return slices.ContainsFunc(c.drives, func(d drive) bool { return d.ref == ref })
}

// drive is one participant transaction that is being ended.
type drive struct {
	ref ParticipantRef
	// sequence is that of the transaction; 0 for a leftover.
	sequence int64
	// asked is the sequence that the EndTxn under way carries, and its answer will.
	// The two differ when a later decision has made a leftover of the participant
	// meanwhile; the answer counts all the same. Counter-example: it says that the
	// participant has committed, and dropped nobody ever learns it.
	asked int64
	// again: it had ended, and is told again (tellAgain).
	again    bool
	inFlight bool  // an EndTxn is under way; at most one
	fenced   bool  // see EndTxn
	attempts int64 // that ended in EndRetry
	nextTry  int64
	// uncertain: an earlier EndTxn may still arrive. Below EndTxn v5 it
	// would end whatever is open under the same epoch then, so the client
	// must not go on under it.
	uncertain bool
	since     int64
	before    int64 // see ageBefore
	detail    string
}

// ageBefore is the age, for people, that something had when this coordinator
// learned of it: by the wall clock, from when it began. The clocks may be wrong, so
// nothing is decided by it; and it is taken once, so that a step of the clock does
// not change it. Without it a rolling restart of the coordinators would show the
// oldest transactions as new.
func ageBefore(now Time, fromWall int64) int64 {
	if fromWall <= 0 {
		return 0
	}
	return max(now.Wall-fromWall, 0)
}

// open is a participant transaction that a scan saw open.
type open struct {
	clusterID string
	txn       OpenTransaction
	firstSeen int64 // monotonic
	// before is how long it had been open then, by the wall clocks, see ageBefore.
	before int64
	// former: it was seen before the present session opened, so it is of an
	// earlier one. It ends by its own age, and ends nothing else.
	former bool
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

// view is what is known of the id on a cluster, nil when nothing.
func (v *volatile) view(clusterID string) *clusterView {
	if v == nil {
		return nil
	}
	for i := range v.clusters {
		if v.clusters[i].clusterID == clusterID {
			return &v.clusters[i]
		}
	}
	return nil
}

// at is the same, to be written to.
func (v *volatile) at(clusterID string) *clusterView {
	if c := v.view(clusterID); c != nil {
		return c
	}
	i, _ := slices.BinarySearchFunc(v.clusters, clusterID, func(c clusterView, id string) int { return strings.Compare(c.clusterID, id) })
	v.clusters = slices.Insert(v.clusters, i, clusterView{clusterID: clusterID})
	return &v.clusters[i]
}

// endedAt is when something was last ended on the cluster, 0 for never.
func (v *volatile) endedAt(clusterID string) int64 {
	if c := v.view(clusterID); c != nil {
		return c.endedAt
	}
	return 0
}

// drive is the telling of one participant, nil when it is not being told.
func (v *volatile) drive(ref ParticipantRef, sequence int64) *drive {
	c := v.view(ref.ClusterID)
	if c == nil {
		return nil
	}
	for i := range c.drives {
		if d := &c.drives[i]; d.ref == ref && d.sequence == sequence {
			return d
		}
	}
	return nil
}

// asked is the drive that an answer belongs to, nil when what it is about is not
// being told any more.
func (v *volatile) asked(ref ParticipantRef, sequence int64) *drive {
	c := v.view(ref.ClusterID)
	if c == nil {
		return nil
	}
	for i := range c.drives {
		if d := &c.drives[i]; d.ref == ref && d.inFlight && d.asked == sequence {
			return d
		}
	}
	return nil
}

// stopDriving ends the telling of one participant.
func (v *volatile) stopDriving(ref ParticipantRef, sequence int64) {
	c := v.at(ref.ClusterID)
	c.drives = slices.DeleteFunc(c.drives, func(d drive) bool { return d.ref == ref && d.sequence == sequence })
}

// driving reports that the transaction is being ended: by a decision that is
// pending, by a one-phase commit, or as a leftover.
func (v *volatile) driving(ref ParticipantRef) bool {
	c := v.view(ref.ClusterID)
	return c != nil && c.driving(ref)
}

// drives are pointers to all of them.
func (v *volatile) drives() (all []*drive) {
	for i := range v.clusters {
		for j := range v.clusters[i].drives {
			all = append(all, &v.clusters[i].drives[j])
		}
	}
	return all
}

// opens are all that scans saw open.
func (v *volatile) opens() (all []open) {
	for _, c := range v.clusters {
		if c.open != nil {
			all = append(all, *c.open)
		}
	}
	return all
}
