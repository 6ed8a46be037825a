package gtc

import (
	"maps"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Clone returns a machine that goes on independently of m. Values and volatile
// halves are shared, because they are replaced and never changed in place.
func (m *Machine) Clone() *Machine {
	c := *m
	c.entries = make(map[string]*entry, len(m.entries))
	c.due = make(deadlines, len(m.due))
	c.scanned = maps.Clone(m.scanned)
	for id, e := range m.entries {
		d := *e
		c.entries[id] = &d
		if d.index >= 0 {
			c.due[d.index] = &d
		}
	}
	return &c
}

// AppendFingerprint appends an encoding of the state as it is at now. Two
// machines with the same encoding react alike to the same events, whatever
// their clocks say: times stand in it as what is left until they come.
//
// Left out is what no reaction depends on but the wording of messages, and what
// only the expiry of idle ids depends on. So it serves searches in which
// nothing expires.
func (m *Machine) AppendFingerprint(b []byte, now Time) []byte {
	var room [4]string
	ids := slices.AppendSeq(room[:0], maps.Keys(m.entries))
	slices.Sort(ids)
	for _, id := range ids {
		e := m.entries[id]
		b = appendText(b, id)
		b = AppendValueFingerprint(b, e.value)
		b = e.volatile.appendFingerprint(b, m.cfg, e.value, now.Mono)
	}
	return b
}

// AppendValueFingerprint appends an encoding of what a record says, its time
// stamps and texts for people left out.
func AppendValueFingerprint(b []byte, v *txnlog.GlobalTransaction) []byte {
	if v == nil {
		return append(b, 0)
	}
	b = append(b, 1, byte(v.State), v.InstanceID[15], v.PreviousInstanceID[15], bit(v.SessionEnded))
	b = appendInt(b, int64(v.GlobalEpoch))
	b = appendInt(b, v.Sequence)
	b = appendInt(b, int64(v.TimeoutMillis))
	b = append(b, v.InstanceID[:15]...)
	b = append(b, v.PreviousInstanceID[:15]...)
	b = append(b, byte(len(v.ClusterIDs)))
	for _, id := range v.ClusterIDs {
		b = appendText(b, id)
	}
	b = append(b, byte(len(v.FormerClusterIDs)))
	for _, id := range v.FormerClusterIDs {
		b = appendText(b, id)
	}
	for _, ps := range [][]txnlog.Participant{v.Participants, v.Leftovers} {
		b = append(b, byte(len(ps)))
		for i := range ps {
			b = appendParticipant(b, &ps[i])
		}
	}
	return b
}

func appendParticipant(b []byte, p *txnlog.Participant) []byte {
	b = appendRef(b, refOf(*p))
	b = append(b, byte(p.State), byte(p.EndTxnVersion))
	b = appendInt(b, p.NextProducerID)
	b = appendInt(b, int64(p.NextProducerEpoch))
	b = appendText(b, p.AuditTopic)
	b = appendInt(b, int64(p.AuditPartition))
	return appendInt(b, p.StartMillis)
}

func (v *volatile) appendFingerprint(b []byte, cfg Config, value *txnlog.GlobalTransaction, now int64) []byte {
	if v.idle() {
		return append(b, 0)
	}
	left := func(at int64) int64 { return max(at-now, 0) }
	b = append(b, 1, bit(v.check != nil), bit(v.ending != nil))
	if k := v.check; k != nil {
		b = appendInt(b, int64(k.attempt))
		b = append(b, k.request.InstanceID[:]...)
		b = appendInt(b, int64(k.request.TimeoutMillis))
		for _, id := range k.request.ClusterIDs {
			b = appendText(b, id)
		}
		b = append(b, byte(len(k.requests)))
		for _, r := range k.requests {
			b = appendInt(b, int64(r))
		}
	}
	if e := v.ending; e != nil {
		b = append(b, bit(e.onePhase), byte(len(e.refs)))
		b = appendInt(b, int64(e.epoch))
		b = appendInt(b, e.sequence)
		b = appendInt(b, left(e.votesBy))
		for _, r := range e.refs {
			b = appendRef(b, r)
		}
	}
	b = append(b, byte(len(v.waiters)))
	for _, w := range v.waiters {
		b = appendInt(b, int64(w.request))
		b = appendInt(b, w.sequence)
		b = appendInt(b, left(w.deadline))
	}
	for _, c := range v.clusters {
		if !c.busy() {
			continue
		}
		// When something was last ended there matters to looks that have begun
		// before. In a search a look takes no time.
		b = append(b, byte(len(c.drives)), bit(c.open != nil))
		for _, d := range c.drives {
			b = appendRef(b, d.ref)
			b = appendInt(b, d.sequence)
			b = append(b, bit(d.inFlight), bit(d.fenced), bit(d.uncertain), bit(d.again))
			if d.inFlight {
				b = appendInt(b, d.asked)
			}
			b = appendInt(b, left(d.nextTry))
			b = appendInt(b, cfg.backoff(d.attempts+1)) // all that the count is for
		}
		if c.open != nil {
			b = c.open.appendFingerprint(b, value, now)
		}
	}
	return append(b, 0xff)
}

func (o open) appendFingerprint(b []byte, value *txnlog.GlobalTransaction, now int64) []byte {
	b = appendRef(b, o.ref())
	b = appendInt(b, o.txn.StartMillis)
	b = append(b, byte(o.txn.EndTxnVersion), bit(o.former))
	age := now - o.firstSeen
	if value != nil { // older than the timeout is the same as old enough
		age = min(age, int64(value.TimeoutMillis))
	}
	return appendInt(b, age)
}

func appendRef(b []byte, r ParticipantRef) []byte {
	b = appendText(b, r.ClusterID)
	b = appendInt(b, r.ProducerID)
	return appendInt(b, int64(r.ProducerEpoch))
}

func appendText(b []byte, s string) []byte {
	b = appendInt(b, int64(len(s)))
	return append(b, s...)
}

// appendInt writes seven bits a byte, sign first.
func appendInt(b []byte, n int64) []byte {
	u := uint64(n<<1) ^ uint64(n>>63)
	for ; u >= 0x80; u >>= 7 {
		b = append(b, byte(u)|0x80)
	}
	return append(b, byte(u))
}

func bit(on bool) byte {
	if on {
		return 1
	}
	return 0
}
