package conformance_test

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
	"github.com/kafka-gtc/kafka-gtc/conformance/rig"
)

// bench is a target of the quick suite.
type bench struct {
	name string
	*rig.Rig
	*conformance.Suite
}

// benches are the mini-broker with its participants on transaction.version 2
// and 1, and two nodes that are coordinators alone over a third mini-broker.
// All stand behind the proxies of wrong targets, which are right until switched.
func benches(t *testing.T) []*bench {
	t.Helper()
	dir := t.TempDir()
	binary := os.Getenv("CONFORMANCE_MINIBROKER") // for those who write a case
	if binary == "" {
		binary = filepath.Join(dir, "minibroker")
		if err := rig.Build(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
	}
	all := []*bench{{name: "mini-broker"}, {name: "transaction.version 1"}, {name: "gtc nodes"}}
	var starting sync.WaitGroup
	for i, b := range all {
		starting.Go(func() {
			at := filepath.Join(dir, b.name)
			err := os.Mkdir(at, 0o700)
			if err == nil {
				b.Rig, err = rig.Start(t.Context(), rig.Options{Dir: at, Name: b.name, Minibroker: binary, Proof: true, V4: i == 1, Group: i == 2})
			}
			if err == nil && i == 2 {
				// A group that was killed takes its session's timeout to come
				// back: scripts/conformance does that.
				for k := range b.Target.Nodes {
					b.Target.Nodes[k].Kill = nil
				}
			}
			if err == nil {
				b.Suite, err = conformance.Open(t.Context(), b.Target)
			}
			if err != nil {
				t.Errorf("%s: %v", b.name, err)
			}
		})
	}
	starting.Wait()
	for _, b := range all {
		if b.Suite != nil {
			b.Parallel, b.Deadline = 12, 40*time.Second
		}
	}
	for _, b := range all {
		t.Cleanup(func() {
			if b.Suite != nil {
				b.Close()
			}
			if b.Rig != nil {
				b.Stop()
			}
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	return all
}

// only is CONFORMANCE_CASE, a pattern, for those who write a case.
func only() []*conformance.Case {
	var f conformance.Filter
	if p := os.Getenv("CONFORMANCE_CASE"); p != "" {
		f.Cases = []string{p}
	}
	return f.Select(conformance.Cases())
}

func TestConformance(t *testing.T) {
	all := benches(t)
	t.Run("right", func(t *testing.T) { right(t, all) })
	t.Run("wrong", func(t *testing.T) { proofs(t, all) })
}

// right: no target fails a case, and each case applies to one.
func right(t *testing.T, all []*bench) {
	applied := map[string]bool{}
	for _, b := range all {
		for _, res := range b.Run(t.Context(), only()).Results {
			applied[res.ID] = applied[res.ID] || res.Verdict != report.NotApplicable
			t.Run(b.name+"/"+res.ID, func(t *testing.T) {
				if res.Verdict == report.Failed {
					t.Errorf("%s: %s", res.Title, res.Text)
					tell(t, res.Trace)
				}
				t.Logf("%s, %.2f s %s", res.Verdict, res.Seconds, res.Text)
			})
		}
	}
	for _, c := range only() {
		if !applied[c.ID] && !slices.Contains(c.Needs, conformance.NeedHistory) {
			t.Errorf("%s applies to no target", c.ID)
		}
	}
}

// proofs: each case catches each of its wrong targets, on the first bench to
// which it applies.
func proofs(t *testing.T, all []*bench) {
	left := only()
	for _, b := range all {
		now, later := b.Applicable(left)
		left = later
		for _, p := range b.Prove(t.Context(), now, b.Backs, func(conformance.Proof) {}) {
			t.Run(p.Case.ID+"/"+p.Fault.Text, func(t *testing.T) {
				if !p.Caught {
					t.Errorf("on %s not caught: %s %s", b.name, p.Result.Verdict, p.Result.Text)
					tell(t, p.Result.Trace)
				}
				t.Logf("%.2f s: %s", p.Result.Seconds, p.Result.Text)
			})
		}
	}
	for _, c := range left {
		if slices.Contains(c.Needs, conformance.NeedHistory) {
			continue // proved on Apache Kafka (kafka_test.go)
		}
		t.Errorf("%s applies to no target", c.ID)
	}
}

func tell(t *testing.T, trace []report.Event) {
	t.Helper()
	for i, e := range trace {
		if i == 15 && os.Getenv("CONFORMANCE_TRACE") == "" {
			t.Logf("and %d more", len(trace)-i)
			return
		}
		t.Logf("%8.1f %s -> %s %s %s\n\t= %s (%.1f)", e.AtMs, e.From, e.To, e.Name, e.Request, e.Answer, e.TookMs)
	}
}
