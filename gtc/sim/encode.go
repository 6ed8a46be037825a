package sim

import (
	"bytes"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// encode appends the world in a form in which two worlds that go on alike are
// equal: times are relative, and messages under way have no order. What the
// checker remembers is in it too, because it decides what breaks a promise.
func (w *world) encode(b []byte) []byte {
	g := &w.budget
	b = append(b,
		byte(g.claims), byte(g.crashes), byte(g.breaks), byte(g.giveUps), byte(g.late),
		byte(g.scans), byte(g.more), byte(g.ticks), byte(g.outsiders), byte(g.failures), byte(g.gaveUp), byte(g.goBacks), byte(g.strangers), byte(g.deposals))
	for k := range w.n {
		b = w.clusters[k].encode(b)
		if c := w.copies[k]; c != nil {
			b = c.encode(append(b, 1))
		}
		if c := w.deposed[k]; c != nil {
			b = c.encode(append(b, 2, w.looksOnly>>k&1))
		}
	}
	for h := range w.hosts {
		b = w.encodeHost(b, &w.hosts[h])
	}
	for i := range w.clients {
		b = w.clients[i].encode(b)
	}
	b = append(b, byte(w.log.owner), bit(w.log.last != nil))
	if w.log.last != nil {
		b = gtc.AppendValueFingerprint(b, w.log.last.Value)
	}
	b = append(b, byte(len(w.txns)))
	for i := range w.txns {
		b = w.txns[i].encode(b)
	}
	b = w.encodeBag(b)
	return w.ledger.encode(b)
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}

func bits(on ...bool) byte {
	n := byte(0)
	for i, o := range on {
		n |= bit(o) << i
	}
	return n
}

func short(b []byte, n int64) []byte { return append(b, byte(n), byte(n>>8), byte(n>>16)) }

func (p producer) encode(b []byte) []byte {
	return append(b, byte(p.id), byte(p.epoch), byte(p.epoch>>8))
}

func (c *cluster) encode(b []byte) []byte {
	b = append(b, byte(c.broker), byte(c.state), bits(c.known, c.down, c.kept), byte(c.nextID), byte(c.start), byte(c.began), byte(len(c.history)))
	b = c.next.encode(c.before.encode(c.now.encode(b)))
	for _, m := range c.history {
		b = append(m.producer.encode(b), byte(m.txn), byte(m.start), byte(m.ended))
	}
	return b
}

func (w *world) encodeHost(b []byte, h *host) []byte {
	b = append(b, bits(h.paused, h.term != nil))
	for _, a := range h.attempts {
		// What was sent before matters below EndTxn v5 alone.
		if keep := w.clusters[a.cluster].version < bumps; keep || a.busy {
			b = append(a.producer.encode(b), byte(a.cluster), byte(startOf(a.Start)), byte(a.Misses), byte(a.By), byte(a.Taken.ProducerID), byte(a.Taken.ProducerEpoch), bits(a.Took, a.busy, a.Sent && keep, a.Uncertain && keep))
		}
	}
	if h.term == nil {
		return b
	}
	t := h.term
	b = append(b, byte(t.claim))
	b = t.machine.AppendFingerprint(b, h.clock)
	b = append(b, byte(len(t.lazy)), byte(len(t.inflight)), byte(len(t.held)), byte(len(t.calls)), byte(len(t.checks)), byte(len(t.looking)))
	for _, r := range t.lazy {
		b = gtc.AppendValueFingerprint(b, r.Value)
	}
	for _, f := range t.inflight {
		b = append(b, bits(f.landed, f.ticket != 0), byte(len(f.records)), byte(f.ticket-t.durable))
		for _, r := range f.records {
			b = gtc.AppendValueFingerprint(b, r.Value)
		}
	}
	b = append(b, byte(t.forced-t.durable), byte(max(t.last, t.durable)-t.durable))
	for _, x := range t.held {
		b = encodeEffect(append(b, byte(x.after-t.durable)), x.effect)
	}
	for _, c := range t.calls {
		b = append(b, byte(c.request), byte(c.client), byte(c.txn))
	}
	for _, c := range t.checks {
		b = append(b, byte(c.Attempt))
	}
	for i := range t.looking {
		l := &t.looking[i]
		b = short(append(b, l.seen, byte(l.effect.GlobalEpoch), byte(len(l.effect.Participants))), l.effect.Sequence)
		for p := range l.effect.Participants {
			r, v := l.effect.Participants[p], l.votes[p]
			b = append(producerOf(r.ProducerID, r.ProducerEpoch).encode(b), r.ClusterID[0], byte(v.Code), byte(startOf(v.StartMillis)), bit(v.AuditTopic != ""))
		}
	}
	return b
}

func encodeEffect(b []byte, e gtc.Effect) []byte {
	switch e := e.(type) {
	case gtc.Reply:
		return responseOf(e.Response).encode(append(b, 0, byte(e.Request)))
	case gtc.EndTxn:
		return orderOf(e).encode(append(b, 1))
	case gtc.CheckParticipants:
		return append(b, 2, byte(e.Attempt))
	case gtc.TakeVotes:
		b = short(append(b, 3, byte(e.GlobalEpoch)), e.Sequence)
		for _, r := range e.Participants {
			b = append(producerOf(r.ProducerID, r.ProducerEpoch).encode(b), r.ClusterID[0])
		}
	}
	return b
}

func (o endOrder) encode(b []byte) []byte {
	b = append(o.producer.encode(b), byte(o.cluster), byte(o.version), byte(o.start), byte(o.meant), bits(o.commit, o.onePhase, o.fenced))
	return short(b, o.sequence)
}

func (r response) encode(b []byte) []byte {
	b = append(b, byte(r.code), byte(r.outcome), byte(r.epoch), r.listed, bit(r.pending))
	b = short(b, r.sequence)
	for _, p := range r.next {
		b = p.encode(b)
	}
	return b
}

func (c *client) encode(b []byte) []byte {
	b = append(b, byte(c.phase), c.instance, byte(c.lives), byte(c.left), c.session, byte(c.epoch), byte(c.txn), c.stale, c.todo, c.waiting, c.kept, c.owned,
		bits(c.known, c.wantsOut))
	for _, p := range c.producers {
		b = p.encode(b)
	}
	return short(b, c.sequence)
}

func (x *txn) encode(b []byte) []byte {
	b = append(b, byte(x.client), x.instance, byte(x.epoch), x.listed, x.open, x.committed, x.aborted, x.outsider,
		x.recordedAbort, x.heuristic, x.split, byte(x.told),
		bits(x.asked, x.doomed, x.recordedCommit, x.decidedAbort, x.unknowable))
	for _, p := range x.producers {
		b = p.encode(b)
	}
	return short(b, x.sequence)
}

// encodeBag writes the messages under way in an order of their own.
func (w *world) encodeBag(b []byte) []byte {
	b = append(b, byte(len(w.bag)))
	var starts [24][]byte
	all := starts[:0]
	from := len(b)
	for i := range w.bag {
		b = w.bag[i].encode(b)
	}
	if len(w.bag) < 2 {
		return b
	}
	// Every message has the same length.
	size := (len(b) - from) / len(w.bag)
	whole := slices.Clone(b[from:])
	for i := range w.bag {
		all = append(all, whole[i*size:(i+1)*size])
	}
	slices.SortFunc(all, bytes.Compare)
	b = b[:from]
	for _, m := range all {
		b = append(b, m...)
	}
	return b
}

func (m *message) encode(b []byte) []byte {
	b = append(b, byte(m.kind), byte(m.client), byte(m.host), byte(m.term), m.instance, m.session, byte(m.epoch), byte(m.txn),
		byte(m.cluster), byte(m.code), byte(m.over), byte(m.answer.outcome), byte(m.answer.version),
		bits(m.connected, m.commit, m.concluded, m.isOpen, m.answer.uncertain))
	b = m.answer.next.encode(m.kept.encode(m.producer.encode(b)))
	return m.order.encode(b)
}

func (l *ledger) encode(b []byte) []byte {
	b = append(b, byte(l.epoch), byte(l.over), bit(l.forgiven), l.wentBack, byte(len(l.landed)))
	landed := slices.Clone(l.landed)
	slices.SortFunc(landed, recorded.compare)
	for _, r := range landed {
		b = append(short(r.producer.encode(b), r.sequence), byte(r.cluster), bit(r.commit))
	}
	return b
}
