package sim

import (
	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// This file is what gtc/participant does, in the words of the model: the vote,
// what an answer to EndTxn proves, and what a look at the state proves.

// attempt is what one process knows of the ends that it sent for one
// participant transaction.
type attempt struct {
	cluster   int8
	producer  producer
	busy      bool
	sent      bool
	uncertain bool
}

// vote is what a look at one participant means before the decision.
func (c *cluster) vote(p producer) gtc.Vote {
	v := gtc.Vote{Code: gtc.VoteRefused, EndTxnVersion: c.version, Detail: "refused"}
	switch {
	case c.down:
		v.Code, v.Detail = gtc.VoteUnavailable, "unavailable"
	case !c.known || c.now != p:
	case c.state == ongoing:
		v.Code, v.Detail = gtc.VotePrepared, ""
		v.AuditTopic, v.StartMillis = auditTopic, int64(c.start)
	}
	return v
}

const auditTopic = "t"

// finding is what is known of one participant transaction.
type finding int8

const (
	movedOn finding = iota
	stillOpen
	ending
	neverBegun
	committed
	aborted
)

// look is what the state proves about the transaction of an order
// (view.outcome of the driver).
func (c *cluster) look(o endOrder) finding {
	if !c.known {
		return movedOn
	}
	same := c.now == o.producer
	sameStart := o.start == 0 || o.start == c.start
	switch {
	case c.state == ongoing && same && sameStart:
		return stillOpen
	case c.state == ongoing:
		return movedOn
	case c.state == empty && same && o.start == 0:
		return neverBegun
	case c.state == empty:
		return movedOn
	case c.version >= bumps && same && o.start == 0:
		return neverBegun
	case c.version >= bumps && same, !sameStart, !c.endOf(o):
		return movedOn
	case c.state == completeAbort:
		return aborted
	case c.state != completeCommit:
		return ending
	case c.version < bumps && o.start == 0 && !o.onePhase:
		return movedOn // it may be the commit of the transaction before
	}
	return committed
}

// endOf reports whether the present producer id and epoch can be what the end
// of the order's transaction left.
func (c *cluster) endOf(o endOrder) bool {
	p := o.producer
	known := o.start != 0 || o.onePhase
	same, next := c.now.epoch == p.epoch, c.now.epoch == p.epoch+1
	switch {
	case c.now.id != p.id:
		return c.version >= bumps && p.epoch == c.maxEpoch && c.now.epoch == 0 && known
	case c.version >= bumps:
		return next
	}
	// Not for an only participant whose start is unknown: a coordinator that
	// was superseded may ask for the commit of the session before, which has
	// happened, and CompleteAbort at the next epoch is of the session after.
	return same || next && o.start != 0
}

// endOrder is one EndTxn effect as the driver sees it, and what only the
// checker knows of it.
type endOrder struct {
	cluster  int8
	producer producer
	version  int16
	start    int16 // by which the record knows the transaction, 0 unknown
	commit   bool
	onePhase bool
	fenced   bool
	sequence int64
	meant    int8 // the client transaction that the decision is about, -1 unknown
}

func orderOf(e gtc.EndTxn) endOrder {
	p := e.Participant
	return endOrder{
		cluster: clusterOf(p.ClusterID), producer: producerOf(p.ProducerID, p.ProducerEpoch), version: p.EndTxnVersion,
		start: startOf(p.StartMillis), commit: e.Commit, onePhase: e.OnePhase, fenced: e.Fenced, sequence: e.Sequence,
	}
}

func producerOf(id int64, epoch int16) producer { return producer{int16(id), epoch} }

func (h *host) attempt(o endOrder) *attempt {
	for i := range h.attempts {
		if h.attempts[i].cluster == o.cluster && h.attempts[i].producer == o.producer {
			return &h.attempts[i]
		}
	}
	return nil
}

// voted notes that this process saw the transaction open, so that no end of it
// was sent before.
func (h *host) voted(o endOrder) {
	switch at := h.attempt(o); {
	case at == nil:
		h.attempts = append(h.attempts, attempt{cluster: o.cluster, producer: o.producer})
	case !at.busy:
		at.sent, at.uncertain = false, false
	}
}

func (h *host) settled(o endOrder) {
	for i, at := range h.attempts {
		if at.cluster == o.cluster && at.producer == o.producer {
			h.attempts = append(h.attempts[:i:i], h.attempts[i+1:]...)
			return
		}
	}
}

// startEnd begins to carry an EndTxn effect out: below v5 with a look first
// when an earlier end may have taken effect, then the request.
func (w *world) startEnd(h int8, o endOrder) {
	host := &w.hosts[h]
	at := host.attempt(o)
	if at == nil {
		host.attempts = append(host.attempts, attempt{cluster: o.cluster, producer: o.producer, uncertain: true})
		at = &host.attempts[len(host.attempts)-1]
	}
	if at.busy {
		w.endReply(h, o, gtc.EndAnswer{Detail: "an earlier one is still in flight"})
		return
	}
	at.busy = true
	c := &w.clusters[o.cluster]
	if o.version == 0 {
		o.version = c.version
	}
	if c.down {
		w.endReply(h, o, gtc.EndAnswer{Detail: "unreachable"})
		return
	}
	if o.version < bumps && o.onePhase && o.commit && !o.fenced && w.mutant != unfencedOnePhase {
		w.endReply(h, o, gtc.EndAnswer{Outcome: gtc.EndUnfenced})
		return
	}
	if o.version < bumps && (at.sent || at.uncertain) {
		switch c.look(o) {
		case stillOpen:
		case ending:
			w.endReply(h, o, gtc.EndAnswer{Detail: "its end is being carried out"})
			return
		case movedOn, neverBegun, committed, aborted:
			w.endReply(h, o, w.conclude(h, o))
			return
		}
	}
	at.sent = true
	w.send(message{kind: endTxn, host: h, term: host.term.claim, connected: true, order: o})
}

// endReply puts an answer that needs no request on its way. An EndAnswer
// without outcome is EndRetry.
func (w *world) endReply(h int8, o endOrder, a gtc.EndAnswer) {
	w.send(message{kind: endTxnReply, host: h, term: w.hosts[h].term.claim, connected: true, order: o, concluded: true, answer: compact(a)})
}

// answered turns the cluster's answer into what it proves. An answer that may
// have several causes is asked for once more on a fresh connection.
func (w *world) answered(h int8, m message) gtc.EndAnswer {
	switch m.code {
	case none:
		return w.doneAs(h, m.order, m.producer)
	case invalidTxnState, producerFenced, invalidMapping:
		return w.askAgain(h, m.order)
	case concurrent, unreachable:
	}
	return gtc.EndAnswer{EndTxnVersion: m.order.version, NextProducerID: -1, NextProducerEpoch: -1}
}

func (w *world) askAgain(h int8, o endOrder) gtc.EndAnswer {
	c := &w.clusters[o.cluster]
	retry := gtc.EndAnswer{EndTxnVersion: o.version, NextProducerID: -1, NextProducerEpoch: -1}
	if c.down {
		return retry
	}
	if o.version < bumps {
		switch c.look(o) {
		case stillOpen:
		case ending:
			return retry
		case movedOn, neverBegun, committed, aborted:
			return w.conclude(h, o)
		}
	}
	code, next := w.execute(o)
	switch code {
	case none:
		return w.doneAs(h, o, next)
	case concurrent, unreachable:
		return retry
	case invalidTxnState, producerFenced, invalidMapping:
	}
	return w.conclude(h, o)
}

// doneAs is the answer to an accepted EndTxn that left the cluster at p.
func (w *world) doneAs(h int8, o endOrder, p producer) gtc.EndAnswer {
	p = w.next(h, o, p)
	return gtc.EndAnswer{
		Outcome: gtc.EndDone, EndTxnVersion: o.version,
		NextProducerID: int64(p.id), NextProducerEpoch: p.epoch,
	}
}

// next is what the client goes on with.
func (w *world) next(h int8, o endOrder, p producer) producer {
	at := w.hosts[h].attempt(o)
	switch {
	case o.version < bumps && at != nil && at.uncertain:
		return again
	case o.version < bumps:
		return o.producer
	case p.epoch > w.clusters[o.cluster].maxEpoch:
		return again
	}
	return p
}

// conclude is what the state, and where it has moved on the control markers,
// prove about a participant that is not open any more.
func (w *world) conclude(h int8, o endOrder) gtc.EndAnswer {
	c := &w.clusters[o.cluster]
	a := gtc.EndAnswer{EndTxnVersion: o.version, NextProducerID: -1, NextProducerEpoch: -1}
	found := c.look(o)
	if found == movedOn {
		return w.audit(o, a)
	}
	switch found {
	case stillOpen, ending, movedOn:
		return a
	case neverBegun:
		a.Outcome = gtc.EndDone
	case committed, aborted:
		a.Outcome = endedAs(found == committed, o.commit)
	}
	if o.version >= bumps || c.now.epoch == o.producer.epoch {
		p := w.next(h, o, c.now)
		a.NextProducerID, a.NextProducerEpoch = int64(p.id), p.epoch
	}
	return a
}

func endedAs(commit, asked bool) gtc.EndOutcome {
	switch {
	case commit == asked:
		return gtc.EndDone
	case commit:
		return gtc.EndCommitted
	}
	return gtc.EndAborted
}

// audit reads the control markers of the transaction that the record knows by
// its start.
func (w *world) audit(o endOrder, a gtc.EndAnswer) gtc.EndAnswer {
	c := &w.clusters[o.cluster]
	switch m := c.marker(o.start); {
	case o.start == 0 && !o.commit && (!o.onePhase || !c.known):
		a.Outcome = gtc.EndDone // never seen open, and nobody has sent its commit
	case o.start == 0, w.retention, m == nil:
		a.Outcome = gtc.EndUnknown
	case m.ended != ongoing:
		a.Outcome = endedAs(m.ended == completeCommit, o.commit)
	}
	return a
}

// answer is gtc.EndAnswer without its texts, so that messages are comparable.
type answer struct {
	outcome   gtc.EndOutcome
	next      producer
	version   int16
	uncertain bool
}

func compact(a gtc.EndAnswer) answer {
	return answer{a.Outcome, producerOf(a.NextProducerID, a.NextProducerEpoch), a.EndTxnVersion, a.Uncertain}
}

func (a answer) full() gtc.EndAnswer {
	return gtc.EndAnswer{
		Outcome: a.outcome, NextProducerID: int64(a.next.id), NextProducerEpoch: a.next.epoch,
		EndTxnVersion: a.version, Uncertain: a.uncertain,
	}
}

// refOf names a participant transaction in the words of the core.
func refOf(cluster int8, p producer) gtc.ParticipantRef {
	return gtc.ParticipantRef{ClusterID: clusterIDs[cluster], ProducerID: int64(p.id), ProducerEpoch: p.epoch}
}

var clusterIDs = [maxClusters]string{"A", "B", "C"}

func clusterOf(id string) int8 { return int8(id[0] - 'A') }

// openOf is an open transaction as a scan sees it.
func (c *cluster) openOf() gtc.OpenTransaction {
	return gtc.OpenTransaction{
		ID: globalID, ProducerID: int64(c.now.id), ProducerEpoch: c.now.epoch, EndTxnVersion: c.version,
		AuditTopic: auditTopic, StartMillis: int64(c.start),
	}
}
