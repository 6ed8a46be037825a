package gtc

import (
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// volatile is what the coordinator knows of an id and does not log: losing it
// costs a repeated question, never an answer.
type volatile struct {
	check    *check        // InitGlobalTxn under way
	ending   *ending       // EndGlobalTxn under way and not decided
	waiters  []waiter      // requests that wait for an outcome
	clusters []clusterView // by cluster id
	opened   int64         // when the session was opened here, monotonic; 0: before this coordinator
}

// check is an InitGlobalTxn whose participants are being asked.
type check struct {
	attempt  uint64
	request  InitRequest
	requests []RequestID // with the repeats of it
}

// ending is an EndGlobalTxn that has asked for commit and is not decided: votes
// are being taken, or the only participant is being told (one-phase).
type ending struct {
	epoch    int32
	sequence int64
	refs     []ParticipantRef
	onePhase bool
	votesBy  int64 // monotonic; no votes by then is a refusal
}

// waiter is a request to be answered when its transaction is complete, or at
// its deadline with what is known then.
type waiter struct {
	request  RequestID
	sequence int64
	deadline int64
}

func (v *volatile) clone() *volatile {
	if v == nil {
		return &volatile{}
	}
	c := *v
	if v.check != nil {
		k := *v.check
		k.requests = slices.Clone(k.requests)
		c.check = &k
	}
	if v.ending != nil {
		e := *v.ending
		c.ending = &e
	}
	c.waiters, c.clusters = slices.Clone(v.waiters), slices.Clone(v.clusters)
	for i := range c.clusters {
		c.clusters[i].drives = slices.Clone(c.clusters[i].drives)
	}
	return &c
}

// openedAt is when the session was opened, 0 when that is not known here.
func (v *volatile) openedAt() int64 {
	if v == nil {
		return 0
	}
	return v.opened
}

// idle: nothing is under way, and nothing was seen open.
func (v *volatile) idle() bool {
	return v == nil || v.check == nil && v.ending == nil && len(v.waiters) == 0 && !slices.ContainsFunc(v.clusters, clusterView.busy)
}

// deadline is the first time at which something is due without an event.
func (v *volatile) deadline(value *txnlog.GlobalTransaction) (int64, bool) {
	if v == nil {
		return 0, false
	}
	var at int64
	found := false
	take := func(t int64) {
		if !found || t < at {
			at, found = t, true
		}
	}
	for _, w := range v.waiters {
		take(w.deadline)
	}
	for _, c := range v.clusters {
		for _, d := range c.drives {
			if !d.inFlight {
				take(d.nextTry)
			}
		}
	}
	if v.ending != nil && !v.ending.onePhase {
		take(v.ending.votesBy)
	}
	if value != nil && (v.ending == nil || v.ending.onePhase) {
		for _, c := range v.clusters {
			// As abortOpen: what the last decision names waits for the next look.
			if c.open != nil && !c.driving(c.open.ref()) && decidedAbout(value, *c.open) == nil {
				take(c.open.firstSeen + int64(value.TimeoutMillis))
			}
		}
	}
	return at, found
}

// setVolatile, setScanned, setSweep and setStarted are the changes that are not
// logged.
type setVolatile struct {
	id       string
	volatile *volatile
}

type setScanned struct {
	clusterID string
	at        int64
}

type setSweep struct{ at int64 }

type setStarted struct{ at Time }

func (setStarted) change()  {}
func (setVolatile) change() {}
func (setScanned) change()  {}
func (setSweep) change()    {}
