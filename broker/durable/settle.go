package durable

// settle decides where the producer's transaction stands, and changes in
// memory what must be written for that.
func (r *repair) settle(p *producer) {
	epoch := max(p.epoch, p.seenEpoch)
	if p.logged && epoch > p.epoch {
		// kfake moved the epoch on without logging it yet: it was aborting
		// the transaction because of its timeout.
		p.lastWasCommit, p.endEpoch, p.outcomeKnown = false, -1, true
	}
	if p.endEpoch == epoch-1 && p.lastWasCommit && p.marksAt(epoch-1).abort >= 0 {
		// The epoch's last end in the log is a commit, but it was followed by
		// a transaction that InitProducerId aborted, which logs no end.
		p.lastWasCommit = false
	}
	p.epoch = epoch
	var live []*openRange
	for _, o := range p.open {
		if p.txid == "" || p.superseded || o.epoch != epoch {
			r.endDead(p, o)
			continue
		}
		live = append(live, o)
	}
	if !p.logged || p.superseded || p.txid == "" {
		return
	}
	t := r.staged[p.id]
	if t != nil && t.epoch != epoch {
		t = nil // of a transaction that is over
	}
	switch {
	case t != nil && t.ending != nil && r.endProven(p, t, live):
		r.finish(p, t, live)
	case len(live) > 0 || t != nil && len(t.groups) > 0 || r.session.opens(p.id):
		r.keepOpen(p, live, t)
	case p.endEpoch != epoch && !p.outcomeKnown:
		// Neither an end nor an outcome was logged at this epoch, so control
		// records of this epoch are of the one transaction whose end kfake
		// was about to log.
		if m := p.marksAt(epoch); m.commit >= 0 || m.abort >= 0 {
			p.lastWasCommit = m.commit > m.abort
		}
	}
}

// endDead ends records whose transaction is over and which have no control
// record: those of a producer that pids.log does not have as a transactional
// one or whose epoch has gone on. kfake leaves such records when a control
// record could not be written (a full disk). Only a logged commit commits
// them.
func (r *repair) endDead(p *producer, o *openRange) {
	commit := p.endEpoch == o.epoch && p.endCommit && p.marksAt(o.epoch).abort < 0
	r.log.Warn().Str("topic", o.partition.topic).Int32("partition", o.partition.number).
		Int64("producer_id", o.producerID).Int16("producer_epoch", o.epoch).
		Int64("first_offset", o.first).Int64("last_offset", o.last).Bool("commit", commit).
		Msg("records of a transaction that is over had no control record; wrote one")
	o.partition.end(o, commit, r.now)
}

// endProven says whether kfake had begun the end that t notes. That it was
// asked for proves nothing: kfake may have been about to refuse it.
//
// Below version 5 an epoch has many transactions, one after the other, but a
// note is of the last one: it is forced before the end begins, and that it is
// done is forced before the next one can begin.
func (r *repair) endProven(p *producer, t *stagedTxn, live []*openRange) bool {
	e := t.ending
	m := p.marksAt(t.epoch)
	mark := m.abort
	if e.Commit {
		mark = m.commit
	}
	switch {
	case mark >= e.AtMillis:
		return true
	case len(live) > 0:
		return false
	case bumps(e.Version) && p.endEpoch == t.epoch && p.endCommit == e.Commit:
		return true // only the next epoch was not logged
	default:
		// No record was written, so there is no control record; but an end
		// applies the offsets before it is logged.
		return e.Commit && r.groups.has(t)
	}
}

// finish does what was left to do of an end.
func (r *repair) finish(p *producer, t *stagedTxn, live []*openRange) {
	for _, o := range live {
		o.partition.end(o, t.ending.Commit, r.now)
	}
	if t.ending.Commit {
		r.groups.commit(t, r.now)
	}
	r.report.Finished = append(r.report.Finished, Transaction{
		TransactionalID: p.txid, ProducerID: p.id, ProducerEpoch: p.epoch,
		Partitions: len(live), Groups: len(t.groups), Commit: t.ending.Commit,
	})
	p.lastWasCommit = t.ending.Commit
	if bumps(t.ending.Version) {
		p.epoch = nextEpoch(p.epoch)
	}
}

// keepOpen leaves the transaction as it was.
func (r *repair) keepOpen(p *producer, live []*openRange, t *stagedTxn) {
	txn := r.session.openTxn(p, live, t, r.now)
	r.open[p.id] = txn
	r.report.Open = append(r.report.Open, Transaction{
		TransactionalID: p.txid, ProducerID: p.id, ProducerEpoch: p.epoch,
		Partitions: len(live), Groups: len(txn.Groups),
	})
}

// opens says whether a clean stop left a transaction open that has nothing in
// the log. One that had records and has none open now was aborted by kfake
// while it loaded, because of its timeout.
func (s *session) opens(pid int64) bool {
	t, ok := s.txns[pid]
	return ok && len(t.FirstOffsets) == 0
}
