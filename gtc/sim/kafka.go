package sim

import "github.com/kafka-gtc/kafka-gtc/gtc/verdict"

// state is the state of a transactional id at a cluster's transaction
// coordinator (Kafka's TransactionState).
type state int8

const (
	empty state = iota
	ongoing
	prepareCommit
	prepareAbort
	completeCommit
	completeAbort
)

var stateNames = [...]string{"Empty", "Ongoing", "PrepareCommit", "PrepareAbort", "CompleteCommit", "CompleteAbort"}

func (s state) String() string { return stateNames[s] }

// code is what a cluster answers.
type code int8

const (
	none code = iota
	invalidTxnState
	producerFenced
	invalidMapping
	concurrent
	unreachable // no answer: the connection was refused, nothing has left
)

// kafkaCodes are Kafka's numbers of them.
var kafkaCodes = [...]int16{0, 48, 90, 49, 51}

var codeNames = [...]string{
	"NONE", "INVALID_TXN_STATE", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING", "CONCURRENT_TRANSACTIONS", "unreachable",
}

func (c code) String() string { return codeNames[c] }

// The EndTxn versions: v4 leaves the epoch as it is (transaction.version 1), v5
// moves it with every end (transaction.version 2, KIP-890).
const (
	keeps int16 = 4
	bumps int16 = 5
)

// producer is a producer id and epoch.
type producer struct {
	id    int16
	epoch int16
}

// again stands for "initialise again".
var again = producer{-1, -1}

// marker is one transaction of the cluster's history: which client transaction
// wrote it, under which producer id and epoch, and the control marker that ended it.
type marker struct {
	txn         int8  // index into world.txns
	start       int16 // as cluster.start
	producer    producer
	ended       state // ongoing, completeCommit or completeAbort
	markerEpoch int16
}

// cluster is the transaction coordinator of one participant for the one
// transactional id of this world: Kafka 4.x's TransactionCoordinator without
// timeouts, because participants have none.
type cluster struct {
	broker        int8  // the transaction coordinator
	version       int16 // of EndTxn, by the finalized transaction.version
	first         int16 // the epoch that a new id begins with; 0 in Kafka
	slow          bool  // markers take a step of their own
	keepsPrepared bool  // it has KeepPreparedTxn (KIP-939)
	down          bool

	known  bool
	state  state
	now    producer
	before producer // producer id and epoch before the last end
	// next is the only pair that ends the open transaction when it is kept: that of
	// the last InitProducerId with KeepPreparedTxn.
	kept    bool
	next    producer
	nextID  int16
	history []marker
	// start is the number of the last begun transaction, counted from 1: Kafka's
	// txnStartTimestamp, by which two transactions of one epoch are told apart. 0
	// after an InitProducerId or an abort of nothing.
	start int16
	// began counts the transactions; it never goes back, as no clock does.
	began int16
}

func (c *cluster) open() bool { return c.known && c.state == ongoing }

// owner is the client transaction that is open, -1 when none is.
func (c *cluster) owner() int8 {
	if !c.open() {
		return -1
	}
	return c.marker(c.start).txn
}

// marker is the transaction that began as the given one, nil when the cluster
// knows of none (any more).
func (c *cluster) marker(start int16) *marker {
	for i := len(c.history) - 1; i >= 0; i-- {
		if c.history[i].start == start {
			return &c.history[i]
		}
	}
	return nil
}

// write adds a record of a client transaction.
func (c *cluster) write(p producer, txn int8) code {
	switch {
	case c.down:
		return unreachable
	case c.kept && p == c.next:
		return invalidTxnState // it is for ending
	case !c.known || p.id != c.now.id:
		return invalidMapping
	case c.kept:
		return producerFenced
	case p.epoch != c.now.epoch:
		return producerFenced
	case c.state == prepareCommit || c.state == prepareAbort:
		return concurrent
	case c.state != ongoing:
		c.began++
		c.history = append(c.history[:len(c.history):len(c.history)], marker{txn: txn, start: c.began, producer: p, ended: ongoing})
		c.state, c.start = ongoing, c.began
	}
	return none
}

// endTxn is EndTxn in the version of the cluster. Its rows are those of the
// table of gtc/verdict, which were measured on 4.4.0.
func (c *cluster) endTxn(p producer, commit bool) (code, producer) {
	switch {
	case c.down:
		return unreachable, again
	case !c.known:
		return invalidMapping, again
	case c.version >= bumps:
		return c.endBumping(p, commit)
	case p.id != c.now.id:
		return invalidMapping, again
	case p.epoch != c.now.epoch:
		return producerFenced, again
	case c.state == empty:
		return invalidTxnState, again
	case c.state == ongoing:
		// Whatever is open: the epoch does not tell transactions apart.
		c.end(commit)
		return none, c.now
	}
	return c.repeated(commit)
}

