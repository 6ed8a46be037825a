package service

import (
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// censusTimeout bounds what one scrape waits for busy shards.
const censusTimeout = 5 * time.Second

// The values of the label phase.
const (
	phaseUndecided = "undecided"
	phasePending   = "pending"
	phaseInDoubt   = "in_doubt"
)

// census is what the machines know of unfinished transactions.
type census struct {
	open   map[string]int
	oldest map[string]int64 // milliseconds
	torn   int
}

func newCensus() census { return census{open: map[string]int{}, oldest: map[string]int64{}} }

func (c *census) count(phase string, age int64) {
	c.open[phase]++
	c.oldest[phase] = max(c.oldest[phase], age)
}

func (c *census) merge(o census) {
	for phase, n := range o.open {
		c.open[phase] += n
		c.oldest[phase] = max(c.oldest[phase], o.oldest[phase])
	}
	c.torn += o.torn
}

// census counts what is unfinished in one partition. Ages are those that Describe
// shows, which a failover does not begin anew.
func (t *term) census(now gtc.Time) census {
	c := newCensus()
	for _, d := range t.machine.Unfinished(now) {
		undecided, told := ages(d)
		if d.State == gtc.NameOngoing {
			c.count(phaseUndecided, undecided)
		}
		switch {
		case !pending(d.Value):
		case told >= int64(d.Value.TimeoutMillis):
			c.count(phaseInDoubt, told)
		default:
			c.count(phasePending, told)
		}
		if d.Heuristic {
			c.torn++
		}
	}
	return c
}

// ages are those of the oldest participant of the undecided transaction, and of
// the oldest that is being told a decision. An id may have both: an abort that a
// cluster has not heard holds nobody.
func ages(d gtc.Description) (undecided, told int64) {
	for _, p := range d.Participants {
		of := &undecided
		if p.Leftover || find(d.Value.Participants, p.Participant) != nil {
			of = &told
		}
		*of = max(*of, p.AgeMillis)
	}
	return undecided, told
}

// pending: a cluster has to be told. A leftover that is heuristic waits for an
// operator instead.
func pending(v *txnlog.GlobalTransaction) bool {
	return v.State == txnlog.StatePrepareCommit || v.State == txnlog.StatePrepareAbort ||
		slices.ContainsFunc(v.Leftovers, func(p txnlog.Participant) bool { return !heuristic(p) })
}

func heuristic(p txnlog.Participant) bool { return p.State.Heuristic() }

// census adds up what all active shards know. Those that do not answer in time
// are left out: a scrape that shows nothing would hide the others too.
func (s *Service) census() census {
	shards := s.owned()
	answers := make(chan census, len(shards))
	asked := 0
	for _, sh := range shards {
		if !sh.active.Load() {
			continue
		}
		asked++
		sh.inbox.put(task{
			run:  func(t *term) { answers <- t.census(s.o.Clock.Now()) },
			gone: func() { answers <- newCensus() },
		})
	}
	late := make(chan struct{})
	defer s.o.Clock.After(censusTimeout, func() { close(late) })()
	total := newCensus()
	for range asked {
		select {
		case c := <-answers:
			total.merge(c)
		case <-late:
			s.o.Logger.Warn().Msg("metrics: a partition is too busy to be counted")
			return total
		case <-s.ctx.Done():
			return total
		}
	}
	return total
}

// Metrics are those of KIP.md, "Metrics", for a registry.
func (s *Service) Metrics() prometheus.Collector { return collector{s} }

type collector struct{ s *Service }

// Describe implements prometheus.Collector.
func (c collector) Describe(ch chan<- *prometheus.Desc) {
	m := c.s.metrics
	for _, of := range m.counted() {
		of.Describe(ch)
	}
	for _, d := range []*prometheus.Desc{m.open, m.oldest, m.torn, m.reachable, m.short} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	m := c.s.metrics
	for _, of := range m.counted() {
		of.Collect(ch)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counted := c.s.census()
	for _, phase := range []string{phaseUndecided, phasePending, phaseInDoubt} {
		gauge(m.open, float64(counted.open[phase]), phase)
		gauge(m.oldest, float64(counted.oldest[phase])/1000, phase)
	}
	gauge(m.torn, float64(counted.torn))
	for _, id := range c.s.retentions.clusters() {
		for setting, why := range c.s.shortages(id) {
			v := 0.0
			if why != "" {
				v = 1
			}
			gauge(m.short, v, id, setting)
		}
	}
	if c.s.o.Reachable == nil {
		return
	}
	for cluster, up := range c.s.o.Reachable() {
		v := 0.0
		if up {
			v = 1
		}
		gauge(m.reachable, v, cluster)
	}
}
