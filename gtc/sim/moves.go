package sim

import (
	"fmt"
	"slices"
)

// moveKind is one kind of thing that can happen.
type moveKind int8

const (
	mvAsk moveKind = iota // client a asks host b
	mvAskLate
	mvAbortAsked // client a asks for abort from now on
	mvGiveUp
	mvGiveUpCluster // client a no longer waits for cluster b
	mvStart
	mvInitialise // client a on cluster b
	mvBegin      // client a, choice b
	mvWrite      // client a on cluster b
	mvWriteMore
	mvEnd         // client a has decided to commit
	mvAbort       // client a aborts on its own producers
	mvAbortOn     // ... on cluster b
	mvDie         // client a
	mvDeliver     // message a, to host b
	mvBreak       // the connection of message a
	mvDrop        // message a
	mvCopy        // message a
	mvLand        // host a
	mvAck         // host a
	mvLandAck     // host a, both at once
	mvLinger      // host a
	mvFail        // an append of host a
	mvTick        // host a at its next deadline
	mvCheck       // host a
	mvLook        // host a, participant b
	mvVotes       // host a
	mvScan        // host a at cluster b
	mvClaim       // host a
	mvCrash       // host a
	mvPause       // host a
	mvWake        // host a
	mvMarkers     // cluster a
	mvOutsider    // cluster a, choice b
	mvDown        // cluster a
	mvUp          // cluster a
	mvResolve     // host a, action b
	mvClock       // host a, wall clock
	mvGoneForGood // host a, cluster b
	mvAge
	mvKeepCopy // cluster a
	mvGoBack   // cluster a
	mvStranger // host a
	mvDepose   // cluster a
	mvLearn    // cluster a
)

var moveNames = [...]string{
	"client asks", "request under way, arrives late", "client asks for abort from now on", "client gives up waiting",
	"client gives up waiting for cluster", "client starts", "client initialises on", "client begins", "client writes to",
	"client writes more to", "client will commit", "client aborts", "client aborts on", "client dies", "deliver", "connection breaks under",
	"drop", "copy", "append lands", "append acknowledged", "append lands and is acknowledged", "lazy records go", "append fails",
	"time passes", "participants checked", "look at participant", "votes arrive", "scan", "claim", "crash", "pause",
	"wake", "markers written", "outsider", "cluster down", "cluster up", "operator", "wall clock steps",
	"operator gives up", "a long time passes", "a copy is taken", "cluster restored from the copy",
	"scan of a cluster that no session names",
	"transaction coordinator deposed, and does not know", "deposed transaction coordinator learns",
}

// move is one thing that can happen. What a and b mean depends on the kind.
type move struct {
	kind moveKind
	a, b int8
}

func (m move) String() string { return fmt.Sprintf("%s (%d, %d)", moveNames[m.kind], m.a, m.b) }

// moves appends what can happen without a fault.
func (w *world) moves(b []move) []move {
	for i := range int8(maxClients) {
		b = w.clientMoves(b, i)
	}
	for i := range w.bag {
		b = w.deliveries(b, int8(i))
	}
	for h := range int8(len(w.hosts)) {
		b = w.hostMoves(b, h)
	}
	for k := range int8(w.n) {
		c := &w.clusters[k]
		if c.state == prepareCommit || c.state == prepareAbort {
			b = append(b, move{mvMarkers, k, 0})
		}
		if c.down {
			b = append(b, move{mvUp, k, 0})
		}
		if w.deposed[k] != nil {
			b = append(b, move{mvLearn, k, 0})
		}
	}
	return b
}

