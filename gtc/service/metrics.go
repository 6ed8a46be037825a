package service

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// metrics are those of KIP.md, "Metrics". What happens is counted where it
// happens; what is open or torn is asked of the machines at each scrape, so it
// is right after a restart too.
type metrics struct {
	ended, heuristics, votesRefused, ends, scanFailures, leftovers *prometheus.CounterVec
	fenced                                                         prometheus.Counter
	endSeconds, scanSeconds                                        *prometheus.HistogramVec
	appendSeconds, appendRecords                                   prometheus.Histogram
	loadSeconds                                                    *prometheus.GaugeVec

	open, oldest, torn, reachable *prometheus.Desc
}

func newMetrics() *metrics {
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, from float64, buckets int) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: name, Help: help, Buckets: prometheus.ExponentialBuckets(from, 2, buckets)}
	}
	m := &metrics{
		ended:         counters("gtc_transactions_ended_total", "Global transactions that every participant has ended, by decision.", "outcome"),
		heuristics:    counters("gtc_heuristic_outcomes_total", "Participants that ended against the decision, or nobody can tell how.", "cluster"),
		votesRefused:  counters("gtc_votes_refused_total", "Participants that could not be committed when commit was asked.", "cluster", "reason"),
		ends:          counters("gtc_end_txn_attempts_total", "EndTxn sent to participants, by what the answer proved.", "cluster", "result"),
		scanFailures:  counters("gtc_scan_failures_total", "Recovery scans that did not see all of a cluster.", "cluster"),
		leftovers:     counters("gtc_leftover_aborts_total", "Open transactions of no live session whose abort was recorded.", "cluster"),
		fenced:        prometheus.NewCounter(prometheus.CounterOpts{Name: "gtc_log_fenced_total", Help: "Appends that the log refused because of a newer claim."}),
		endSeconds:    prometheus.NewHistogramVec(histogram("gtc_end_txn_duration_seconds", "One EndTxn with the look-ups that its answer needed.", 0.001, 15), []string{"cluster"}),
		scanSeconds:   prometheus.NewHistogramVec(histogram("gtc_scan_duration_seconds", "One recovery scan of a cluster.", 0.002, 15), []string{"cluster"}),
		appendSeconds: prometheus.NewHistogram(histogram("gtc_log_append_duration_seconds", "From an append to its being durable.", 0.00025, 16)),
		appendRecords: prometheus.NewHistogram(histogram("gtc_log_append_records", "Records of one append.", 1, 12)),
		loadSeconds:   prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "gtc_partition_load_duration_seconds", Help: "How long the last claim and load of an owned partition took."}, []string{"partition"}),

		open:      prometheus.NewDesc("gtc_transactions_open", "Global transactions that are undecided, pending, or in doubt (pending for longer than the session's timeout).", []string{"phase"}, nil),
		oldest:    prometheus.NewDesc("gtc_transactions_oldest_age_seconds", "Age of the oldest one in the phase; 0 when there is none.", []string{"phase"}, nil),
		torn:      prometheus.NewDesc("gtc_heuristic_outcomes", "Ids with a heuristic outcome that no operator has forgotten yet.", nil, nil),
		reachable: prometheus.NewDesc("gtc_participant_reachable", "1 when the last contact with the cluster succeeded, else 0.", []string{"cluster"}, nil),
	}
	// So that a rate over them is 0 and not absent before the first.
	m.ended.WithLabelValues("committed")
	m.ended.WithLabelValues("aborted")
	return m
}

func (m *metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{
		m.ended, m.heuristics, m.votesRefused, m.ends, m.scanFailures, m.leftovers, m.fenced,
		m.endSeconds, m.scanSeconds, m.appendSeconds, m.appendRecords, m.loadSeconds,
	}
}

func (m *metrics) loaded(partition int32, took time.Duration) {
	m.loadSeconds.WithLabelValues(strconv.Itoa(int(partition))).Set(took.Seconds())
}

func (m *metrics) forgetPartition(partition int32) {
	m.loadSeconds.DeleteLabelValues(strconv.Itoa(int(partition)))
}

func (m *metrics) appended(records int, took time.Duration, err error) {
	switch {
	case err == nil:
		m.appendRecords.Observe(float64(records))
		m.appendSeconds.Observe(took.Seconds())
	case errors.Is(err, txnlog.ErrFenced):
		m.fenced.Inc()
	}
}

