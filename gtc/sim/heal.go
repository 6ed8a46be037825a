package sim

import "github.com/kafka-gtc/kafka-gtc/gtc"

// How long everything may take when no fault is left. The numbers are generous:
// they tell "slow" from "never".
const (
	quietMoves = 4000
	healRounds = 60
)

// settle is the last phase of every run. All faults heal: clusters are up, no
// host is paused, one owns the partition. Clients that have not asked for
// anything die, the others go on asking. Then everybody gets time, and what
// must be true at last is checked.
func (w *world) settle() {
	w.tracef("everything heals")
	w.healing = true
	for i := range int8(maxClients) {
		if c := &w.clients[i]; c.alive() && !c.waits() {
			w.leave(i)
		}
	}
	for h := range w.hosts {
		w.hosts[h].paused = false
	}
	for k := range w.n {
		w.clusters[k].down = false
	}
	clear(w.deposed[:])
	w.budget = budget{ticks: -1}
	for h := range int8(len(w.hosts)) {
		w.own(h)
	}
	w.quieten()
	owner := w.owner()
	if owner < 0 {
		owner = 0
		w.claim(owner)
	}
	w.answerEverybody(owner)
	if w.bad != "" {
		return
	}
	// What dead clients have left open ends within its timeout after one scan.
	w.tracef("one scan of every cluster")
	w.budget.scans = maxClusters
	for k := range int8(w.n) {
		w.scan(owner, k)
	}
	w.budget.scans = 0
	w.quieten()
	until := w.hosts[owner].clock.Mono + int64(w.sessionTimeout)
	for range healRounds {
		if owner = w.owner(); owner < 0 {
			w.violate("the owner was lost while nothing failed")
			return
		}
		host := &w.hosts[owner]
		at, ok := host.term.machine.NextDeadline()
		if w.mutant != forgottenDeadline && ok && at <= until {
			w.tick(owner)
		}
		w.quieten()
	}
	w.answerEverybody(owner)
	if w.bad == "" {
		w.checkSettled()
	}
}

// answerEverybody lets clients ask and deadlines come until nobody waits.
func (w *world) answerEverybody(owner int8) {
	for range healRounds {
		waiting := false
		for i := range int8(maxClients) {
			c := &w.clients[i]
			waiting = waiting || c.alive()
			if c.phase == wantsInit || c.phase == wantsEnd {
				w.tracef("client %d asks: %s", i, w.question(i))
				w.ask(i, owner)
			}
			w.quieten()
			if c.alive() && !c.waits() {
				w.leave(i)
			}
		}
		w.quieten()
		pending := w.log.last != nil && w.hosts[owner].term != nil && busy(w.hosts[owner].term.machine, w.hosts[owner].clock)
		if !waiting && !pending || w.bad != "" {
			return
		}
		for h := range int8(len(w.hosts)) {
			if w.hosts[h].term != nil && w.mayTick(h) && w.mutant != forgottenDeadline {
				w.tracef("host %d: time passes", h)
				w.tick(h)
			}
		}
		w.quieten()
		if o := w.owner(); o >= 0 {
			owner = o
		}
	}
}

// busy: something of the id is under way that needs no client.
func busy(m *gtc.Machine, now gtc.Time) bool {
	d, ok := m.Describe(now, globalID)
	return ok && (d.State == gtc.NamePrepareCommit || d.State == gtc.NamePrepareAbort || len(d.Value.Leftovers) > 0)
}

// owner is the host that the log accepts, -1 when none is.
func (w *world) owner() int8 {
	for h := range int8(len(w.hosts)) {
		if t := w.hosts[h].term; t != nil && t.claim == w.log.owner {
			return h
		}
	}
	return -1
}

// quieten makes happen what can, in order, until only clients and clocks could
// go on.
func (w *world) quieten() {
	var buf [64]move
	for range quietMoves {
		if w.bad != "" {
			return
		}
		next, found := w.nextQuiet(buf[:0])
		if !found {
			return
		}
		w.do(next)
	}
	w.violate("it never becomes quiet")
}

// inProgress are the moves that need neither a client nor a clock.
var inProgress = [len(moveNames)]bool{
	mvDeliver: true, mvLand: true, mvAck: true, mvLandAck: true, mvLinger: true, mvCheck: true, mvLook: true, mvVotes: true,
	mvMarkers: true, mvLearn: true,
}

func (w *world) nextQuiet(b []move) (move, bool) {
	owner := w.owner()
	var last move // of what is tried again and again until something else has happened
	found := false
	for _, m := range w.moves(b) {
		switch k := m.kind; {
		case k == mvDeliver:
			request := w.bag[m.a].kind == initRequest || w.bag[m.a].kind == endRequest
			if !request || m.b == owner {
				return m, true
			}
		case inProgress[k]:
			return m, true
		case k == mvInitialise || k == mvAbortOn:
			last, found = m, true
		}
	}
	return last, found
}
