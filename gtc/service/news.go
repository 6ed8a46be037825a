package service

import (
	"slices"
	"sync"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// news is what a record of an id says that the one before did not. It is told,
// to the metrics and to the node's log, when the record is durable: what a crash
// takes back has not happened, and happens again.
type news struct {
	id                      string
	now                     *txnlog.GlobalTransaction
	ended                   bool // for the first time
	torn, forgot, leftovers []txnlog.Participant
	refused                 []gtc.Vote // of now's participants, in order; nil when none was refused
}

// compare finds the news of a record, but for the votes.
func compare(id string, before, now *txnlog.GlobalTransaction) news {
	n := news{id: id, now: now}
	if now == nil {
		return n
	}
	if before == nil {
		before = &txnlog.GlobalTransaction{}
	}
	n.ended = ended(now) && (!ended(before) || before.Sequence != now.Sequence)
	n.torn, n.forgot = newlyTorn(before, now), newlyOpen(before, now)
	for _, p := range now.Leftovers {
		if p.State == txnlog.ParticipantPending && find(before.Leftovers, p) == nil {
			n.leftovers = append(n.leftovers, p)
		}
	}
	return n
}

// ended: every participant has ended the transaction, and it is known how the
// only one has.
func ended(v *txnlog.GlobalTransaction) bool {
	complete := v.State == txnlog.StateCompleteCommit || v.State == txnlog.StateCompleteAbort
	return complete && (len(v.Participants) != 1 || v.Participants[0].State != txnlog.ParticipantHeuristicUnknown)
}

// find looks for the same participant transaction.
func find(ps []txnlog.Participant, p txnlog.Participant) *txnlog.Participant {
	for i := range ps {
		if ps[i].ClusterID == p.ClusterID && ps[i].ProducerID == p.ProducerID && ps[i].ProducerEpoch == p.ProducerEpoch {
			return &ps[i]
		}
	}
	return nil
}

// newlyTorn are the participants that a record calls heuristic and the one before
// did not. What is torn may have moved among the leftovers in between.
func newlyTorn(before, now *txnlog.GlobalTransaction) (torn []txnlog.Participant) {
	was := func(ps []txnlog.Participant, p txnlog.Participant) bool {
		old := find(ps, p)
		return old != nil && heuristic(*old)
	}
	decision := *now
	decision.Leftovers = nil
	if gtc.Torn(&decision) {
		for _, p := range now.Participants {
			if heuristic(p) && (before.Sequence != now.Sequence || !was(before.Participants, p)) {
				torn = append(torn, p)
			}
		}
	}
	for _, p := range now.Leftovers {
		if heuristic(p) && !was(before.Leftovers, p) && !was(before.Participants, p) {
			torn = append(torn, p)
		}
	}
	return torn
}

// newlyOpen are the participants that had ended a decided transaction, as the
// record before says, and have to be told again. One of which nobody knew how it
// ended is none of them: an operator may have given it up while it was open.
func newlyOpen(before, now *txnlog.GlobalTransaction) (open []txnlog.Participant) {
	add := func(then, now []txnlog.Participant) {
		for _, p := range now {
			was := find(then, p)
			if was == nil || gtc.DoubtForgotten(*was) || p.State != txnlog.ParticipantPending && p.State != txnlog.ParticipantOrphaned {
				continue
			}
			switch was.State {
			case txnlog.ParticipantComplete, txnlog.ParticipantHeuristicCommit, txnlog.ParticipantHeuristicAbort:
				open = append(open, p)
			case txnlog.ParticipantPending, txnlog.ParticipantHeuristicUnknown, txnlog.ParticipantOrphaned:
			}
		}
	}
	if before.Sequence == now.Sequence {
		add(before.Participants, now.Participants)
		add(before.Participants, fresh(before.Leftovers, now.Leftovers)) // an only participant, whose record stays
	}
	add(before.Leftovers, now.Leftovers)
	return open
}

// fresh are the participants that the leftovers before did not have.
func fresh(before, now []txnlog.Participant) []txnlog.Participant {
	return slices.DeleteFunc(slices.Clone(now), func(p txnlog.Participant) bool { return find(before, p) != nil })
}

// reopened are the ids whose last transaction had ended and is pending again,
// with its number. It has been counted, and is not when it ends again.
type reopened map[string]int64

// follow takes the next record of an id, live and on load, and says whether its
// transaction had ended before.
func (r reopened) follow(id string, before, now *txnlog.GlobalTransaction) (again bool) {
	if now != nil && before != nil && before.Sequence == now.Sequence {
		if ended(before) && !ended(now) {
			r[id] = now.Sequence
		}
	}
	sequence, is := r[id]
	if !is {
		return false
	}
	again = now != nil && now.Sequence == sequence
	if !again || ended(now) {
		delete(r, id)
	}
	return again
}

// observe finds the news of a record before it replaces the one that the machine
// has. They ride with the next append, as the record does.
func (sh *shard) observe(cause gtc.Event, r txnlog.Record) {
	t, id := sh.term, r.GlobalTransactionalID
	before := t.machine.Value(id)
	n := compare(id, before, r.Value)
	n.ended = !t.reopened.follow(id, before, r.Value) && n.ended
	if v, ok := cause.(gtc.VotesTaken); ok && v.ID == id && r.Value.State == txnlog.StatePrepareAbort {
		n.refused = v.Votes
	}
	t.news = append(t.news, n)
}

// batch is an append that is not acknowledged.
type batch struct {
	records []txnlog.Record
	tell    func() // the news, once
}

// takeBatch makes one of the records. With them goes all news so far: those of a
// lazy record that a later one of the id has replaced are true when that is.
func (sh *shard) takeBatch(records []txnlog.Record) *batch {
	t := sh.term
	all := t.news
	t.news = nil
	b := &batch{records: records, tell: sync.OnceFunc(func() {
		for _, n := range all {
			sh.s.tell(n)
		}
	})}
	t.flight = append(t.flight, b)
	return b
}

// landed finds those batches of an earlier term that are in the log although
// nobody has said so.
type landed struct {
	batches []*batch
	of      map[string][]trace // by id
	upTo    int                // so many of the batches
}

type trace struct {
	batch int
	value string // encoded
}

func newLanded(batches []*batch) *landed {
	l := &landed{batches: batches, of: map[string][]trace{}}
	for i, b := range batches {
		for _, r := range b.records {
			l.of[r.GlobalTransactionalID] = append(l.of[r.GlobalTransactionalID], trace{i, encoded(r.Value)})
		}
	}
	return l
}

func encoded(v *txnlog.GlobalTransaction) string {
	if v == nil {
		return ""
	}
	return string(txnlog.AppendValue(nil, v))
}

// see takes a record of the log. A batch is in it whole or not at all, and not
// without those before it.
func (l *landed) see(r txnlog.Record) {
	traces := l.of[r.GlobalTransactionalID]
	if traces == nil {
		return
	}
	value := encoded(r.Value)
	for _, t := range traces {
		if t.value == value {
			l.upTo = max(l.upTo, t.batch+1)
		}
	}
}

func (l *landed) tell() {
	for _, b := range l.batches[:l.upTo] {
		b.tell()
	}
}

// tell counts news and says aloud what nobody else may be listening for.
func (s *Service) tell(n news) {
	s.retentions.session(n.now)
	if n.ended {
		outcome := "aborted"
		if n.now.State == txnlog.StateCompleteCommit {
			outcome = "committed"
		}
		s.metrics.ended.WithLabelValues(outcome).Inc()
	}
	for _, p := range n.leftovers {
		s.metrics.leftovers.WithLabelValues(p.ClusterID).Inc()
	}
	for i, v := range n.refused {
		switch cluster := n.now.Participants[i].ClusterID; v.Code {
		case gtc.VoteRefused:
			s.metrics.votesRefused.WithLabelValues(cluster, "refused").Inc()
		case gtc.VoteUnavailable:
			s.metrics.votesRefused.WithLabelValues(cluster, "unavailable").Inc()
		case gtc.VotePrepared:
		}
	}
	for _, p := range n.torn {
		s.tellTorn(n, p)
	}
	for _, p := range n.forgot {
		s.metrics.forgot.WithLabelValues(p.ClusterID).Inc()
		participantOf(s.o.Logger.Warn(), n.id, n.now.Sequence, p).Str("decided", decision(n.now)).
			Msg("a participant forgot: it had ended this transaction and shows it open again; it is told the decision again. " +
				"Its __transaction_state was restored from a copy or has elected an unclean leader, so other transactions may have come undone as well: " +
				"compare its data with the other clusters (kafka-global-transactions verify ID). " +
				"Or a deposed broker has answered from its cache: then nothing is lost, and this ends by itself")
	}
}

// participantOf names one participant's transaction in a line of the log, as the
// tools of its cluster do.
func participantOf(line *zerolog.Event, id string, sequence int64, p txnlog.Participant) *zerolog.Event {
	return line.Str("global.transactional.id", id).Int64("sequence", sequence).Str("cluster", p.ClusterID).
		Int64("producer.id", p.ProducerID).Int16("producer.epoch", p.ProducerEpoch)
}

func decision(v *txnlog.GlobalTransaction) string {
	if v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit {
		return "commit"
	}
	return "abort"
}

func (s *Service) tellTorn(n news, p txnlog.Participant) {
	decided := decision(n.now)
	if find(n.now.Leftovers, p) != nil {
		decided = "abort" // of an earlier transaction
	}
	seen := map[txnlog.ParticipantState]string{
		txnlog.ParticipantHeuristicCommit: "committed", txnlog.ParticipantHeuristicAbort: "aborted",
		txnlog.ParticipantHeuristicUnknown: "ended, nobody can tell how",
	}
	s.metrics.heuristics.WithLabelValues(p.ClusterID).Inc()
	participantOf(s.o.Logger.Error(), n.id, n.now.Sequence, p).Str("decided", decided).Str("seen", seen[p.State]).Str("detail", p.Detail).
		Msg("heuristic outcome: a participant ended against the decision; the id stands still until an operator has looked and forgets it")
}
