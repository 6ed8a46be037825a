package sim

import (
	"cmp"
	"slices"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// txn is what the checker knows of one client transaction; the participants and
// the coordinator do not see it.
type txn struct {
	client    int8
	instance  byte
	life      int8  // of the id
	epoch     int32 // global epoch
	sequence  int64
	listed    uint8 // participants that the client names
	producers [maxClusters]producer

	open, committed, aborted uint8 // participants with records in that state
	outsider                 uint8 // participants that somebody else ended
	// split: an outsider ended a part there, below EndTxn v5, and the client has
	// written on under the same epoch. Nobody can tell what the first half was.
	split uint8
	asked bool // commit was asked for
	// doomed: somebody else aborted a part before commit was asked for, so
	// that the vote must see it.
	doomed bool
	// recorded and told are what the log and the client were given.
	recordedCommit bool
	recordedAbort  uint8 // participants that the coordinator has seen open
	decidedAbort   bool
	// unknowable: its only participant was recorded as heuristic. With one
	// participant nothing can be torn, and yet a request that arrives late, at
	// a coordinator that never heard of the one-phase end, leads there with
	// nobody from outside about: a false alarm, and safe. So does a scan that
	// sees it beside what is left of another transaction.
	unknowable bool
	heuristic  uint8 // participants recorded as heuristic
	told       gtc.Outcome
	toldTorn   bool // with HEURISTIC_OUTCOME
}

// ledger is what has ever landed in the log, as far as promises depend on it.
type ledger struct {
	landed []recorded
	// forgiven: an operator has asked to forget what is torn.
	forgiven bool
	// life counts the expiries of the id. epoch is the highest global epoch of
	// its present life in the log, over the highest of a session that has ended.
	life        int8
	epoch, over int32
	givenUp     int // participants, by an operator
	// wentBack are the clusters that have forgotten something: there a producer
	// epoch may name two transactions, and what had ended may end once more.
	wentBack uint8
}

// recorded is one participant of a decision in the log.
type recorded struct {
	sequence int64 // 0 of a leftover
	cluster  int8
	producer producer
	commit   bool
}

func (r recorded) compare(o recorded) int {
	key := func(r recorded) int64 {
		return r.sequence<<24 | int64(r.cluster)<<20 | int64(r.producer.id)<<12 | int64(r.producer.epoch&0x7ff)<<1 | int64(bit(r.commit))
	}
	return cmp.Compare(key(r), key(o))
}

// ended notes how a participant's part of a transaction ended.
func (w *world) ended(t, cluster int8, commit bool) {
	x := &w.txns[t]
	bit := uint8(1) << cluster
	x.open &^= bit
	if commit {
		x.committed |= bit
	} else {
		x.aborted |= bit
	}
	w.checkAtomic(t)
}

// checkAtomic: no transaction has a committed and an aborted part, unless
// somebody from outside ended one of them.
func (w *world) checkAtomic(t int8) {
	x := &w.txns[t]
	inside := ^(x.outsider | w.ledger.wentBack)
	if x.committed&inside != 0 && x.aborted&inside != 0 {
		w.violate("transaction %d is torn: committed on %s, aborted on %s", t, names(x.committed), names(x.aborted))
	}
	if x.told == gtc.OutcomeCommitted && x.aborted&inside != 0 {
		w.violate("transaction %d was told committed and is aborted on %s", t, names(x.aborted))
	}
	if x.told == gtc.OutcomeAborted && x.committed&inside != 0 {
		w.violate("transaction %d was told aborted and is committed on %s", t, names(x.committed))
	}
}

func names(set uint8) string {
	s := ""
	for k := range maxClusters {
		if set&(1<<k) != 0 {
			s += clusterIDs[k]
		}
	}
	return s
}

// landed takes a record into the log.
func (w *world) landed(r txnlog.Record) {
	last := w.log.last
	w.log.last = &r
	v := r.Value
	if v == nil {
		w.log.last = nil
		w.forgotten(last)
		return
	}
	if v.GlobalEpoch < w.ledger.epoch {
		w.violate("the global epoch went back from %d to %d", w.ledger.epoch, v.GlobalEpoch)
	}
	w.ledger.epoch = v.GlobalEpoch
	if v.SessionEnded {
		w.ledger.over = v.GlobalEpoch
	}
	commit := v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit
	for _, p := range v.Participants {
		w.recordedOne(p, v.Sequence, commit, len(v.Participants) == 1)
	}
	for _, p := range v.Leftovers {
		if p.ClusterID == strangerID {
			w.violate("%s ends a transaction on a cluster that no session names", recordText(r))
			return
		}
		w.recordedOne(p, 0, false, false)
	}
	w.tornIsKept(last, v)
}

// forgotten: an id expires, and only one of which nothing is left to be done. Its
// epochs begin anew.
func (w *world) forgotten(last *txnlog.Record) {
	w.ledger.life++
	w.ledger.epoch, w.ledger.over, w.ledger.forgiven = 0, 0, false
	if last == nil {
		return
	}
	v := last.Value
	if v.State == txnlog.StatePrepareCommit || v.State == txnlog.StatePrepareAbort || len(v.Leftovers) > 0 || gtc.Torn(v) {
		w.violate("an id has expired with %s", recordText(*last))
	}
	for k := range w.n {
		if t := w.clusters[k].owner(); t >= 0 && w.txns[t].life < w.ledger.life && w.ledger.wentBack&(1<<k) == 0 {
			w.violate("an id has expired while transaction %d is open on %s", t, clusterIDs[k])
		}
	}
}

// tornIsKept: what is torn stays torn in the log until an operator forgets it, or
// until its participant, which was open after all, has ended as decided. Where nobody
// knows how it ended it may be told again; where that is known it may not.
func (w *world) tornIsKept(last *txnlog.Record, now *txnlog.GlobalTransaction) {
	if last == nil || !gtc.Torn(last.Value) {
		return
	}
	v := last.Value
	commit := v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit
	told := func(p txnlog.Participant) bool {
		return p.State == txnlog.ParticipantPending || p.State == txnlog.ParticipantOrphaned
	}
	for i, p := range slices.Concat(v.Participants, v.Leftovers) {
		kept := func(n txnlog.Participant) bool {
			return n.ClusterID == p.ClusterID && n.ProducerID == p.ProducerID && n.ProducerEpoch == p.ProducerEpoch &&
				(n.State.Heuristic() || p.State == txnlog.ParticipantHeuristicUnknown && told(n))
		}
		if !p.State.Heuristic() || slices.ContainsFunc(slices.Concat(now.Participants, now.Leftovers), kept) {
			continue
		}
		if w.hasEnded(p, v.Sequence, commit && i < len(v.Participants)) {
			continue
		}
		if !w.ledger.forgiven {
			w.violate("%s was torn, and %s has replaced it before an operator forgot it", recordText(*last), recordText(txnlog.Record{Value: now}))
			return
		}
		defer func() { w.ledger.forgiven = false }()
	}
}

// hasEnded: the participant has ended so in truth, at least once.
func (w *world) hasEnded(p txnlog.Participant, sequence int64, commit bool) bool {
	k := clusterOf(p.ClusterID)
	if w.ledger.wentBack&(1<<k) != 0 {
		return true // and forgotten that
	}
	t := w.meantBy(endOrder{
		cluster: k, producer: producerOf(p.ProducerID, p.ProducerEpoch), start: startOf(p.StartMillis), sequence: sequence,
	})
	if t < 0 {
		return false
	}
	ended := w.txns[t].aborted
	if commit {
		ended = w.txns[t].committed
	}
	return ended&(1<<k) != 0
}

// recordedOne takes one participant of a decision in.
func (w *world) recordedOne(p txnlog.Participant, sequence int64, commit, alone bool) {
	o := endOrder{
		cluster: clusterOf(p.ClusterID), producer: producerOf(p.ProducerID, p.ProducerEpoch),
		start: startOf(p.StartMillis), sequence: sequence,
	}
	d := recorded{sequence, o.cluster, o.producer, commit}
	if !slices.Contains(w.ledger.landed, d) {
		w.ledger.landed = append(w.ledger.landed, d)
	}
	t := w.meantBy(o)
	if t < 0 {
		return
	}
	x := &w.txns[t]
	if w.ledger.wentBack&(1<<o.cluster) != 0 && sequence != 0 && (x.sequence != sequence || x.epoch != w.ledger.epoch || !x.asked) {
		return // the name is another's, too
	}
	single := x.listed&(x.listed-1) == 0
	unknown := alone && (p.State.Heuristic() || x.unknowable) // the record says neither
	switch {
	case commit && alone && !single:
		// The scan saw one part, an outsider had committed it, and the record
		// has followed.
		x.recordedAbort &^= 1 << o.cluster
	case commit && !unknown:
		x.recordedCommit = true
	case !commit && sequence != 0:
		x.decidedAbort = true
		// An only participant may yet turn out committed (R5).
		if o.start > 0 && (!alone || p.State != txnlog.ParticipantPending) {
			x.recordedAbort |= 1 << o.cluster
		}
	}
	if p.State.Heuristic() {
		x.heuristic |= 1 << o.cluster
		x.unknowable = x.unknowable || single
	}
	if sequence != 0 && x.recordedCommit && x.decidedAbort && !alone && !single {
		w.violate("transaction %d was decided commit and abort", t)
	}
	if commit && x.doomed && w.ledger.wentBack == 0 && !unknown && x.committed == 0 {
		w.violate("transaction %d was decided commit although a part of it was aborted before that was asked for", t)
	}
}

// meantBy is the client transaction that a recorded participant is about.
func (w *world) meantBy(o endOrder) int8 {
	if m := w.clusters[o.cluster].marker(o.start); m != nil {
		return m.txn
	}
	// The newest that was asked for: on transaction.version 1 one that its
	// client has aborted before has the same name.
	for t := len(w.txns) - 1; t >= 0; t-- {
		x := &w.txns[t]
		if x.asked && x.sequence == o.sequence && x.listed&(1<<o.cluster) != 0 && x.producers[o.cluster] == o.producer {
			return int8(t)
		}
	}
	return -1
}

// checkRecorded: what an EndTxn tells is in the log when it leaves (R1), except
// for the commit of an only participant (R5).
func (w *world) checkRecorded(h int8, o endOrder) {
	w.checkNotCommitted(h, o)
	if w.outcomesOnly || o.onePhase && o.commit {
		return
	}
	// An abort that is told as a leftover's was recorded as a transaction's where
	// the next decision has replaced it.
	told := func(r recorded) bool {
		return r == recorded{r.sequence, o.cluster, o.producer, o.commit} && (r.sequence == o.sequence || o.sequence == 0)
	}
	if !slices.ContainsFunc(w.ledger.landed, told) {
		w.violate("host %d sends EndTxn(%s) for sequence %d to %s, and the log does not say so",
			h, decisionText(o.commit), o.sequence, clusterIDs[o.cluster])
	}
}

// checkNotCommitted: no abort is told to what the last decision commits, whatever
// has happened there since, an operator's word included.
func (w *world) checkNotCommitted(h int8, o endOrder) {
	m := w.clusters[o.cluster].marker(o.start)
	if o.commit || m == nil || w.log.last == nil || w.hosts[h].term.claim != w.log.owner {
		return
	}
	v, x := w.log.last.Value, &w.txns[m.txn]
	commit := v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit
	if commit && v.Sequence == x.sequence && x.life == w.ledger.life && x.recordedCommit && len(v.Participants) > 1 {
		w.violate("host %d sends EndTxn(abort) to %s for what %s commits", h, clusterIDs[o.cluster], recordText(*w.log.last))
	}
}

// seenOpen is a transaction that the looks of one coordinator have seen open.
type seenOpen struct {
	cluster int8
	start   int16
	since   int64
}

// checkAge: what a coordinator sees open for longer than the timeout is being
// ended, whatever sessions have come and gone meanwhile (C-LIVE-1).
func (w *world) checkAge(h int8, m message) {
	t := w.hosts[h].term
	if t == nil || m.code != none || !w.fine || m.began < t.endedAt[m.cluster] || m.began < t.opened {
		return
	}
	now := w.hosts[h].clock.Mono
	i := slices.IndexFunc(t.seen, func(s seenOpen) bool { return s.cluster == m.cluster })
	switch start := startOf(m.open.StartMillis); {
	case !m.isOpen || i >= 0 && t.seen[i].start != start:
		t.seen = slices.DeleteFunc(t.seen, func(s seenOpen) bool { return s.cluster == m.cluster })
	case i < 0 && !t.names(m.cluster): // it is of a session that this coordinator does not know
	case i < 0:
		t.seen = append(t.seen, seenOpen{m.cluster, start, now})
	case now-t.seen[i].since < int64(w.sessionTimeout) || w.ends(t, m):
	default:
		w.violate("host %d has seen a transaction open on %s for %d ms and does not end it", h, clusterIDs[m.cluster], now-t.seen[i].since)
	}
}

// names: a session of the id has named the cluster.
func (t *term) names(cluster int8) bool {
	v := t.machine.Value(globalID)
	return v != nil && slices.Contains(slices.Concat(v.ClusterIDs, v.FormerClusterIDs), clusterIDs[cluster])
}

// ends: the record names what a look has seen open, or an EndGlobalTxn may be
// under way, which has come at any time since.
func (w *world) ends(t *term, m message) bool {
	v, seen := t.machine.Value(globalID), w.clusters[m.cluster].marker(startOf(m.open.StartMillis))
	if v == nil || seen == nil || w.txns[seen.txn].asked || w.ledger.wentBack&(1<<m.cluster) != 0 {
		return true
	}
	return slices.ContainsFunc(slices.Concat(v.Participants, v.Leftovers), func(p txnlog.Participant) bool {
		return clusterOf(p.ClusterID) == m.cluster && p.ProducerID == m.open.ProducerID && p.ProducerEpoch == m.open.ProducerEpoch
	})
}

// told checks an answer to EndGlobalTxn when it leaves the coordinator; owner says
// that the coordinator is not superseded.
func (w *world) told(c call, r gtc.Response, owner bool) {
	if c.txn < 0 {
		return
	}
	x := &w.txns[c.txn]
	if x.life < w.ledger.life && owner && r.Outcome == gtc.OutcomeAborted && !x.decidedAbort {
		w.violate("transaction %d was told aborted after its id had expired, and nobody had decided that", c.txn)
	}
	if r.Code == gtc.CodeHeuristicOutcome && len(r.Participants) > 0 {
		x.toldTorn = true
	}
	if r.Outcome == gtc.OutcomeUnknown {
		return
	}
	if x.told != gtc.OutcomeUnknown && x.told != r.Outcome && x.listed&^w.ledger.wentBack != 0 {
		w.violate("transaction %d was told outcome %d and then %d", c.txn, x.told, r.Outcome)
	}
	x.told = r.Outcome
	alone := x.listed&(x.listed-1) == 0
	inside := x.listed &^ (x.outsider | w.ledger.wentBack)
	switch {
	case r.Outcome == gtc.OutcomeCommitted && alone:
		if x.committed&inside != inside&^w.unwritten(x) {
			w.violate("transaction %d was told committed before its only participant was", c.txn)
		}
	case r.Outcome == gtc.OutcomeCommitted && !x.recordedCommit:
		w.violate("transaction %d was told committed, and the log does not say so", c.txn)
	case r.Outcome == gtc.OutcomeAborted && alone && x.open&^w.ledger.wentBack != 0:
		w.violate("transaction %d was told aborted while its only participant was open", c.txn)
	}
	w.checkSilent(c.txn, x, r)
	w.checkAtomic(c.txn)
}

// checkTornTold: what is torn is told so, under whatever number its client asks
// (C-ATOM-2). Below EndTxn v5 a name may be another transaction's.
func (w *world) checkTornTold(t *term, r gtc.Reply) {
	i := slices.IndexFunc(t.calls, func(c call) bool { return c.request == r.Request })
	v := t.machine.Value(globalID)
	if i < 0 || t.calls[i].txn < 0 || r.Response.Code != gtc.CodeNone || r.Response.Outcome == gtc.OutcomeUnknown || v == nil {
		return
	}
	x := &w.txns[t.calls[i].txn]
	for _, p := range slices.Concat(v.Participants, v.Leftovers) {
		k := clusterOf(p.ClusterID)
		if p.State.Heuristic() && p.EndTxnVersion >= bumps && x.life == w.ledger.life && x.listed&(1<<k) != 0 && w.ledger.wentBack&(1<<k) == 0 &&
			x.producers[k] == producerOf(p.ProducerID, p.ProducerEpoch) {
			w.violate("transaction %d is told outcome %d with code 0, and the record says %s", t.calls[i].txn, r.Response.Outcome, recordText(txnlog.Record{Value: v}))
		}
	}
}

// unwritten are the listed participants without a record.
func (w *world) unwritten(x *txn) uint8 { return x.listed &^ (x.open | x.committed | x.aborted) }

// checkSilent: no plain answer names a participant complete that ended
// otherwise (C-ATOM-2).
func (w *world) checkSilent(t int8, x *txn, r gtc.Response) {
	if r.Code != gtc.CodeNone {
		return
	}
	for _, p := range r.Participants {
		bit := uint8(1) << clusterOf(p.ClusterID)
		against := r.Outcome == gtc.OutcomeCommitted && x.aborted&bit != 0 || r.Outcome == gtc.OutcomeAborted && x.committed&bit != 0
		if r.Outcome == gtc.OutcomeAborted && x.outsider&bit != 0 && x.recordedAbort&bit == 0 {
			continue // never seen open, so nobody can know that an outsider has committed it
		}
		if p.State == txnlog.ParticipantComplete && against && (x.heuristic|x.split|w.ledger.wentBack)&bit == 0 {
			w.violate("transaction %d: %s was told complete and ended otherwise", t, p.ClusterID)
		}
	}
}

// checkSettled is what must be true when every fault has healed and everybody
// has had time.
func (w *world) checkSettled() {
	for k := range w.n {
		c := &w.clusters[k]
		if c.open() {
			w.violate("a transaction is still open on %s; its readers wait for ever", clusterIDs[k])
		}
	}
	for t := range w.txns {
		w.checkTxnSettled(int8(t), &w.txns[t])
	}
	if r := w.log.last; r != nil {
		v := r.Value
		switch {
		case v.State == txnlog.StatePrepareCommit || v.State == txnlog.StatePrepareAbort:
			w.violate("the log ends with %s", recordText(*r))
		case slices.ContainsFunc(v.Leftovers, func(p txnlog.Participant) bool { return !p.State.Heuristic() }):
			w.violate("a leftover is still recorded: %s", recordText(*r))
		}
	}
	torn := w.log.last != nil && gtc.Torn(w.log.last.Value)
	for i := range w.clients {
		// One that knows, and waits for completion, waits for an operator where
		// the transaction before is torn.
		if c := &w.clients[i]; c.alive() && c.waits() && (!c.known || !torn) {
			w.violate("client %d has no answer (%v)", i, c.phase)
		}
	}
}

func (w *world) checkTxnSettled(t int8, x *txn) {
	var against uint8
	switch {
	case x.told == gtc.OutcomeCommitted || x.recordedCommit:
		against = x.aborted | x.open
	case x.told == gtc.OutcomeAborted:
		// What an outsider committed before anybody looked cannot be known.
		against = x.committed&^(x.outsider&^x.recordedAbort) | x.open
	default:
		against = x.committed & x.recordedAbort
	}
	against &^= x.split | w.ledger.wentBack
	if silent := against &^ x.heuristic; silent != 0 {
		w.violate("transaction %d ended otherwise on %s, and no record says so", t, names(silent))
	}
	if alarm := x.heuristic &^ x.outsider &^ w.ledger.wentBack; alarm != 0 && !w.retention && !x.unknowable {
		w.violate("transaction %d is recorded as torn on %s, and nobody from outside was there", t, names(alarm))
	}
	if against&^x.outsider != 0 && !x.unknowable {
		w.violate("transaction %d ended otherwise on %s, and nobody from outside did it", t, names(against&^x.outsider))
	}
}
