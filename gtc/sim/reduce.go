package sim

import "slices"

// reduce brings a world into a form that goes on alike and that fewer other
// worlds differ from. Only the search does this; each step says why nothing is
// lost.
func (w *world) reduce() {
	for h := range int8(len(w.hosts)) {
		t := w.hosts[h].term
		switch {
		case t == nil:
		case t.claim == w.log.owner || w.mutant == noFence:
			// Lazy records land together, and the last says it all.
			if n := len(t.lazy); n > 1 {
				w.own(h)
				t = w.hosts[h].term
				t.lazy = slices.Clone(t.lazy[n-1:])
			}
		default:
			// A host that was superseded and has something to append, or is
			// to append when its votes are in, will be fenced, and nothing
			// leaves it before: all effects of the id wait for that append.
			// Until then it does nothing that a slow client or a slow
			// network does not do as well.
			if len(t.lazy) > 0 {
				w.own(h)
				t = w.hosts[h].term
				t.lazy = nil
			}
			if len(t.inflight) > 0 || len(t.looking) > 0 {
				w.endTerm(h, false)
			}
		}
	}
	if w.mutant != withoutR2 {
		w.dropDead()
	}
}

// dropDead takes messages away that can have no effect any more: nobody waits
// for the answer, and the epoch that they name never comes back.
func (w *world) dropDead() {
	w.bag = slices.DeleteFunc(w.bag, func(m message) bool {
		if m.kind != endTxn || m.connected {
			return false
		}
		c := &w.clusters[m.order.cluster]
		p := m.producer
		return c.version >= bumps && p != c.now && (!c.kept || p != c.next) || p.id == c.now.id && p.epoch < c.now.epoch
	})
}
