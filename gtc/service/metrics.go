package service

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// metrics are those of KIP.md, "Metrics". What a record says is counted when it is
// durable (news.go), what else happens where it happens; what is open or torn is
// asked of the machines at each scrape, so it is right after a restart too.
type metrics struct {
	ended, heuristics, forgot, votesRefused, ends, scanFailures, leftovers *prometheus.CounterVec
	fenced                                                                 prometheus.Counter
	endSeconds, scanSeconds                                                *prometheus.HistogramVec
	appendSeconds, appendRecords                                           prometheus.Histogram
	loadSeconds                                                            *prometheus.GaugeVec

	open, oldest, torn, reachable, short *prometheus.Desc
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
		forgot:        counters("gtc_participant_forgot_total", "Participants that had ended a decided transaction, and show it open again.", "cluster"),
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
		short:     prometheus.NewDesc("gtc_participant_retention_too_short", "1 when the setting of the cluster is shorter than what has to be survived, 0 when it is not; absent while it is not known.", []string{"cluster", "setting"}, nil),
	}
	// So that a rate over them is 0 and not absent before the first.
	m.ended.WithLabelValues("committed")
	m.ended.WithLabelValues("aborted")
	return m
}

func (m *metrics) counted() []prometheus.Collector {
	return []prometheus.Collector{
		m.ended, m.heuristics, m.forgot, m.votesRefused, m.ends, m.scanFailures, m.leftovers, m.fenced,
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
