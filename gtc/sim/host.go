package sim

import (
	"fmt"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// host is one process that can be the coordinator: what gtc/service is around
// the machine. It holds effects back until the records before them are durable.
type host struct {
	clock    gtc.Time
	paused   bool
	attempts []attempt // the driver's memory, of the process
	term     *term     // nil when it does not own the partition
	shared   bool      // term and attempts are also another world's
}

// term is the life of a machine from one claim to its end. A host whose claim
// was superseded goes on in its term until the log tells it.
type term struct {
	claim   int32
	machine *gtc.Machine

	lazy     []txnlog.Record
	inflight []batch
	forced   uint64 // tickets handed out
	durable  uint64 // tickets acknowledged
	last     uint64 // ticket of the newest forced record of the id
	held     []held

	calls   []call
	checks  []gtc.CheckParticipants
	looking []looking
	seen    []seenOpen         // by its looks, for the checker
	endedAt [maxClusters]int64 // when an EndTxn was last answered
	opened  int64              // when a session was last opened
}

// batch is one append in flight. Ticket 0 is one that nothing waits for.
type batch struct {
	records []txnlog.Record
	ticket  uint64
	landed  bool
}

type held struct {
	after  uint64
	effect gtc.Effect
}

// call is a client's request that the machine has not answered.
type call struct {
	request gtc.RequestID
	client  int8 // -1 when nobody listens any more
	txn     int8 // of an EndGlobalTxn, else -1
}

// looking is a TakeVotes being carried out.
type looking struct {
	effect gtc.TakeVotes
	votes  [maxClusters]gtc.Vote
	seen   uint8
}

func (t *term) clone() *term {
	if t == nil {
		return nil
	}
	c := *t
	c.machine = t.machine.Clone()
	c.lazy, c.inflight, c.held = slices.Clone(t.lazy), slices.Clone(t.inflight), slices.Clone(t.held)
	c.calls, c.checks, c.looking, c.seen = slices.Clone(t.calls), slices.Clone(t.checks), slices.Clone(t.looking), slices.Clone(t.seen)
	return &c
}

// claim makes a host the owner: a claim, then the replay of everything before.
func (w *world) claim(h int8) {
	host := &w.hosts[h]
	w.own(h)
	w.endTerm(h, false)
	w.log.owner++
	t := &term{claim: w.log.owner, machine: gtc.NewMachine(w.machine)}
	host.term = t
	if w.log.last != nil {
		t.machine.Apply(gtc.Persist{Record: *w.log.last})
	}
	w.carryOut(h, t.machine.Recover(host.clock))
}

// endTerm ends a host's term: a failed append, or with crash the end of the
// process. What it has sent may still arrive; what it has not appended is gone.
func (w *world) endTerm(h int8, crash bool) {
	host := &w.hosts[h]
	if host.term == nil {
		return
	}
	w.own(h)
	t := host.term
	host.term = nil
	for i := range host.attempts {
		if at := &host.attempts[i]; at.busy {
			at.busy, at.Uncertain = false, true
		}
	}
	if crash {
		host.attempts = nil
	}
	w.bag = slices.DeleteFunc(w.bag, func(m message) bool {
		return m.host == h && (m.kind == endTxnReply || m.kind == keepTxnReply || m.kind == scanResult)
	})
	for i := range w.bag {
		if m := &w.bag[i]; (m.kind == endTxn || m.kind == keepTxn) && m.host == h {
			m.connected = false
		}
	}
	for _, c := range t.calls {
		if c.client >= 0 {
			w.reply(c, response{code: codeLoading})
		}
	}
}

// step feeds a host's machine one event.
func (w *world) step(h int8, ev gtc.Event) {
	w.own(h)
	host := &w.hosts[h]
	if w.fine { // no two things happen at once
		host.clock.Mono++
		host.clock.Wall++
	}
	ev = w.mutateEvent(host, ev)
	w.carryOut(h, host.term.machine.Step(host.clock, ev))
	if w.bad == "" && w.deepCheck {
		if err := host.term.machine.Check(); err != nil {
			w.violate("after %T: %v", ev, err)
		}
	}
}

// carryOut is what gtc/service does with an Output, line by line.
func (w *world) carryOut(h int8, out gtc.Output) {
	t := w.hosts[h].term
	var forced []txnlog.Record
	for _, c := range out.Changes {
		c = w.mutateChange(c)
		p, ok := c.(gtc.Persist)
		if before := t.machine.Value(globalID); ok && p.Record.Value != nil && (before == nil || before.GlobalEpoch < p.Record.Value.GlobalEpoch) {
			t.opened = w.hosts[h].clock.Mono
		}
		t.machine.Apply(c)
		switch {
		case !ok:
		case p.Lazy && len(forced) == 0:
			w.traceRecord("lazily", p.Record)
			t.lazy = append(t.lazy, p.Record)
		default:
			w.traceRecord("append", p.Record)
			forced = append(forced, p.Record)
			if !p.Lazy {
				t.last = t.forced + 1
			}
		}
	}
	if forced != nil {
		t.forced++
		t.inflight = append(t.inflight, batch{records: append(t.lazy, forced...), ticket: t.forced})
		t.lazy = nil
	}
	for _, e := range out.Effects {
		if r, ok := e.(gtc.Reply); ok {
			w.checkTornTold(t, r)
		}
		if t.last > t.durable && !w.mutant.leavesEarly(e) {
			t.held = append(t.held, held{after: t.last, effect: e})
		} else {
			w.effect(h, e)
		}
		if w.hosts[h].term != t {
			return
		}
	}
}

// acknowledge lets go what waited for the oldest append in flight.
func (w *world) acknowledge(h int8) {
	w.own(h)
	t := w.hosts[h].term
	done := t.inflight[0]
	t.inflight = slices.Delete(slices.Clone(t.inflight), 0, 1)
	if done.ticket == 0 {
		return
	}
	t.durable = done.ticket
	waiting := t.held
	t.held = nil
	for _, x := range waiting {
		if x.after <= t.durable {
			w.effect(h, x.effect)
		} else {
			t.held = append(t.held, x)
		}
	}
}

// effect carries one effect out.
func (w *world) effect(h int8, e gtc.Effect) {
	t := w.hosts[h].term
	switch e := e.(type) {
	case gtc.Reply:
		i := slices.IndexFunc(t.calls, func(c call) bool { return c.request == e.Request })
		if i < 0 {
			w.violate("an answer to request %d, which is answered or was never asked", e.Request)
			return
		}
		c := t.calls[i]
		t.calls = slices.Delete(t.calls, i, i+1)
		resp := w.mutateReply(e.Response)
		w.told(c, resp, t.claim == w.log.owner)
		answer := responseOf(resp)
		answer.life = w.ledger.life
		w.reply(c, answer)
	case gtc.CheckParticipants:
		t.checks = append(t.checks, e)
		if !w.fine {
			w.check(h)
		}
	case gtc.TakeVotes:
		if len(e.Participants) > maxClusters {
			panic(fmt.Sprintf("a world has at most %d participants", maxClusters))
		}
		t.looking = append(t.looking, looking{effect: e})
	case gtc.EndTxn:
		if e.Participant.ClusterID == strangerID {
			w.violate("host %d ends a transaction on a cluster that no session names", h)
			return
		}
		o := orderOf(e)
		w.mutateOrder(&o)
		o.meant = w.meantBy(o)
		w.tracef("    -> host %d: EndTxn(%s) %s:%d/%d v%d", h, decisionText(o.commit), clusterIDs[o.cluster], o.producer.id, o.producer.epoch, o.version)
		w.checkRecorded(h, o)
		w.startEnd(h, o)
	}
}

// check answers a CheckParticipants.
func (w *world) check(h int8) {
	w.own(h)
	t := w.hosts[h].term
	e := t.checks[0]
	t.checks = slices.Delete(t.checks, 0, 1)
	ev := gtc.ParticipantsChecked{ID: e.ID, Attempt: e.Attempt}
	for _, id := range e.ClusterIDs {
		r := gtc.CheckResult{ClusterID: id}
		if w.clusters[clusterOf(id)].down {
			r.Code = gtc.CheckUnavailable
		}
		ev.Results = append(ev.Results, r)
	}
	w.step(h, ev)
}

// look takes the vote of one participant. In the search the last one hands the
// votes to the machine.
func (w *world) look(h int8, which, participant int) {
	w.own(h)
	host := &w.hosts[h]
	l := &host.term.looking[which]
	ref := l.effect.Participants[participant]
	o := endOrder{cluster: clusterOf(ref.ClusterID), producer: producerOf(ref.ProducerID, ref.ProducerEpoch)}
	v := gtc.Vote{Code: gtc.VoteUnavailable, Detail: "unavailable"}
	if c := &w.clusters[o.cluster]; !c.down {
		v = verdict.Vote(w.asked(o.cluster).view(), ref, c.version)
		if w.mutant == readOnlyVote && v.Code == gtc.VoteRefused && w.asked(o.cluster).now == o.producer && c.version >= bumps {
			v.Code, v.EndTxnVersion = gtc.VotePrepared, bumps // and startEnd sends nothing
		}
	}
	if w.mutant == voteSkipped {
		v.Code, v.Detail = gtc.VotePrepared, ""
	}
	if v.Code == gtc.VotePrepared {
		host.voted(o, v.StartMillis, w.asked(o.cluster).broker)
	}
	if m := w.clusters[o.cluster].marker(startOf(v.StartMillis)); w.deposed[o.cluster] != nil && m != nil {
		w.txns[m.txn].doomed = false // what was aborted since cannot be seen
	}
	l.votes[participant] = v
	l.seen |= 1 << participant
	if !w.fine && l.complete() {
		w.deliverVotes(h, which)
	}
}

// deliverVotes hands complete votes to the machine.
func (w *world) deliverVotes(h int8, which int) {
	w.own(h)
	t := w.hosts[h].term
	l := t.looking[which]
	t.looking = slices.Delete(t.looking, which, which+1)
	w.step(h, gtc.VotesTaken{
		ID: l.effect.ID, GlobalEpoch: l.effect.GlobalEpoch, Sequence: l.effect.Sequence,
		Votes: slices.Clone(l.votes[:len(l.effect.Participants)]),
	})
}

func (l looking) complete() bool { return l.seen == 1<<len(l.effect.Participants)-1 }

// receive hands a client's request to a host's machine.
func (w *world) receive(h int8, m message) {
	w.own(h)
	t := w.hosts[h].term
	id := t.freeRequest()
	client := m.client
	if !m.connected {
		client = -1
	}
	t.calls = append(t.calls, call{request: id, client: client, txn: m.txn})
	if m.kind == initRequest {
		w.step(h, gtc.InitRequest{
			Request: id, ID: globalID, TimeoutMillis: w.sessionTimeout,
			ClusterIDs: clusterList(m.session), InstanceID: txnlog.UUID{15: m.instance},
		})
		return
	}
	t.seen = nil // C-END-19
	x := &w.txns[m.txn]
	ev := gtc.EndRequest{
		Request: id, ID: globalID, GlobalEpoch: x.epoch, Sequence: x.sequence, Commit: m.commit,
		TimeoutMillis: w.patience,
	}
	for k := range w.n {
		if x.listed&(1<<k) != 0 {
			ev.Participants = append(ev.Participants, refOf(int8(k), x.producers[k]))
		}
	}
	w.step(h, ev)
}

func clusterList(set uint8) (ids []string) {
	for k, id := range clusterIDs {
		if set&(1<<k) != 0 {
			ids = append(ids, id)
		}
	}
	return ids
}

// freeRequest is the lowest request id that is not in use. The core wants one
// that is unique as long as an answer to it can come; reusing keeps the number
// of different worlds small.
func (t *term) freeRequest() gtc.RequestID {
	for id := gtc.RequestID(1); ; id++ {
		used := slices.ContainsFunc(t.calls, func(c call) bool { return c.request == id }) ||
			slices.ContainsFunc(t.checks, func(c gtc.CheckParticipants) bool { return c.Attempt == uint64(id) })
		if !used {
			return id
		}
	}
}

// linger appends the lazy records that no forced one has taken along.
func (w *world) linger(h int8) {
	w.own(h)
	t := w.hosts[h].term
	t.inflight = append(t.inflight, batch{records: t.lazy})
	t.lazy = nil
}

// land brings the oldest append of a host that has not landed into the log, or
// shows the host that it was fenced.
func (w *world) land(h int8) {
	w.own(h)
	t := w.hosts[h].term
	if t.claim != w.log.owner && w.mutant != noFence {
		w.tracef("    fenced")
		w.endTerm(h, false)
		return
	}
	t.inflight = slices.Clone(t.inflight)
	b := &t.inflight[t.unlanded()]
	b.landed = true
	for _, r := range b.records {
		w.landed(r)
	}
}

func (t *term) unlanded() int {
	return slices.IndexFunc(t.inflight, func(b batch) bool { return !b.landed })
}
