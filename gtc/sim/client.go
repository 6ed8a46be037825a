package sim

import (
	"slices"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// phase is where a client stands.
type phase int8

const (
	asleep      phase = iota // not started
	wantsInit                // to ask InitGlobalTxn
	waitsInit                // for its answer
	initialises              // its producers
	ready                    // to begin
	writes                   // to the participants that it has chosen
	written                  // everything is flushed
	wantsEnd                 // to ask EndGlobalTxn, again or for the first time
	waitsEnd                 // for its answer
	aborts                   // on its own producers
	gone                     // finished, fenced or dead
)

var phaseNames = [...]string{
	"asleep", "wants InitGlobalTxn", "waits for InitGlobalTxn", "initialises", "ready", "writes", "written",
	"wants EndGlobalTxn", "waits for EndGlobalTxn", "aborts", "gone",
}

func (p phase) String() string { return phaseNames[p] }

// client is one instance of the application, as gtc/client behaves.
type client struct {
	phase     phase
	instance  byte
	lives     int8  // instances that may still follow
	left      int8  // transactions that it may still begin
	life      int8  // of the id, counted in its expiries
	session   uint8 // the clusters that it names to InitGlobalTxn
	epoch     int32
	sequence  int64 // of the next transaction
	txn       int8  // the present one, -1
	producers [maxClusters]producer
	stale     uint8 // producers to be initialised before use
	todo      uint8 // participants to write to, or to abort on
	waiting   uint8 // participants whose answer is awaited
	// kept: participants that have kept an open transaction for it. owned: the same,
	// and InitGlobalTxn was answered since, so nobody decides about that one any more.
	kept, owned uint8
	// known: the outcome is known, and asking goes on until every
	// participant is complete.
	known    bool
	wantsOut bool // abort is asked for after commit
	aged     bool // its last InitGlobalTxn was long ago
}

func (c *client) alive() bool { return c.phase != asleep && c.phase != gone }

// waits: it cannot go on without an answer.
func (c *client) waits() bool {
	switch c.phase {
	case wantsInit, waitsInit, wantsEnd, waitsEnd:
		return true
	case asleep, initialises, ready, writes, written, aborts, gone:
	}
	return false
}

// response is gtc.Response without its texts.
type response struct {
	code     gtc.Code
	outcome  gtc.Outcome
	life     int8
	epoch    int32
	sequence int64
	listed   uint8
	pending  bool
	next     [maxClusters]producer
}

// codeLoading stands for COORDINATOR_LOAD_IN_PROGRESS, which is the host's.
const codeLoading gtc.Code = -1

func responseOf(r gtc.Response) response {
	out := response{code: r.Code, outcome: r.Outcome, epoch: r.GlobalEpoch, sequence: r.Sequence}
	for _, p := range r.Participants {
		k := clusterOf(p.ClusterID)
		out.listed |= 1 << k
		out.pending = out.pending || p.State == txnlog.ParticipantPending
		out.next[k] = producerOf(p.NextProducerID, p.NextProducerEpoch)
	}
	return out
}

// start begins an instance of the application: over all clusters, or with a choice
// above 0 over one of them alone.
func (w *world) start(i, choice int8) {
	c := &w.clients[i]
	lives, left, session := c.lives, w.shape.txns, w.all()
	if choice > 0 {
		session = 1 << (choice - 1)
	}
	*c = client{phase: wantsInit, instance: w.newInstance(), lives: lives - 1, left: left, txn: -1, session: session, stale: session}
	if w.mutant == withoutR3 {
		c.phase = initialises // and only then InitGlobalTxn
	}
}

func (w *world) all() uint8 { return 1<<w.n - 1 }

func (w *world) newInstance() byte {
	most := byte(0)
	for i := range w.clients {
		most = max(most, w.clients[i].instance)
	}
	return most + 1
}

// ask sends a client's InitGlobalTxn or EndGlobalTxn. Where messages are not
// modelled one by one it arrives at the host at once.
func (w *world) ask(i, h int8) {
	c := &w.clients[i]
	m := message{kind: initRequest, client: i, instance: c.instance, session: c.session, txn: -1, connected: true}
	c.phase++ // wantsInit to waitsInit, wantsEnd to waitsEnd
	if c.phase == waitsEnd {
		x := &w.txns[c.txn]
		m.kind, m.txn, m.commit = endRequest, c.txn, !c.wantsOut
		x.asked = x.asked || m.commit
	}
	if w.fine {
		w.send(m)
		return
	}
	w.receive(h, m)
}

// askLate sends a request that arrives when its sender has stopped waiting.
func (w *world) askLate(i int8) {
	c := &w.clients[i]
	m := message{kind: initRequest, client: i, instance: c.instance, session: c.session, txn: -1}
	if c.phase == wantsEnd {
		m.kind, m.txn, m.commit = endRequest, c.txn, !c.wantsOut
		w.txns[c.txn].asked = w.txns[c.txn].asked || m.commit
	}
	w.send(m)
}

// giveUp stops waiting for an answer. The request may still arrive.
func (w *world) giveUp(i int8) {
	c := &w.clients[i]
	c.phase--
	w.forget(i)
}

// forget makes answers to a client's requests go nowhere.
func (w *world) forget(i int8) {
	for h := range w.hosts {
		t := w.hosts[h].term
		if t == nil || !slices.ContainsFunc(t.calls, func(c call) bool { return c.client == i }) {
			continue
		}
		w.own(int8(h))
		t = w.hosts[h].term
		for j := range t.calls {
			if t.calls[j].client == i {
				t.calls[j].client = -1
			}
		}
	}
	w.bag = slices.DeleteFunc(w.bag, func(m message) bool { return m.kind == answerToClient && m.client == i })
	for j := range w.bag {
		if m := &w.bag[j]; (m.kind == initRequest || m.kind == endRequest) && m.client == i {
			m.connected = false
		}
	}
}

// reply brings an answer to the client that asked, if it still listens.
func (w *world) reply(c call, r response) {
	if c.client < 0 {
		return
	}
	if w.fine {
		w.send(message{kind: answerToClient, client: c.client, connected: true, response: r})
		return
	}
	w.answer(c.client, r)
}

// answer is a client's reaction to what the coordinator says.
func (w *world) answer(i int8, r response) {
	c := &w.clients[i]
	if c.phase != waitsInit && c.phase != waitsEnd {
		return
	}
	w.tracef("    client %d hears code %d, outcome %d, epoch %d, sequence %d", i, r.code, r.outcome, r.epoch, r.sequence)
	switch r.code {
	case codeLoading, gtc.CodeConcurrentTransactions, gtc.CodeParticipantUnavailable:
		c.phase-- // ask again
		return
	case gtc.CodeNone:
	case gtc.CodeUnknownID:
		if w.mutant == sameSession && c.phase == waitsEnd {
			c.stale, c.phase = c.session, wantsInit
			c.txn, c.known, c.wantsOut, c.todo, c.waiting = -1, false, false, 0, 0
			return
		}
		w.leave(i)
		return
	case gtc.CodeHeuristicOutcome, gtc.CodeFenced, gtc.CodeInvalidRequest, gtc.CodeInvalidTxnState,
		gtc.CodeInvalidTimeout, gtc.CodeOutcomeTooOld, gtc.CodeUnknownParticipant,
		gtc.CodeClusterIDMismatch, gtc.CodeNotOptedIn, gtc.CodeParticipantUnauthorized, gtc.CodePolicyViolation:
		w.leave(i)
		return
	}
	if c.phase == waitsInit {
		c.life, c.epoch, c.sequence = r.life, r.epoch, max(c.sequence, r.sequence)
		c.phase, c.aged = initialises, false
		c.owned, c.kept = c.owned|c.kept, 0
		w.initialised(i)
		return
	}
	if r.outcome == gtc.OutcomeUnknown {
		c.phase--
		return
	}
	c.known = true
	if r.pending && (r.outcome == gtc.OutcomeCommitted || w.waitsForAborts) {
		c.phase-- // until every participant is complete, as the library waits
		return
	}
	w.goOn(i, r)
}

// goOn takes the producers past a transaction that is complete.
func (w *world) goOn(i int8, r response) {
	c := &w.clients[i]
	for k := range w.n {
		bit := uint8(1) << k
		switch {
		case r.listed&bit == 0:
			if w.txns[c.txn].listed&bit != 0 {
				c.stale |= bit
			}
		case r.next[k] == again:
			c.stale |= bit
		default:
			c.producers[k] = r.next[k]
		}
	}
	c.sequence = w.txns[c.txn].sequence + 1
	w.finish(i)
}

// finish ends a client's transaction; what cannot be used on is initialised
// again, after InitGlobalTxn (R3).
func (w *world) finish(i int8) {
	c := &w.clients[i]
	c.txn, c.known, c.wantsOut, c.todo, c.waiting = -1, false, false, 0, 0
	switch {
	case c.left == 0:
		w.leave(i)
	case c.stale != 0 || c.aged:
		c.phase = wantsInit
	default:
		c.phase = ready
	}
}

// leave ends an instance: it has finished, was refused, or has died.
func (w *world) leave(i int8) {
	w.forget(i)
	for j := range w.bag {
		if m := &w.bag[j]; m.client == i && (m.kind == initProducer || m.kind == abortTxn) {
			m.connected = false
		}
	}
	w.bag = slices.DeleteFunc(w.bag, func(m message) bool {
		return m.client == i && (m.kind == initProducerReply || m.kind == abortTxnReply)
	})
	c := &w.clients[i]
	*c = client{phase: gone, instance: c.instance, lives: c.lives, txn: -1}
}

// initialise sends InitProducerId to one cluster.
func (w *world) initialise(i int8, k int8) {
	c := &w.clients[i]
	c.waiting |= 1 << k
	m := message{kind: initProducer, client: i, instance: c.instance, life: c.life, epoch: c.epoch, cluster: k, connected: true}
	w.toCluster(m)
}

func (w *world) toCluster(m message) {
	if w.fine {
		w.send(m)
		return
	}
	w.fromCluster(w.atCluster(m))
}

// atCluster carries out what a client sends to a cluster.
func (w *world) atCluster(m message) message {
	c := &w.clusters[m.cluster]
	owner := c.owner()
	switch {
	case m.kind == abortTxn:
		m.code, m.producer = c.endTxn(m.producer, false)
	case c.keepsPrepared && w.mutant != initWithoutKeep:
		m.code, m.producer, m.kept = c.initKeeping()
	default:
		m.code, m.producer = c.initProducerID()
		m.kept = again
		if owner >= 0 && !c.open() {
			w.hit(owner, m)
		}
	}
	if owner >= 0 && !c.open() {
		w.ended(owner, m.cluster, false)
	}
	w.tracef("    %s answers %v, now %v at %d/%d", clusterIDs[m.cluster], m.code, c.state, c.now.id, c.now.epoch)
	m.kind++ // its answer
	return m
}

// hit notes an InitProducerId that aborts what is open. That of a client whose
// session is newer is the protocol, and must tear nothing; nor must its own, where
// no copy of it comes late. That of an older one, or a late copy, is the corner that the protocol cannot close with the
// brokers of today: it counts as somebody from outside, and must be reported. Where
// prepared transactions are kept, there is no such corner.
func (w *world) hit(owner int8, m message) {
	x := &w.txns[owner]
	if w.clusters[m.cluster].keepsPrepared || m.epoch == 0 || m.life > x.life || m.life == x.life && (m.epoch > x.epoch || m.epoch == x.epoch && !w.fine) {
		return
	}
	w.fromOutside(owner, m.cluster, false)
}

func (w *world) fromOutside(owner, cluster int8, commit bool) {
	x := &w.txns[owner]
	x.outsider |= 1 << cluster
	if x.aborted&(1<<cluster) != 0 {
		x.split |= 1 << cluster // the rest of what was aborted, which its client wrote on
	}
	x.doomed = x.doomed || !x.asked && !commit
}

// fromCluster is a client's reaction to a cluster's answer.
func (w *world) fromCluster(m message) {
	c := &w.clients[m.client]
	bit := uint8(1) << m.cluster
	if !m.connected || c.waiting&bit == 0 {
		return
	}
	c.waiting &^= bit
	if m.kind == initProducerReply {
		if m.code == none {
			c.producers[m.cluster] = m.producer
			c.stale &^= bit
			if m.kept != again {
				c.kept |= bit
			}
			w.initialised(m.client)
		}
		return
	}
	if c.owned&bit != 0 {
		c.owned &^= bit
		if m.code == none && m.producer.epoch <= verdict.LastEpoch {
			c.producers[m.cluster] = m.producer
		} else {
			c.stale |= bit
		}
		w.initialised(m.client)
		return
	}
	c.todo &^= bit
	if m.code == none && m.producer.epoch <= verdict.LastEpoch {
		c.producers[m.cluster] = m.producer
	} else {
		c.stale |= bit
	}
	if c.todo == 0 {
		w.finish(m.client)
	}
}

// initialised goes on when no producer is stale. A participant that has kept an open
// transaction for the client is aborted first, by the pair that it was given, and only
// after the client has asked InitGlobalTxn once more: a late InitProducerId is given
// the transaction of the client's successor, which may be decided. While the pair
// counts, nobody has initialised later, and the transaction is of an earlier session
// or its own.
func (w *world) initialised(i int8) {
	c := &w.clients[i]
	if w.mutant == abortsAnyKept {
		c.owned, c.kept = c.owned|c.kept, 0
	}
	switch {
	case c.stale != 0:
	case c.kept != 0:
		c.phase = wantsInit
	case c.owned != 0:
	case c.epoch == 0 || c.aged:
		c.phase = wantsInit // the first is the mutant's order
	default:
		c.phase = ready
	}
}

// begin starts a transaction that writes to some participants and names, beside
// them, others that it has not written to.
func (w *world) begin(i int8, writesTo, listed uint8) {
	c := &w.clients[i]
	c.left--
	c.txn = int8(len(w.txns))
	c.todo = writesTo
	c.phase = writes
	w.txns = append(w.txns, txn{
		client: i, instance: c.instance, life: c.life, epoch: c.epoch, sequence: c.sequence, listed: writesTo | listed, producers: c.producers,
	})
	if w.fine {
		return
	}
	// Writes to different clusters commute with whatever happens on the
	// other cluster, so one order stands for all.
	for k := range int8(w.n) {
		if c.phase == writes && c.todo&(1<<k) != 0 {
			w.write(i, k)
		}
	}
}

// write writes to one participant.
func (w *world) write(i, k int8) {
	c := &w.clients[i]
	x := &w.txns[c.txn]
	cl := &w.clusters[k]
	code := cl.write(c.producers[k], c.txn)
	switch code {
	case none:
		if owner := cl.owner(); owner != c.txn && w.ledger.wentBack&(1<<k) == 0 {
			w.violate("transaction %d writes into transaction %d on %s", c.txn, owner, clusterIDs[k])
		}
		if w.txns[c.txn].outsider&(1<<k) != 0 && cl.version < bumps {
			x.split |= 1 << k
		}
		x.open |= 1 << k
		x.doomed = x.doomed && x.aborted&(1<<k) == 0 // it goes on, and no vote can tell
		c.todo &^= 1 << k
		switch {
		case c.todo != 0:
		case w.fine:
			c.phase = written
		default:
			c.phase = wantsEnd // or abort, see clientMoves
		}
	case concurrent, unreachable: // again
	case invalidTxnState, producerFenced, invalidMapping:
		w.tracef("    %s answers %v: the client gives its transaction up", clusterIDs[k], code)
		c.phase, c.todo = aborts, x.open
		c.stale |= 1<<k | x.aborted | x.committed
		if c.todo == 0 {
			w.finish(i)
		}
	}
}

// abort ends the transaction on the client's own producers.
func (w *world) abort(i int8) {
	c := &w.clients[i]
	c.phase, c.todo = aborts, w.txns[c.txn].open
	c.stale |= w.txns[c.txn].aborted | w.txns[c.txn].committed // by outsiders: it is refused there
	if c.todo == 0 {
		w.finish(i)
	}
}

func (w *world) abortOn(i, k int8) {
	c := &w.clients[i]
	c.waiting |= 1 << k
	p := c.producers[k]
	if c.phase == aborts {
		p = w.txns[c.txn].producers[k]
	}
	w.toCluster(message{kind: abortTxn, client: i, instance: c.instance, cluster: k, producer: p, connected: true})
}
