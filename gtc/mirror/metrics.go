package mirror

import (
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are those of all flows of a process.
type metrics struct {
	records      *prometheus.CounterVec
	bytes        *prometheus.CounterVec
	skipped      *prometheus.CounterVec
	transactions *prometheus.CounterVec
	lag          *prometheus.GaugeVec
	loss         *prometheus.CounterVec
	groupOffsets *prometheus.CounterVec
	restarts     *prometheus.CounterVec
	age          *prometheus.Desc

	now   func() time.Time
	mu    sync.Mutex
	stats map[string]*stats // by flow
}

func newMetrics(now func() time.Time) *metrics {
	flow := []string{"source", "target"}
	counter := func(name, help string, more ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, append(flow[:2:2], more...))
	}
	return &metrics{
		records:      counter("mirror_records_total", "Records committed on the target."),
		bytes:        counter("mirror_bytes_total", "Bytes of keys and values committed on the target."),
		skipped:      counter("mirror_records_skipped_total", "Records not mirrored: they came from the target (loop), another flow brings them (direct), or the target has them already (duplicate).", "reason"),
		transactions: counter("mirror_transactions_total", "Global transactions by outcome: committed, aborted, or unknown to this process.", "outcome"),
		lag: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "mirror_lag_records", Help: "Offsets of the source's partition that are readable and not mirrored; of partitions that this process has.",
		}, append(flow[:2:2], "topic", "partition")),
		loss:         counter("mirror_data_loss_total", "Findings that the source no longer holds what was to be mirrored.", "kind"),
		groupOffsets: counter("mirror_group_offsets_total", "Offsets of application groups committed on the target."),
		restarts:     counter("mirror_flow_restarts_total", "How often a flow was begun again after an error."),
		age: prometheus.NewDesc("mirror_last_commit_age_seconds",
			"Time since the flow last committed, or found nothing left to mirror.", flow, nil),
		now:   now,
		stats: map[string]*stats{},
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range m.collectors() {
		c.Describe(ch)
	}
	ch <- m.age
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	for _, c := range m.collectors() {
		c.Collect(ch)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, s := range m.stats {
		ch <- prometheus.MustNewConstMetric(m.age, prometheus.GaugeValue, m.now().Sub(s.lastCommit()).Seconds(), s.flow.Source, s.flow.Target)
	}
}

func (m *metrics) collectors() []prometheus.Collector {
	return []prometheus.Collector{m.records, m.bytes, m.skipped, m.transactions, m.lag, m.loss, m.groupOffsets, m.restarts}
}

func (m *metrics) register(r prometheus.Registerer) error {
	if r == nil {
		return nil
	}
	if err := r.Register(m); err != nil {
		return errors.Join(errors.New("mirror: metrics"), err)
	}
	return nil
}

// stats are the numbers of one flow, for its metrics and its progress.
type stats struct {
	*metrics
	flow Flow

	mu        sync.Mutex
	committed time.Time
	total     totals
	lags      map[string]map[int32]int64
}

type totals struct {
	records, bytes, transactions, aborted, groupOffsets int64
}

func (m *metrics) of(f Flow) *stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := &stats{metrics: m, flow: f, committed: m.now(), lags: map[string]map[int32]int64{}}
	m.stats[f.Name()] = s
	return s
}

func (s *stats) lastCommit() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.committed
}

// done counts a committed transaction.
func (s *stats) done(records, bytes, groupOffsets int64) {
	f := s.flow
	s.records.WithLabelValues(f.Source, f.Target).Add(float64(records))
	s.bytes.WithLabelValues(f.Source, f.Target).Add(float64(bytes))
	s.groupOffsets.WithLabelValues(f.Source, f.Target).Add(float64(groupOffsets))
	s.transactions.WithLabelValues(f.Source, f.Target, "committed").Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = s.now()
	s.total.records += records
	s.total.bytes += bytes
	s.total.groupOffsets += groupOffsets
	s.total.transactions++
}

// idle notes that nothing is left to mirror.
func (s *stats) idle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.committed = s.now()
}

func (s *stats) failed(outcome string) {
	s.transactions.WithLabelValues(s.flow.Source, s.flow.Target, outcome).Inc()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.total.aborted++
}

func (s *stats) skip(reason string) {
	s.skipped.WithLabelValues(s.flow.Source, s.flow.Target, reason).Inc()
}

func (s *stats) lost(kind LossKind) {
	s.loss.WithLabelValues(s.flow.Source, s.flow.Target, string(kind)).Inc()
}

func (s *stats) restarted() { s.restarts.WithLabelValues(s.flow.Source, s.flow.Target).Inc() }

func (s *stats) setLag(topic string, partition int32, lag int64) {
	lag = max(0, lag)
	s.lag.WithLabelValues(s.flow.Source, s.flow.Target, topic, strconv.Itoa(int(partition))).Set(float64(lag))
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lags[topic] == nil {
		s.lags[topic] = map[int32]int64{}
	}
	s.lags[topic][partition] = lag
}

// forget drops the lag of partitions that this process no longer has.
func (s *stats) forget(topic string, partition int32) {
	s.lag.DeleteLabelValues(s.flow.Source, s.flow.Target, topic, strconv.Itoa(int(partition)))
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.lags[topic], partition)
}

// snapshot is what progress shows.
func (s *stats) snapshot() (t totals, lag int64, partitions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ps := range s.lags {
		for _, l := range ps {
			lag += l
			partitions++
		}
	}
	return s.total, lag, partitions
}