func (w *world) clientMoves(b []move, i int8) []move {
	c := &w.clients[i]
	switch c.phase {
	case asleep, gone:
		if c.lives > 0 && !w.healing {
			b = append(b, move{mvStart, i, 0})
			for k := range int8(w.n) {
				if w.varied {
					b = append(b, move{mvStart, i, k + 1})
				}
			}
		}
	case wantsInit, wantsEnd:
		if w.fine {
			b = append(b, move{mvAsk, i, -1})
		} else {
			for h := range int8(len(w.hosts)) {
				if w.hosts[h].term != nil {
					b = append(b, move{mvAsk, i, h})
				}
			}
		}
		if c.phase == wantsEnd && !c.known && (!w.txns[c.txn].asked && !w.healing || w.mutant == withoutR4) {
			b = append(b, move{mvAbort, i, 0})
		}
		if w.budget.more > 0 && c.phase == wantsEnd && !w.txns[c.txn].asked {
			b = w.writesOn(b, i)
		}
	case initialises:
		for k := range int8(w.n) {
			switch {
			case c.waiting&(1<<k) != 0:
			case c.stale&(1<<k) != 0:
				b = append(b, move{mvInitialise, i, k})
			case c.owned&(1<<k) != 0:
				b = append(b, move{mvAbortOn, i, k})
			}
		}
	case ready:
		if c.left > 0 && !w.healing {
			for j, s := range w.shape.sets {
				if s.writes&c.session != 0 {
					b = append(b, move{mvBegin, i, int8(j)})
				}
			}
		}
	case writes:
		for k := range int8(w.n) {
			if c.todo&(1<<k) != 0 {
				b = append(b, move{mvWrite, i, k})
			}
		}
	case written:
		b = append(b, move{mvEnd, i, 0}, move{mvAbort, i, 0})
		if w.fine {
			b = w.writesOn(b, i)
		}
	case aborts:
		for k := range int8(w.n) {
			if c.todo&(1<<k) != 0 && c.waiting&(1<<k) == 0 {
				b = append(b, move{mvAbortOn, i, k})
			}
		}
	case waitsInit, waitsEnd:
	}
	return b
}

// writesOn: the client does not know whether what it has written is still open.
func (w *world) writesOn(b []move, i int8) []move {
	x := &w.txns[w.clients[i].txn]
	for k := range int8(w.n) {
		if (x.open|x.aborted|x.committed)&(1<<k) != 0 {
			b = append(b, move{mvWriteMore, i, k})
		}
	}
	return b
}

func (w *world) deliveries(b []move, i int8) []move {
	m := &w.bag[i]
	switch m.kind {
	case initRequest, endRequest:
		for h := range int8(len(w.hosts)) {
			if w.hosts[h].term != nil && !w.hosts[h].paused {
				b = append(b, move{mvDeliver, i, h})
			}
		}
	case endTxnReply, keepTxnReply, scanResult:
		if !w.hosts[m.host].paused {
			b = append(b, move{mvDeliver, i, m.host})
		}
	case answerToClient, endTxn, keepTxn, initProducer, initProducerReply, abortTxn, abortTxnReply:
		b = append(b, move{mvDeliver, i, 0})
	}
	return b
}

func (w *world) hostMoves(b []move, h int8) []move {
	host := &w.hosts[h]
	t := host.term
	switch {
	case host.paused:
		return append(b, move{mvWake, h, 0})
	case t == nil:
		return b
	}
	if t.unlanded() >= 0 {
		if w.fine {
			b = append(b, move{mvLand, h, 0})
		} else {
			b = append(b, move{mvLandAck, h, 0})
		}
	}
	if w.fine && len(t.inflight) > 0 && t.inflight[0].landed {
		b = append(b, move{mvAck, h, 0})
	}
	if len(t.lazy) > 0 && (w.fine || w.healing || t.claim == w.log.owner && w.budget.claims > 0) {
		b = append(b, move{mvLinger, h, 0})
	}
	if len(t.checks) > 0 {
		b = append(b, move{mvCheck, h, 0})
	}
	for i, l := range t.looking {
		if l.complete() {
			b = append(b, move{mvVotes, h, int8(i)})
		}
		for p := range l.effect.Participants {
			if l.seen&(1<<p) == 0 {
				b = append(b, move{mvLook, h, int8(i*maxClusters + p)})
			}
		}
	}
	if w.budget.ticks != 0 && w.mutant != forgottenDeadline && w.mayTick(h) {
		b = append(b, move{mvTick, h, 0})
	}
	if w.budget.scans > 0 {
		for k := range int8(w.n) {
			b = append(b, move{mvScan, h, k})
		}
	}
	return b
}

// mayTick: the machine waits for a time. Where nothing expires, the sweep for
// expired ids, half an hour away, is no such time.
func (w *world) mayTick(h int8) bool {
	host := &w.hosts[h]
	at, ok := host.term.machine.NextDeadline()
	return ok && (w.fine || at < host.clock.Mono+sweepIsFar)
}

const sweepIsFar = 100_000

