// Package sim runs the coordinator's real core (gtc.Machine) in a small world:
// a log with claims, processes that are paused and die, clients that fence one
// another, and a model of Kafka's transaction coordinator as participant.
//
// Nothing in the world happens by itself. World.moves lists what can happen
// next and world.do makes it happen. The simulator (Simulate) draws moves from
// a seeded generator; the search (Search) tries them all. After every move the
// promises of KIP.md are checked, and at the end, when every fault has healed,
// that nothing is left open and nobody without an answer.
//
// Deliberately broken variants (Mutants) change the world around the core, not
// the core, and each must be found.
package sim

import (
	"fmt"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

const (
	maxClusters = 3
	maxClients  = 2
	globalID    = "pay"
)

// world is the whole state. It is copied by clone and compared by encode.
type world struct {
	settings
	clusters [maxClusters]cluster
	copies   [maxClusters]*cluster // never changed, see goBack
	deposed  [maxClusters]*cluster // never changed, see asked
	// looksOnly: clusters of which looks alone reach the deposed one. Requests go over
	// connections of their own, and another one has learned already.
	looksOnly uint8
	hosts     [2]host
	clients   [maxClients]client
	log       partition
	txns      []txn
	bag       []message // under way, in the order of sending
	budget    budget
	// told is the checker's memory beyond single transactions.
	ledger ledger
	// bad is the first promise that was broken.
	bad   string
	trace func(string)
}

// settings do not change while a world runs.
type settings struct {
	n              int // participant clusters
	fine           bool
	machine        gtc.Config
	mutant         Mutant
	sessionTimeout int32
	patience       int32 // a client's TimeoutMillis
	deepCheck      bool  // gtc.Machine.Check after every step
	retention      bool  // audits find no markers
	shape          shape // what clients write
	healing        bool  // no fault any more; clients begin nothing new
	outcomesOnly   bool  // an EndTxn may leave before its record
	varied         bool  // sessions over some of the clusters
	waitsForAborts bool  // clients ask until an abort, too, is complete everywhere
}

// partition is the log: who may append, and the last record of the id, which is
// all that a replay needs.
type partition struct {
	owner int32
	last  *txnlog.Record
}

// budget bounds what a world may still suffer. The simulator's is large.
type budget struct {
	claims    int8 // takeovers and restarts
	crashes   int8
	breaks    int8 // connections cut under an EndTxn
	giveUps   int8 // of clients that wait, by which requests are repeated
	late      int8 // requests that arrive when their sender listens no more
	scans     int8
	more      int8 // times that a client writes on before it asks
	ticks     int8 // -1: unlimited
	outsiders int8
	failures  int8 // of appends
	deaths    int8 // of clients
	resolves  int8 // by an operator
	gaveUp    int8 // clusters that an operator gives up
	ages      int8 // times in which ids expire
	goBacks   int8 // clusters that are restored from a copy
	strangers int8 // looks at a cluster that no session names
	deposals  int8 // transaction coordinators that answer from their cache of before
}

// kind is the kind of a message.
type kind int8

const (
	initRequest kind = iota // client to coordinator
	endRequest
	answerToClient
	endTxn // coordinator to cluster
	endTxnReply
	scanResult
	initProducer // client to cluster
	initProducerReply
	abortTxn
	abortTxnReply
	keepTxn // coordinator to cluster: InitProducerId with KeepPreparedTxn
	keepTxnReply
)

var kindNames = [...]string{
	"InitGlobalTxn", "EndGlobalTxn", "answer", "EndTxn", "answer to EndTxn", "scan",
	"InitProducerId", "answer to InitProducerId", "client's EndTxn(abort)", "answer to client's EndTxn(abort)",
	"InitProducerId(keep)", "answer to InitProducerId(keep)",
}

// message is one message under way. It is comparable, so that worlds are.
type message struct {
	kind   kind
	client int8
	host   int8
	term   int32
	// connected: the sender still waits for the answer. The others are
	// copies that arrive late, or never.
	connected bool

	instance byte // of the client that sent it
	life     int8
	session  uint8 // of an InitGlobalTxn
	epoch    int32
	txn      int8
	commit   bool
	cluster  int8
	producer producer
	kept     producer // open transaction that an InitProducerId has kept
	code     code

	order     endOrder
	concluded bool // answer stands, the cluster was not asked
	answer    answer
	response  response
	open      gtc.OpenTransaction
	isOpen    bool
	over      route // of an EndTxn
	began     int64 // of a scan
}

func (w *world) send(m message) { w.bag = append(w.bag, m) }

func (w *world) take(i int) message {
	m := w.bag[i]
	w.bag = slices.Delete(w.bag, i, i+1)
	return m
}

// clone returns a world that goes on independently.
func (w *world) clone() *world {
	for i := range w.hosts {
		w.hosts[i].shared = true
	}
	c := *w
	c.txns, c.bag = slices.Clone(w.txns), slices.Clone(w.bag)
	c.ledger.landed = slices.Clone(w.ledger.landed)
	return &c // histories of clusters are copied before they are changed
}

// own makes a host this world's alone, before it is changed.
func (w *world) own(h int8) {
	host := &w.hosts[h]
	if host.shared {
		host.shared, host.term, host.attempts = false, host.term.clone(), slices.Clone(host.attempts)
	}
}

func (w *world) violate(format string, args ...any) {
	if w.bad == "" {
		w.bad = fmt.Sprintf(format, args...)
		w.tracef("    VIOLATION: %s", w.bad)
	}
}

func (w *world) tracef(format string, args ...any) {
	if w.trace != nil {
		w.trace(fmt.Sprintf(format, args...))
	}
}

// execute lets a cluster carry an EndTxn out and holds what it did against what
// it was meant for.
func (w *world) execute(o endOrder, by producer, over route) (code, producer) {
	c := &w.clusters[o.cluster]
	owner := c.owner()
	var (
		answer code
		next   producer
	)
	if w.mutant == withoutR2 && !o.commit {
		// A bare InitProducerId instead.
		answer, next = c.initProducerID()
		if answer == concurrent {
			answer, next = none, again
		}
	} else {
		answer, next = w.endTxn(o, by, over)
	}
	w.tracef("    %s answers %v, now %v at %d/%d", clusterIDs[o.cluster], answer, c.state, c.now.id, c.now.epoch)
	if owner < 0 || c.open() {
		return answer, next
	}
	w.ended(owner, o.cluster, o.commit)
	// Below EndTxn v5 an abort by the scan may hit the next transaction of a
	// client that has aborted by itself meanwhile. Its session is over then, or
	// superseded, so that one cannot commit either.
	superseded := !o.commit && (w.txns[owner].epoch <= w.ledger.over || w.txns[owner].epoch < w.ledger.epoch || w.txns[owner].life < w.ledger.life)
	back := w.ledger.wentBack&(1<<o.cluster) != 0
	if o.meant >= 0 && o.meant != owner && !superseded && !back {
		w.violate("an EndTxn for transaction %d ended transaction %d on %s", o.meant, owner, clusterIDs[o.cluster])
	}
	if o.commit && !w.txns[owner].asked && !back {
		w.violate("transaction %d was committed on %s, and nobody asked for it", owner, clusterIDs[o.cluster])
	}
	return answer, next
}

// A route is how a question reaches a cluster.
type route int8

const (
	// old is over the connection that there is.
	old route = iota
	// fresh: a new look-up, over a new connection.
	fresh
	// deposedAtSend: over the one that there was, to a broker that was deposed when
	// the question left.
	deposedAtSend
)

// asked is the transaction coordinator that a host reaches when it looks at a
// cluster over the connection that it has: of two brokers, perhaps the one that is it
// no longer and does not know yet. That one answers from its cache of before, however
// often it is asked, and cannot change anything. Below EndTxn v5 it may show the
// transaction before as open, which is not promised to be noticed (KIP.md, "A deposed
// transaction coordinator"): there only what ends something reaches it.
func (w *world) asked(k int8) *cluster {
	if d := w.deposed[k]; d != nil && w.clusters[k].version >= bumps {
		return d
	}
	return &w.clusters[k]
}

// deposedFor is the deposed transaction coordinator that requests reach which end
// something, nil when there is none. From EndTxn v5 on it is reached over fresh
// connections, too. Below, two answers of that kind are believed, and one over the
// connection that there was is not.
func (w *world) deposedFor(k int8, over route) *cluster {
	if w.looksOnly&(1<<k) != 0 || over == fresh && w.clusters[k].version < bumps {
		return nil
	}
	return w.deposed[k]
}

// brokerFor is the transaction coordinator that requests reach which end something.
func (w *world) brokerFor(k int8, over route) *cluster {
	if d := w.deposedFor(k, over); d != nil {
		return d
	}
	return &w.clusters[k]
}

func (w *world) endTxn(o endOrder, by producer, over route) (code, producer) {
	d := w.deposedFor(o.cluster, over)
	switch {
	case w.clusters[o.cluster].down:
		return unreachable, again
	case d == nil && over == deposedAtSend:
		return concurrent, again // NOT_COORDINATOR: it has learned
	case d == nil:
		return w.clusters[o.cluster].endTxn(by, o.commit)
	}
	cache := *d
	answer, next := cache.endTxn(by, o.commit)
	if cache.state != d.state || cache.now != d.now {
		return concurrent, again // NOT_COORDINATOR from its log: ask again
	}
	return answer, next
}

func (w *world) traceRecord(how string, r txnlog.Record) {
	if w.trace != nil {
		w.tracef("    %s %s", how, recordText(r))
	}
}

func recordText(r txnlog.Record) string {
	v := r.Value
	if v == nil {
		return "tombstone"
	}
	s := fmt.Sprintf("%s epoch=%d sequence=%d", gtc.NameOf(v.State), v.GlobalEpoch, v.Sequence)
	if v.SessionEnded {
		s += " session-ended"
	}
	one := func(p txnlog.Participant) string {
		return fmt.Sprintf(" [%s:%d/%d v%d state=%d next=%d/%d]", p.ClusterID, p.ProducerID, p.ProducerEpoch, p.EndTxnVersion, p.State, p.NextProducerID, p.NextProducerEpoch)
	}
	for _, p := range v.Participants {
		s += one(p)
	}
	for _, p := range v.Leftovers {
		s += " leftover" + one(p)
	}
	if v.Reason != "" {
		s += " (" + v.Reason + ")"
	}
	return s
}

func decisionText(commit bool) string {
	if commit {
		return "commit"
	}
	return "abort"
}
