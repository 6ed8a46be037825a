package sim

import (
	"errors"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// This file is what gtc/participant is around gtc/verdict: it asks the model of a
// cluster what the verdict wants to know.

// attempt is what one process knows of the ends of one participant transaction.
type attempt struct {
	verdict.Attempt
	cluster  int8
	producer producer
	busy     bool
}

const auditTopic = "t"

// millis is the clock of the clusters: a transaction begins a while after the one
// before, so that the skew between brokers does not matter.
func millis(start int16) int64 { return int64(start) * 10_000 }

func startOf(millis int64) int16 { return int16(millis / 10_000) }

// view is what DescribeTransactions shows.
func (c *cluster) view() verdict.View {
	if !c.known {
		return verdict.View{ProducerID: -1, ProducerEpoch: -1, StartMillis: -1}
	}
	v := verdict.View{
		State: verdict.State(c.state.String()), ProducerID: int64(c.now.id), ProducerEpoch: c.now.epoch,
		TimeoutMillis: verdict.Unlimited, StartMillis: millis(c.start),
	}
	if c.state == ongoing {
		v.AuditTopic = auditTopic
	}
	return v
}

// audit reads the partition of the cluster from its beginning.
func (w *world) audit(c *cluster, o endOrder, version int16) (commit bool, err error) {
	if w.retention {
		return false, verdict.ErrNoMarker
	}
	found := verdict.NewMarkers(o.participant(), version)
	for _, m := range c.history {
		found.Records(int64(m.producer.id), m.producer.epoch)
		if m.ended != ongoing {
			found.Marker(int64(m.producer.id), m.markerEpoch, m.ended == completeCommit, millis(m.start)+5_000)
		}
	}
	return found.Result()
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

func (o endOrder) participant() txnlog.Participant {
	p := txnlog.Participant{
		ClusterID: clusterIDs[o.cluster], ProducerID: int64(o.producer.id), ProducerEpoch: o.producer.epoch,
		EndTxnVersion: o.version, StartMillis: millis(o.start),
	}
	if o.start != 0 {
		p.AuditTopic = auditTopic
	}
	return p
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

// voted notes that a broker has shown this process the transaction open that began at
// start.
func (h *host) voted(o endOrder, start int64, by int8) {
	switch at := h.attempt(o); {
	case at == nil:
		h.attempts = append(h.attempts, attempt{Attempt: verdict.Voted(start, int32(by)), cluster: o.cluster, producer: o.producer})
	case !at.busy:
		at.Attempt = at.Voted(start, int32(by))
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

// startEnd begins to carry an EndTxn effect out.
func (w *world) startEnd(h int8, o endOrder) {
	host := &w.hosts[h]
	at := host.attempt(o)
	if at == nil {
		host.attempts = append(host.attempts, attempt{Attempt: verdict.Unvoted(), cluster: o.cluster, producer: o.producer})
		at = &host.attempts[len(host.attempts)-1]
	}
	if at.busy {
		w.endReply(h, o, gtc.EndAnswer{Detail: "an earlier one is still in flight"})
		return
	}
	at.busy = true
	if w.mutant == readOnlyVote && o.commit && !o.onePhase && o.start == 0 {
		w.endReply(h, o, gtc.EndAnswer{
			Outcome: gtc.EndDone, EndTxnVersion: bumps, NextProducerID: int64(o.producer.id), NextProducerEpoch: o.producer.epoch,
		})
		return
	}
	e := w.ending(h, o)
	w.carryOn(h, e, o)
	if o.version = e.Version(); !w.sent(h, o, e) {
		w.endReply(h, o, e.Answer())
	}
}

// sent puts what the verdict asks on its way; false when it asks nothing.
func (w *world) sent(h int8, o endOrder, e *verdict.Ending) bool {
	m := message{kind: endTxn, host: h, term: w.hosts[h].term.claim, connected: true, order: o}
	switch e.Next() {
	case verdict.AskEnd:
		m.producer = producerOf(e.Pair().ProducerID, e.Pair().ProducerEpoch)
		if w.clusters[o.cluster].version < bumps && w.deposedFor(o.cluster, old) != nil {
			m.over = deposedAtSend // from v5 on the epoch says what it may end
		}
	case verdict.AskPair:
		m.kind = keepTxn
	case verdict.AskNothing, verdict.AskBroker, verdict.AskBrokerAnew, verdict.AskState, verdict.AskMarkers:
		return false
	}
	w.send(m)
	return true
}

// keep carries the coordinator's InitProducerId(keep) out. A deposed transaction
// coordinator cannot append it.
func (w *world) keep(m *message) {
	c := &w.clusters[m.order.cluster]
	if w.deposedFor(m.order.cluster, old) != nil {
		m.code, m.producer, m.kept = concurrent, again, again
		return
	}
	m.code, m.producer, m.kept = c.initKeeping()
	w.tracef("    %s answers %v, %d/%d, keeps %d/%d", clusterIDs[m.order.cluster], m.code, m.producer.id, m.producer.epoch, m.kept.id, m.kept.epoch)
}

// ending makes the verdict's try for an order. It keeps nothing that its order and
// the attempt do not say, so it is made anew when the answer comes.
func (w *world) ending(h int8, o endOrder) *verdict.Ending {
	at := w.hosts[h].attempt(o)
	if at == nil {
		at = &attempt{Attempt: verdict.Unvoted()}
	}
	return verdict.NewEnding(gtc.EndTxn{
		ID: globalID, Sequence: o.sequence, Participant: o.participant(), Commit: o.commit, OnePhase: o.onePhase,
		Fenced: o.fenced || w.mutant == unfencedOnePhase,
	}, &at.Attempt)
}

var errUnreachable = errors.New("unreachable")

// carryOn asks what can be asked at once. The first EndTxn cannot, nor can an
// InitProducerId: they are on their way for a while. A second EndTxn, over fresh
// connections, is taken to arrive at once.
func (w *world) carryOn(h int8, e *verdict.Ending, o endOrder) {
	c := &w.clusters[o.cluster]
	for {
		switch ask := e.Next(); {
		case ask == verdict.AskNothing, ask == verdict.AskPair, ask == verdict.AskEnd && !e.Anew():
			return
		case c.down:
			e.Failed(errUnreachable)
		case ask == verdict.AskBroker, ask == verdict.AskBrokerAnew:
			by := int32(w.brokerFor(o.cluster, w.over(e)).broker)
			if at := w.hosts[h].attempt(o); at != nil && w.mutant == anyBroker {
				by = at.By
			}
			e.Connected(by, c.version, bumps, c.keepsPrepared)
		case ask == verdict.AskState:
			e.Seen(w.brokerFor(o.cluster, w.over(e)).view()) // the state is asked where EndTxn goes
		case ask == verdict.AskEnd:
			o.version = e.Version()
			code, next := w.execute(o, producerOf(e.Pair().ProducerID, e.Pair().ProducerEpoch), w.over(e))
			tell(e, code, next)
		case ask == verdict.AskMarkers:
			e.Audited(w.audit(c, o, e.Version()))
		}
	}
}

// over is how the verdict's next question reaches its cluster.
func (w *world) over(e *verdict.Ending) route {
	if e.Anew() && w.mutant != oldConnection {
		return fresh
	}
	return old
}

// tell tells the verdict how an EndTxn was answered.
func tell(e *verdict.Ending, c code, next producer) {
	if c == unreachable {
		e.Lost(errUnreachable, false)
		return
	}
	e.Answered(kafkaCodes[c], int64(next.id), next.epoch)
}

// endReply puts an answer that needs no request on its way. An EndAnswer
// without outcome is EndRetry.
func (w *world) endReply(h int8, o endOrder, a gtc.EndAnswer) {
	w.send(message{kind: endTxnReply, host: h, term: w.hosts[h].term.claim, connected: true, order: o, concluded: true, answer: compact(a)})
}

// answered turns the cluster's answer into what it proves, or into the next request.
func (w *world) answered(h int8, m message) (a gtc.EndAnswer, more bool) {
	e := w.ending(h, m.order)
	switch {
	case m.kind != keepTxnReply:
		tell(e, m.code, m.producer)
	case m.code == unreachable:
		e.Failed(errUnreachable)
	default:
		if w.mutant == endsAnyKept && m.kept != again {
			m.kept = m.order.producer
		}
		e.Kept(kafkaCodes[m.code], pairOf(m.producer), pairOf(m.kept))
	}
	w.carryOn(h, e, m.order)
	return e.Answer(), w.sent(h, m.order, e)
}

func pairOf(p producer) verdict.Pair {
	return verdict.Pair{ProducerID: int64(p.id), ProducerEpoch: p.epoch}
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
	v := c.view()
	return gtc.OpenTransaction{
		ID: globalID, ProducerID: v.ProducerID, ProducerEpoch: v.ProducerEpoch, EndTxnVersion: c.version,
		AuditTopic: v.AuditTopic, StartMillis: v.StartMillis,
	}
}