func (m *metrics) voted(refs []gtc.ParticipantRef, votes []gtc.Vote) {
	for i, v := range votes {
		switch {
		case i >= len(refs):
		case v.Code == gtc.VoteRefused:
			m.votesRefused.WithLabelValues(refs[i].ClusterID, "refused").Inc()
		case v.Code == gtc.VoteUnavailable:
			m.votesRefused.WithLabelValues(refs[i].ClusterID, "unavailable").Inc()
		}
	}
}

// endResults are the values of the label result.
var endResults = map[gtc.EndOutcome]string{
	gtc.EndRetry: "retry", gtc.EndDone: "done", gtc.EndCommitted: "committed", gtc.EndAborted: "aborted", gtc.EndUnknown: "unknown",
}

func (m *metrics) endAnswered(clusterID string, outcome gtc.EndOutcome, took time.Duration) {
	if outcome == gtc.EndUnfenced {
		return // nothing was sent
	}
	m.ends.WithLabelValues(clusterID, endResults[outcome]).Inc()
	m.endSeconds.WithLabelValues(clusterID).Observe(took.Seconds())
}

func (m *metrics) scanned(clusterID string, err error, took time.Duration) {
	m.scanSeconds.WithLabelValues(clusterID).Observe(took.Seconds())
	if err != nil {
		m.scanFailures.WithLabelValues(clusterID).Inc()
	}
}

// changed counts what a new record of an id says that the one before did not.
func (m *metrics) changed(before, now *txnlog.GlobalTransaction) {
	if now == nil {
		return
	}
	if before == nil {
		before = &txnlog.GlobalTransaction{}
	}
	unknown := len(now.Participants) == 1 && now.Participants[0].State == txnlog.ParticipantHeuristicUnknown
	if complete(now) && !unknown && (!complete(before) || now.Sequence != before.Sequence) {
		outcome := "aborted"
		if now.State == txnlog.StateCompleteCommit {
			outcome = "committed"
		}
		m.ended.WithLabelValues(outcome).Inc()
	}
	for _, p := range now.Leftovers {
		if find(before.Leftovers, p) == nil {
			m.leftovers.WithLabelValues(p.ClusterID).Inc()
		}
	}
}

func complete(v *txnlog.GlobalTransaction) bool {
	return v.State == txnlog.StateCompleteCommit || v.State == txnlog.StateCompleteAbort
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

// newlyTorn are the participants that a new record calls heuristic and the one
// before did not.
func newlyTorn(before, now *txnlog.GlobalTransaction) []txnlog.Participant {
	if !gtc.Torn(now) {
		return nil
	}
	var torn []txnlog.Participant
	for _, p := range now.Participants {
		if !p.State.Heuristic() {
			continue
		}
		if before != nil && before.Sequence == now.Sequence {
			if was := find(before.Participants, p); was != nil && was.State.Heuristic() {
				continue
			}
		}
		torn = append(torn, p)
	}
	return torn
}

// observe counts what a record says before it replaces the one that the
// machine has. What it returns waits until the record is durable.
func (sh *shard) observe(r txnlog.Record) (reports []func()) {
	id, v, before := r.GlobalTransactionalID, r.Value, sh.term.machine.Value(r.GlobalTransactionalID)
	sh.term.touch(id)
	sh.s.metrics.changed(before, v)
	if torn := newlyTorn(before, v); torn != nil {
		reports = append(reports, func() { sh.reportTorn(id, v, torn) })
	}
	return reports
}

// reportTorn counts heuristic outcomes and says them aloud, once each: nobody
// else may be listening.
func (sh *shard) reportTorn(id string, v *txnlog.GlobalTransaction, torn []txnlog.Participant) {
	decided := "abort"
	if v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit {
		decided = "commit"
	}
	seen := map[txnlog.ParticipantState]string{
		txnlog.ParticipantHeuristicCommit: "committed", txnlog.ParticipantHeuristicAbort: "aborted",
		txnlog.ParticipantHeuristicUnknown: "ended, nobody can tell how",
	}
	for _, p := range torn {
		sh.s.metrics.heuristics.WithLabelValues(p.ClusterID).Inc()
		sh.s.o.Logger.Error().Str("global.transactional.id", id).Int64("sequence", v.Sequence).Str("cluster", p.ClusterID).
			Str("decided", decided).Str("seen", seen[p.State]).Str("detail", p.Detail).
			Msg("heuristic outcome: a participant ended against the decision; the id stands still until an operator has looked and forgets it")
	}
}