// repeated answers an EndTxn for what has ended or is ending.
func (c *cluster) repeated(commit bool) (code, producer) {
	switch {
	case commit != (c.state == prepareCommit || c.state == completeCommit):
		return invalidTxnState, again
	case c.state == prepareCommit || c.state == prepareAbort:
		return concurrent, again
	}
	return none, c.now
}

func (c *cluster) endBumping(p producer, commit bool) (code, producer) {
	preparing := c.state == prepareCommit || c.state == prepareAbort
	complete := c.state == completeCommit || c.state == completeAbort
	// The epoch that the last end left behind, also over a change of the
	// producer id (retryOnEpochBump and retryOnOverflow).
	if (preparing || complete) && p == c.before {
		return c.repeated(commit)
	}
	switch {
	case c.kept && p == c.next:
		c.mark(commit, false)
		c.kept, c.before, c.now = false, c.next, c.after(c.next)
		return none, c.now
	case p.id != c.now.id && (!c.kept || p.id != c.next.id):
		return invalidMapping, again
	case c.kept || p.epoch != c.now.epoch || preparing:
		return producerFenced, again
	case c.state == ongoing:
		c.end(commit)
		return none, c.now
	case commit:
		return invalidTxnState, again // nothing was added under this epoch
	}
	// An abort of nothing moves the epoch too.
	c.start, c.state = 0, completeAbort
	c.before, c.now = c.now, c.after(c.now)
	return none, c.now
}

// end ends what is open and, unless markers are slow, completes it.
func (c *cluster) end(commit bool) {
	c.mark(commit, false)
	if c.version >= bumps {
		c.before, c.now = c.now, c.after(c.now)
	}
}

// mark decides how what is open ends; fence says that an InitProducerId does it.
func (c *cluster) mark(commit, fence bool) {
	c.state = prepareAbort
	if commit {
		c.state = prepareCommit
	}
	c.history = append([]marker(nil), c.history...) // shared with other worlds
	m := c.marker(c.start)
	m.ended, m.markerEpoch = c.state+2, c.now.epoch
	if c.version >= bumps || fence {
		m.markerEpoch++
	}
	if !c.slow {
		c.complete()
	}
}

// complete writes the markers.
func (c *cluster) complete() { c.state += 2 }

// after is the epoch behind p. At the ceiling a new producer id begins; Kafka
// takes that over when the markers are written and answers with it before.
func (c *cluster) after(p producer) producer {
	if p.epoch < verdict.LastEpoch {
		return producer{p.id, p.epoch + 1}
	}
	c.nextID++
	return producer{c.nextID, 0}
}

// initProducerID is a bare InitProducerId: it aborts what is open, whatever
// that is.
func (c *cluster) initProducerID() (code, producer) {
	switch {
	case c.down:
		return unreachable, again
	case !c.known:
		c.nextID++
		c.known, c.now, c.before = true, producer{c.nextID, c.first}, again
		return none, c.now
	case c.state == prepareCommit || c.state == prepareAbort:
		return concurrent, again
	case c.state == ongoing:
		// The epoch moves, so that the writer is shut out; the abort is seen
		// one epoch later (measured on 4.4.0). One above the ceiling is there
		// for this.
		c.mark(false, true)
		if c.kept {
			c.kept, c.now = false, c.next
		}
		c.before = c.now
		c.now.epoch++
		return concurrent, again // ask again when the abort is complete
	}
	c.before = again
	c.now = c.after(c.now)
	c.state = empty
	if c.version >= bumps {
		c.start = 0 // 3.9.1 keeps the start time of the last transaction here (measured)
	}
	return none, c.now
}

// initKeeping is InitProducerId with KeepPreparedTxn, as KIP-939 has it: what is
// open stays so, under its own producer id and epoch, by which DescribeTransactions
// shows it and nobody can write or end any more. kept is that pair, again when
// nothing is open.
func (c *cluster) initKeeping() (answer code, p, kept producer) {
	if c.down || !c.open() {
		answer, p = c.initProducerID()
		return answer, p, again
	}
	last := c.now
	if c.kept {
		last = c.next
	}
	c.kept, c.next = true, c.after(last)
	return none, c.next, c.now
}

// initExpecting is InitProducerId with the expected producer id and epoch
// (KIP-360). Kafka compares the epoch only when nothing is open (measured), so
// one that arrives late aborts the open transaction of a later epoch.
func (c *cluster) initExpecting(p producer) (code, producer) {
	switch {
	case c.down:
		return unreachable, again
	case c.known && p.id != c.now.id && p != c.before:
		return producerFenced, again
	case c.known && !c.open() && p.epoch != c.now.epoch:
		return producerFenced, again
	}
	return c.initProducerID()
}