// faults appends what can go wrong, as far as the budget goes.
func (w *world) faults(b []move) []move {
	for i := range int8(maxClients) {
		b = w.clientFaults(b, i)
	}
	for i := range w.bag {
		b = w.messageFaults(b, int8(i))
	}
	for h := range int8(len(w.hosts)) {
		b = w.hostFaults(b, h)
	}
	if w.budget.outsiders > 0 {
		for k := range int8(w.n) {
			if w.clusters[k].known {
				for choice := range int8(w.shape.outsiders) {
					b = append(b, move{mvOutsider, k, choice})
				}
			}
		}
	}
	if w.fine {
		for k := range int8(w.n) {
			if !w.clusters[k].down {
				b = append(b, move{mvDown, k, 0})
			}
		}
		if w.mayAge() {
			b = append(b, move{mvAge, 0, 0})
		}
	}
	if w.budget.strangers > 0 {
		for h := range int8(len(w.hosts)) {
			if w.hosts[h].term != nil && !w.hosts[h].paused {
				b = append(b, move{mvStranger, h, 0})
			}
		}
	}
	if w.budget.deposals > 0 {
		for k := range int8(w.n) {
			c := &w.clusters[k]
			if !c.known || w.deposed[k] != nil {
				continue
			}
			if b = append(b, move{mvDepose, k, 0}); c.version >= bumps {
				b = append(b, move{mvDepose, k, 1})
			}
		}
	}
	if w.budget.goBacks > 0 {
		for k := range int8(w.n) {
			if w.clusters[k].known {
				b = append(b, move{mvKeepCopy, k, 0})
			}
			if w.copies[k] != nil {
				b = append(b, move{mvGoBack, k, 0})
			}
		}
	}
	return b
}

// mayAge: no client is in the middle of its writing. One that is has begun
// within an hour of its last InitGlobalTxn, and its timeout is shorter than the
// expiration by far.
func (w *world) mayAge() bool {
	writing := func(c client) bool { return c.phase == writes || c.phase == written }
	return w.budget.ages > 0 && !slices.ContainsFunc(w.clients[:], writing)
}

func (w *world) clientFaults(b []move, i int8) []move {
	c := &w.clients[i]
	if w.budget.giveUps > 0 && (c.phase == waitsInit || c.phase == waitsEnd) {
		b = append(b, move{mvGiveUp, i, 0})
	}
	if w.budget.late > 0 && !w.fine && (c.phase == wantsInit || c.phase == wantsEnd) {
		b = append(b, move{mvAskLate, i, 0})
	}
	if c.phase == wantsEnd && !c.wantsOut && !c.known && w.txns[c.txn].asked {
		b = append(b, move{mvAbortAsked, i, 0})
	}
	if w.fine {
		if w.budget.deaths > 0 && c.alive() {
			b = append(b, move{mvDie, i, 0})
		}
		for k := range int8(w.n) {
			if c.waiting&(1<<k) != 0 {
				b = append(b, move{mvGiveUpCluster, i, k})
			}
		}
	}
	return b
}

func (w *world) messageFaults(b []move, i int8) []move {
	m := &w.bag[i]
	if w.budget.breaks > 0 && m.connected && m.toldToCluster() && !m.concluded {
		b = append(b, move{mvBreak, i, 0})
	}
	if !w.fine {
		return b // never delivered is lost
	}
	if !m.connected || m.kind == answerToClient {
		b = append(b, move{mvDrop, i, 0})
	}
	if w.budget.late > 0 && m.connected && (m.kind == initRequest || m.kind == endRequest || (m.kind == endTxn || m.kind == keepTxn) && m.order.version >= bumps) {
		b = append(b, move{mvCopy, i, 0})
	}
	return b
}

func (w *world) hostFaults(b []move, h int8) []move {
	host := &w.hosts[h]
	t := host.term
	if w.budget.claims > 0 && !host.paused && (t == nil || t.claim != w.log.owner) {
		b = append(b, move{mvClaim, h, 0})
	}
	if t == nil {
		return b
	}
	if w.budget.failures > 0 && len(t.inflight) > 0 && !host.paused {
		b = append(b, move{mvFail, h, 0})
	}
	if w.budget.crashes > 0 {
		b = append(b, move{mvCrash, h, 0})
	}
	for k := range int8(w.n) {
		if w.budget.gaveUp > 0 && !host.paused && len(w.pendingOn(h, k)) > 0 {
			b = append(b, move{mvGoneForGood, h, k})
		}
	}
	if w.fine {
		if !host.paused {
			b = append(b, move{mvPause, h, 0})
			if w.budget.resolves > 0 {
				b = append(b, move{mvResolve, h, 0}, move{mvResolve, h, 1}, move{mvResolve, h, 2})
			}
		}
		b = append(b, move{mvClock, h, 0}, move{mvClock, h, 1})
	}
	return b
}
