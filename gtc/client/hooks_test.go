package client

import (
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/plugin/kprom"
)

// kprom on every connection: what it counts is what was done, over a ring, with
// a producer that is replaced, and it is registered once.
func TestKpromSeesEveryConnection(t *testing.T) {
	e := newEnv(t)
	registry := prometheus.NewRegistry()
	o := e.ring(2)
	o.CoordinatorHooks = []kgo.Hook{kprom.NewMetrics("gtc", kprom.Registerer(registry))}
	for name, c := range o.Clusters {
		c.Hooks = []kgo.Hook{[]kgo.Hook{kprom.NewMetrics(name, kprom.Registerer(registry), kprom.FetchAndProduceDetail(kprom.Records))}}
		o.Clusters[name] = c
	}
	cl := open(t, o)
	g := standalone(t, e.us.addr)
	for i := range int64(4) { // offsets alone in between, after which us has a new producer
		txn := begin(t, cl)
		if i != 2 {
			produce(t, txn, "us", "a")
		}
		commitOffsets(t, txn, g, i)
		produce(t, txn, "eu", "b")
		commit(t, txn)
	}
	sums := counters(t, registry)
	// A record is acknowledged before it is counted.
	for ctx := deadline(t, patience); sums["us_produce_records_total"] < 3 || sums["eu_produce_records_total"] < 4; sums = counters(t, registry) {
		if pause(ctx, time.Millisecond) != nil {
			break
		}
	}
	if sums["us_produce_records_total"] != 3 || sums["eu_produce_records_total"] != 4 {
		t.Errorf("records: us %v, eu %v, want 3 and 4", sums["us_produce_records_total"], sums["eu_produce_records_total"])
	}
	for _, name := range []string{"us", "eu", "gtc"} {
		for _, what := range []string{"connects_total", "write_bytes_total", "read_bytes_total"} {
			if sums[name+"_"+what] <= 0 {
				t.Errorf("%s_%s is not counted", name, what)
			}
		}
	}
	if err := cl.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if metrics, err := registry.Gather(); err != nil || len(metrics) != 0 {
		var names []string
		for _, f := range metrics {
			names = append(names, f.GetName())
		}
		t.Errorf("after Close: %s, %v", strings.Join(names, " "), err)
	}
}

// counters are the sums of the counters, over all their labels.
func counters(t *testing.T, registry *prometheus.Registry) map[string]float64 {
	t.Helper()
	metrics, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sums := map[string]float64{}
	for _, f := range metrics {
		for _, m := range f.GetMetric() {
			sums[f.GetName()] += m.GetCounter().GetValue()
		}
	}
	return sums
}
