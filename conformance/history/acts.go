package history

import "slices"

// act is what was done to the system and is outside its promises.
//
// What a participant forgets can come from an act only if the transaction was not
// over there when the act began, and had begun there before it was over.
type act struct {
	kind     Kind // GaveUp or Restored
	cluster  string
	id       string // given up; a restored cluster concerns all ids
	from, to int64
	// Of a restored cluster: when its copy was complete, when it was about to be
	// ended, and the life that begins with it. It has forgotten what it took in
	// after copied and before down, and it keeps what it took in before from.
	copied, down int64
	life         int
}

// acts finds the acts of a history, each cluster's in their order.
func acts(events []Event) []act {
	var all []act
	copies, lives := map[string]Event{}, map[string]int{}
	for _, e := range events {
		switch cluster := e.Place.Cluster; e.Kind {
		case GaveUp:
			all = append(all, act{kind: GaveUp, cluster: cluster, id: e.ID, from: e.Began, to: e.At})
		case Copied:
			copies[cluster] = e
		case Restored:
			lives[cluster]++
			c := copies[cluster]
			all = append(all, act{
				kind: Restored, cluster: cluster, from: c.Began, to: e.At, copied: c.At, down: e.Began, life: lives[cluster],
			})
		case Open, Begin, Write, Wrote, Ask, Answer, Rest, Note, Forgot, Pending, Contradicted, Reopened:
		}
	}
	return all
}

// concerns reports that the act can have changed how the transaction ended on the
// act's cluster, or what is known of that. What has ended there can be given up all the
// same, as long as the coordinator has not heard of it.
func (a act) concerns(t *txn) bool {
	if a.id != "" && a.id != t.id {
		return false
	}
	on := t.on[a.cluster]
	ended, over := t.ended[a.cluster]
	if a.kind == GaveUp {
		ended, over = t.complete[a.cluster]
	}
	return len(on) > 0 && on[0].at < a.to && (!over || ended > a.from)
}

// forgotAll reports that a restored cluster has nothing of the transaction: it can
// only refuse to commit it.
func (a act) forgotAll(t *txn) bool {
	return a.kind == Restored && !slices.ContainsFunc(t.on[a.cluster], func(w *write) bool {
		return w.at < a.copied || !w.acked() || w.ackedAt > a.down
	})
}

// loses reports that the act can be why the value is not visible.
func (a act) loses(c *checker, w *write) bool {
	if a.cluster != w.place.Cluster || !a.concerns(w.txn) {
		return false
	}
	if a.kind == GaveUp {
		// What was given up ends there as a whole, and what has ended stays so.
		return !slices.ContainsFunc(w.txn.on[a.cluster], func(o *write) bool { return len(c.seen[o.value]) > 0 })
	}
	// A value that was written, or seen, after the restore is kept. And when
	// commit is asked for after it, the vote has to find out that all is gone.
	lateAsk := a.forgotAll(w.txn) && w.txn.askedAt > a.to
	return w.at < a.to && c.life(w.value) < a.life && !lateAsk
}

// known reports that the coordinator must have heard of the loss. What is given up
// is reported at once. A restored cluster contradicts when it is told to commit
// what it has forgotten as a whole, or has aborted since although it was in the
// copy. When it had been told before, or has a part and says yes to that, nobody
// hears of it.
func (a act) known(c *checker, w *write) bool {
	if a.kind == GaveUp {
		return true
	}
	copied := w.acked() && w.ackedAt <= a.from
	return (copied || a.forgotAll(w.txn)) && slices.ContainsFunc(c.pending, func(e Event) bool {
		return e.Place.Cluster == a.cluster && a.down <= e.At && e.At <= a.to && w.txn.is(e)
	})
}

// explains reports that the act can be why the coordinator reports this. None of
// them makes a cluster commit against the decision.
func (a act) explains(report Event, t *txn) bool {
	if report.Kind == Reopened {
		return a.kind == Restored && a.down < report.At && a.concerns(t)
	}
	return report.Result != Committed && a.from < report.At && a.concerns(t)
}

// loss says what is to be said of a value that is not visible.
type loss int

const (
	unexcused loss = iota
	reportable
	unknowable
)

// loss looks for an act that explains why the value is not visible. If several do,
// it is the one that asks least of the coordinator.
func (c *checker) loss(w *write) loss {
	found := unexcused
	for _, a := range c.acts {
		switch {
		case !a.loses(c, w):
		case a.known(c, w):
			found = max(found, reportable)
		default:
			found = unknowable
		}
	}
	return found
}

// life is the last one in which a value was seen, -1 when it never was.
func (c *checker) life(value string) int {
	last := -1
	for _, r := range c.seen[value] {
		last = max(last, r.Life)
	}
	return last
}

// told reports that the coordinator has said of the transaction that the cluster
// contradicts.
func (c *checker) told(t *txn, cluster string) bool {
	return slices.ContainsFunc(c.reports, func(e Event) bool {
		return e.Kind == Contradicted && e.Place.Cluster == cluster && t.is(e)
	})
}

// reported judges what the coordinator has reported: each report needs an act that
// explains it, and must not be untrue.
func (c *checker) reported() {
	for _, e := range c.reports {
		about, explained := c.about(e)
		if !explained {
			c.add(HeuristicOutcome, about, "%s of %s on %s, producer %d epoch %d: %s %s, and nothing explains it",
				e.Kind, e.ID, e.Place.Cluster, e.Producer.ID, e.Producer.Epoch, e.Result, e.Detail)
		}
		if e.Kind == Contradicted && e.Result == Aborted && about != nil {
			c.notAborted(about, e)
		}
	}
}

// about finds the transaction that a report names, and whether an act explains it.
func (c *checker) about(report Event) (about *txn, explained bool) {
	for _, id := range c.ids {
		t := c.txns[id]
		if !t.is(report) {
			continue
		}
		if _, named := t.producers[report.Place.Cluster]; about == nil || named {
			about = t
		}
		if slices.ContainsFunc(c.acts, func(a act) bool { return a.cluster == report.Place.Cluster && a.explains(report, t) }) {
			return t, true
		}
	}
	return about, false
}

// notAborted finds what is visible although it was reported as aborted; unless the
// cluster has gone back since to when it was open.
func (c *checker) notAborted(t *txn, report Event) {
	since := func(a act) bool {
		return a.kind == Restored && a.cluster == report.Place.Cluster && a.to > report.At
	}
	for _, w := range t.on[report.Place.Cluster] {
		if c.final[w.value] && !slices.ContainsFunc(c.acts, since) {
			c.add(HeuristicOutcome, t, "%s was reported to have aborted, and %q is visible", report.Place.Cluster, w.value)
			return
		}
	}
}
