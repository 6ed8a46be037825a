package sim

import (
	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// shape is what clients write and what outsiders do.
type shape struct {
	txns int8 // of each instance
	// sets are the choices of a client that begins: the participants that
	// it writes to, and those that it names.
	sets []set
	// outsiders is how many of the outsiders' actions are possible:
	// initialise, abort, initialise with the expected epoch, commit.
	outsiders int
}

type set struct{ writes, listed uint8 }

// do makes a move happen.
func (w *world) do(m move) {
	if w.trace != nil {
		w.tracef("%s", w.describe(m))
	}
	actions[m.kind](w, m)
	if !w.fine {
		w.reduce()
	}
}

// actions carry the moves out.
var actions = [...]func(w *world, m move){
	mvAsk: func(w *world, m move) { w.ask(m.a, m.b) },
	mvAskLate: func(w *world, m move) {
		w.budget.late--
		w.askLate(m.a)
	},
	mvAbortAsked: func(w *world, m move) { w.clients[m.a].wantsOut = true },
	mvGiveUp: func(w *world, m move) {
		w.budget.giveUps--
		w.giveUp(m.a)
	},
	mvGiveUpCluster: func(w *world, m move) { w.giveUpCluster(m.a, m.b) },
	mvStart:         func(w *world, m move) { w.start(m.a, m.b) },
	mvInitialise:    func(w *world, m move) { w.initialise(m.a, m.b) },
	mvBegin: func(w *world, m move) {
		s := w.shape.sets[m.b]
		session := w.clients[m.a].session
		w.begin(m.a, s.writes&session, s.listed&session)
	},
	mvWrite: func(w *world, m move) { w.write(m.a, m.b) },
	mvWriteMore: func(w *world, m move) {
		if !w.fine {
			w.budget.more--
		}
		w.clients[m.a].phase, w.clients[m.a].todo = writes, 1<<m.b
	},
	mvEnd:     func(w *world, m move) { w.clients[m.a].phase = wantsEnd },
	mvAbort:   func(w *world, m move) { w.abort(m.a) },
	mvAbortOn: func(w *world, m move) { w.abortOn(m.a, m.b) },
	mvDie: func(w *world, m move) {
		w.budget.deaths--
		w.leave(m.a)
	},

	mvDeliver: func(w *world, m move) { w.deliver(w.take(int(m.a)), m.b) },
	mvBreak: func(w *world, m move) {
		w.budget.breaks--
		w.breakConnection(int(m.a))
	},
	mvDrop: func(w *world, m move) {
		if lost := w.take(int(m.a)); lost.kind == answerToClient {
			w.giveUp(lost.client)
		}
	},
	mvCopy: func(w *world, m move) {
		w.budget.late--
		c := w.bag[m.a]
		c.connected = false
		w.send(c)
	},

	mvLand: func(w *world, m move) { w.land(m.a) },
	mvAck:  func(w *world, m move) { w.acknowledge(m.a) },
	mvLandAck: func(w *world, m move) {
		if w.land(m.a); w.hosts[m.a].term != nil {
			w.acknowledge(m.a)
		}
	},
	mvLinger: func(w *world, m move) { w.linger(m.a) },
	mvFail: func(w *world, m move) {
		w.budget.failures--
		w.endTerm(m.a, false)
	},
	mvTick:  func(w *world, m move) { w.tick(m.a) },
	mvCheck: func(w *world, m move) { w.check(m.a) },
	mvLook:  func(w *world, m move) { w.look(m.a, int(m.b)/maxClusters, int(m.b)%maxClusters) },
	mvVotes: func(w *world, m move) { w.deliverVotes(m.a, int(m.b)) },
	mvScan:  func(w *world, m move) { w.scan(m.a, m.b) },
	mvClaim: func(w *world, m move) {
		w.budget.claims--
		w.claim(m.a)
	},
	mvCrash: func(w *world, m move) {
		w.budget.crashes--
		w.endTerm(m.a, true)
	},
	mvPause: func(w *world, m move) { w.hosts[m.a].paused = true },
	mvWake:  func(w *world, m move) { w.hosts[m.a].paused = false },
	mvResolve: func(w *world, m move) {
		w.budget.resolves--
		w.resolve(m.a, gtc.ResolveAction(m.b))
	},
	mvGoneForGood: func(w *world, m move) {
		w.budget.gaveUp--
		w.goneForGood(m.a, m.b)
	},
	mvAge: func(w *world, _ move) {
		w.budget.ages--
		w.age()
	},
	mvKeepCopy: func(w *world, m move) {
		c := w.clusters[m.a]
		w.copies[m.a] = &c
	},
	mvGoBack: func(w *world, m move) {
		w.budget.goBacks--
		w.goBack(m.a)
	},
	mvDepose: func(w *world, m move) {
		w.budget.deposals--
		c := w.clusters[m.a]
		w.deposed[m.a] = &c
		w.clusters[m.a].broker++
		w.looksOnly = w.looksOnly&^(1<<m.a) | uint8(m.b)<<m.a
	},
	mvLearn: func(w *world, m move) { w.deposed[m.a] = nil },
	mvStranger: func(w *world, m move) {
		w.budget.strangers--
		w.scanStranger(m.a)
	},
	mvClock: func(w *world, m move) { w.hosts[m.a].clock.Wall += []int64{-3_600_000, 3_600_000}[m.b] },

	mvMarkers: func(w *world, m move) { w.clusters[m.a].complete() },
	mvOutsider: func(w *world, m move) {
		w.budget.outsiders--
		w.outsider(m.a, m.b)
	},
	mvDown: func(w *world, m move) { w.clusters[m.a].down = true },
	mvUp:   func(w *world, m move) { w.clusters[m.a].down = false },
}

// giveUpCluster stops waiting for a cluster's answer to InitProducerId or to
// the client's own abort. What was sent may still arrive.
func (w *world) giveUpCluster(i, k int8) {
	c := &w.clients[i]
	for j := len(w.bag) - 1; j >= 0; j-- {
		m := &w.bag[j]
		if m.client != i || m.cluster != k {
			continue
		}
		switch m.kind {
		case initProducer, abortTxn:
			m.connected = false
		case initProducerReply, abortTxnReply:
			w.take(j)
		case initRequest, endRequest, answerToClient, endTxn, endTxnReply, scanResult, keepTxn, keepTxnReply:
		}
	}
	c.waiting &^= 1 << k
	if c.owned&(1<<k) != 0 {
		c.owned &^= 1 << k
		c.stale |= 1 << k
	}
	if c.phase == aborts {
		// Unknown whether it was aborted: no epoch to go on with.
		c.stale |= 1 << k
		c.todo &^= 1 << k
		if c.todo == 0 {
			w.finish(i)
		}
	}
}

func (w *world) deliver(m message, h int8) {
	switch m.kind {
	case initRequest, endRequest:
		w.receive(h, m)
	case answerToClient:
		w.answer(m.client, m.response)
	case endTxn:
		m.code, m.producer = w.execute(m.order, m.producer, m.over)
		if m.connected {
			m.kind = endTxnReply
			w.send(m)
		}
	case keepTxn:
		if w.keep(&m); m.connected {
			m.kind = keepTxnReply
			w.send(m)
		}
	case endTxnReply, keepTxnReply:
		w.own(h)
		w.endAnswered(h, m)
	case scanResult:
		w.own(h)
		ev := gtc.ScanCompleted{ClusterID: clusterIDs[m.cluster], BeganMono: m.began}
		switch {
		case m.code != none:
			ev.Failed = "unreachable"
		case m.isOpen:
			ev.Open = []gtc.OpenTransaction{m.open}
		}
		w.step(h, ev)
		w.checkAge(h, m)
	case initProducer, abortTxn:
		if r := w.atCluster(m); r.connected {
			w.send(r)
		}
	case initProducerReply, abortTxnReply:
		w.fromCluster(m)
	}
}

// endAnswered takes the answer to an EndTxn to the machine of the term that
// sent it.
func (w *world) endAnswered(h int8, m message) {
	host := &w.hosts[h]
	a := m.answer.full()
	if !m.concluded {
		var more bool
		if a, more = w.answered(h, m); more {
			return
		}
	}
	if at := host.attempt(m.order); at != nil && (!m.concluded || a.Outcome != gtc.EndRetry || !at.sentBy(w, h, m.order)) {
		at.busy = false
		if a.Outcome != gtc.EndRetry && a.Outcome != gtc.EndUnfenced {
			host.settled(m.order)
		}
	}
	o := m.order
	if a.Outcome != gtc.EndRetry {
		host.term.seen, host.term.endedAt[m.order.cluster] = nil, host.clock.Mono+1 // looks that have begun before are no news
	}
	w.step(h, gtc.EndAnswered{
		ID: globalID, Sequence: o.sequence, Participant: refOf(o.cluster, o.producer), Answer: a,
	})
}

// sentBy reports whether a request of this attempt is under way: an answer that
// needed no request then is not its end.
func (*attempt) sentBy(w *world, h int8, o endOrder) bool {
	for i := range w.bag {
		m := &w.bag[i]
		if m.host == h && m.connected && m.toldToCluster() &&
			m.order.cluster == o.cluster && m.order.producer == o.producer {
			return true
		}
	}
	return false
}

// toldToCluster: it is a part of telling a cluster a decision.
func (m *message) toldToCluster() bool {
	return m.kind == endTxn || m.kind == endTxnReply || m.kind == keepTxn || m.kind == keepTxnReply
}

// breakConnection cuts the connection under an EndTxn. The sender learns that
// its fate is unknown; the request, if it has not arrived, may still do so.
func (w *world) breakConnection(i int) {
	m := w.bag[i]
	w.own(m.host)
	if m.kind == endTxn || m.kind == keepTxn {
		w.bag[i].connected = false
	} else {
		w.take(i)
	}
	host := &w.hosts[m.host]
	e := w.ending(m.host, m.order)
	if m.kind == endTxn || m.kind == endTxnReply {
		e.Lost(errUnreachable, true)
	} else {
		e.Failed(errUnreachable)
	}
	if at := host.attempt(m.order); at != nil {
		at.busy = false
	}
	w.send(message{
		kind: endTxnReply, host: m.host, term: m.term, connected: true, order: m.order, concluded: true, answer: compact(e.Answer()),
	})
}

// tick lets the next deadline of a host come. Each host has clocks of its own.
func (w *world) tick(h int8) {
	w.own(h)
	host := &w.hosts[h]
	if w.budget.ticks > 0 {
		w.budget.ticks--
	}
	clear(w.deposed[:]) // it learns within milliseconds of waking up
	at, _ := host.term.machine.NextDeadline()
	if d := at - host.clock.Mono; d > 0 {
		host.clock.Mono += d
		if w.fine { // the search needs no second clock, and fewer worlds
			host.clock.Wall += d
		}
		w.tracef("    %d ms later", d)
	}
	if w.mutant != forgottenDeadline {
		w.step(h, gtc.Tick{})
	}
}

// scan looks at one cluster. Where messages are modelled one by one, what was
// seen is under way for a while.
func (w *world) scan(h, k int8) {
	w.budget.scans--
	c := &w.clusters[k]
	m := message{kind: scanResult, host: h, term: w.hosts[h].term.claim, connected: true, cluster: k, began: w.hosts[h].clock.Mono}
	if c.down {
		m.code = unreachable
	}
	if seen := w.asked(k); seen.open() && w.hosts[h].term.machine.Knows(globalID) {
		m.isOpen, m.open = true, seen.openOf()
	}
	if w.fine {
		w.send(m)
		return
	}
	w.deliver(m, h)
}

func (w *world) resolve(h int8, action gtc.ResolveAction) {
	w.own(h)
	t := w.hosts[h].term
	id := t.freeRequest()
	t.calls = append(t.calls, call{request: id, client: -1, txn: -1})
	if action == gtc.ResolveForget {
		w.ledger.forgiven = true
	}
	w.step(h, gtc.ResolveRequest{Request: id, ID: globalID, Action: action})
}

// goneForGood lets an operator give a cluster up. From then on whatever happens
// there to what was pending is his doing.
func (w *world) goneForGood(h, k int8) {
	w.own(h)
	for _, o := range w.pendingOn(h, k) {
		if x := w.meantBy(o); x >= 0 {
			w.txns[x].outsider |= 1 << k
		}
		w.ledger.givenUp++
	}
	t := w.hosts[h].term
	t.seen, t.endedAt[k] = nil, w.hosts[h].clock.Mono+1
	id := t.freeRequest()
	t.calls = append(t.calls, call{request: id, client: -1, txn: -1})
	w.step(h, gtc.ResolveRequest{Request: id, ID: globalID, Action: gtc.ResolveGiveUp, ClusterID: clusterIDs[k]})
}

// pendingOn are the participants on a cluster that a host is telling a decision.
func (w *world) pendingOn(h, k int8) (orders []endOrder) {
	v := w.hosts[h].term.machine.Value(globalID)
	if v == nil {
		return nil
	}
	for _, p := range v.Participants {
		if clusterOf(p.ClusterID) == k && p.State == txnlog.ParticipantPending {
			orders = append(orders, endOrder{
				cluster: k, producer: producerOf(p.ProducerID, p.ProducerEpoch), start: startOf(p.StartMillis), sequence: v.Sequence,
			})
		}
	}
	return orders
}

// scanStranger looks at a cluster that no session of the id names, and where a
// transaction of the same name is open: an ordinary transactional id, or a cluster
// behind an address that belonged to another.
func (w *world) scanStranger(h int8) {
	w.own(h)
	began := w.hosts[h].clock.Mono
	if w.fine {
		began++ // the time of the step
	}
	w.step(h, gtc.ScanCompleted{ClusterID: strangerID, BeganMono: began, Failed: "not one of the clusters that are counted", Open: []gtc.OpenTransaction{{
		ID: globalID, ProducerID: 99, EndTxnVersion: bumps, AuditTopic: auditTopic, StartMillis: 1,
	}}})
}

const strangerID = "Z"

// goBack restores a cluster from the copy: it forgets what it has acknowledged
// since, as one does whose transaction log elects an unclean leader. What that
// changes is nobody's doing within the protocol.
func (w *world) goBack(k int8) {
	c := &w.clusters[k]
	old := *w.copies[k]
	old.began, old.nextID, old.down = c.began, c.nextID, c.down
	*c = old
	w.ledger.wentBack |= 1 << k
	w.tracef("    now %v at %d/%d", c.state, c.now.id, c.now.epoch)
	for t := range w.txns {
		x := &w.txns[t]
		bit := uint8(1) << k
		var now txn
		for _, m := range c.history {
			switch {
			case int(m.txn) != t:
			case m.ended == completeCommit:
				now.committed |= bit
			case m.ended == completeAbort:
				now.aborted |= bit
			case m.ended == ongoing:
				now.open |= bit
			}
		}
		if (x.open^now.open|x.committed^now.committed|x.aborted^now.aborted)&bit == 0 {
			continue
		}
		x.open, x.committed, x.aborted = x.open&^bit|now.open, x.committed&^bit|now.committed, x.aborted&^bit|now.aborted
		x.outsider |= bit
	}
}

// age lets the time pass in which an idle id expires. Hosts that run have gone
// on looking at the clusters, and clients know that their last InitGlobalTxn was
// long ago.
func (w *world) age() {
	clear(w.deposed[:])
	for h := range int8(len(w.hosts)) {
		w.own(h)
		host := &w.hosts[h]
		host.clock.Mono += w.machine.ExpirationMillis
		host.clock.Wall += w.machine.ExpirationMillis
		if host.term == nil || host.paused {
			continue
		}
		host.term.seen = nil
		for k := range int8(w.n) {
			c := &w.clusters[k]
			ev := gtc.ScanCompleted{ClusterID: clusterIDs[k], BeganMono: host.clock.Mono + 1} // when the step is
			switch {
			case c.down:
				ev.Failed = "unreachable"
			case c.open() && host.term.machine.Knows(globalID):
				ev.Open = []gtc.OpenTransaction{c.openOf()}
			}
			w.step(h, ev)
		}
		w.step(h, gtc.Tick{})
	}
	for i := range w.clients {
		switch c := &w.clients[i]; c.phase {
		case ready:
			c.phase = wantsInit
		case waitsInit, waitsEnd:
			w.giveUp(int8(i))
			c.aged = true
		case wantsInit, initialises, writes, written, wantsEnd, aborts:
			c.aged = true
		case asleep, gone:
		}
	}
}

// outsider is somebody who uses the transactional id without being of the
// protocol.
func (w *world) outsider(k, choice int8) {
	c := &w.clusters[k]
	owner := c.owner()
	commit := choice == 3
	switch choice {
	case 0:
		c.initProducerID()
	case 1, 3:
		c.endTxn(c.now, commit)
	case 2:
		c.initExpecting(c.now)
	}
	w.tracef("    now %v at %d/%d", c.state, c.now.id, c.now.epoch)
	if owner >= 0 && !c.open() {
		w.fromOutside(owner, k, commit)
		w.ended(owner, k, commit)
	}
}
