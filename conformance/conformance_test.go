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

// benches are the targets that need no real cluster. They stand behind the
// proxies of wrong targets, which are right until switched.
func benches(t *testing.T) (all []*bench) {
	t.Helper()
	dir := t.TempDir()
	binary := os.Getenv("CONFORMANCE_MINIBROKER") // for those who write a case
	if binary == "" {
		binary = filepath.Join(dir, "minibroker")
		if err := rig.Build(t.Context(), binary); err != nil {
			t.Fatal(err)
		}
	}
	rigs, err := rig.Quick(t.Context(), dir, binary, true)
	for _, r := range rigs {
		t.Cleanup(r.Stop)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rigs {
		s, err := conformance.Open(t.Context(), r.Target)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		s.Parallel, s.Deadline = 8, time.Minute
		all = append(all, &bench{r.Target.Name, r, s})
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
	runs := make([]*report.Run, len(all))
	atOnce(all, func(i int, b *bench) { runs[i] = b.Run(t.Context(), only()) })
	for i, b := range all {
		for _, res := range runs[i].Results {
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
		if !applied[c.ID] && !isLong(c) {
			t.Errorf("%s applies to no target", c.ID)
		}
	}
}

// proofs: each case catches each of its wrong targets, on one bench to which it
// applies.
func proofs(t *testing.T, all []*bench) {
	var suites []*conformance.Suite
	for _, b := range all {
		suites = append(suites, b.Suite)
	}
	shares, rest := conformance.Share(suites, only())
	found := make([][]conformance.Proof, len(all))
	atOnce(all, func(i int, b *bench) {
		found[i] = b.Prove(t.Context(), shares[i], b.Backs, func(conformance.Proof) {})
	})
	for i, b := range all {
		for _, p := range found[i] {
			t.Run(p.Case.ID+"/"+p.Fault.Text, func(t *testing.T) {
				if p.Missed != "" {
					t.Errorf("on %s not caught: %s", b.name, p.Missed)
					tell(t, p.Result.Trace)
				}
				t.Logf("%.2f s: %s", p.Result.Seconds, p.Result.Text)
			})
		}
	}
	for _, c := range rest {
		if !isLong(c) {
			t.Errorf("%s applies to no target", c.ID)
		}
	}
}

// atOnce spends the time of one bench on all: a suite waits more than it works.
func atOnce(all []*bench, f func(i int, b *bench)) {
	var running sync.WaitGroup
	for i, b := range all {
		running.Go(func() { f(i, b) })
	}
	running.Wait()
}

// isLong says that a case is run by kafka_test.go and scripts/conformance.
func isLong(c *conformance.Case) bool {
	return slices.Contains(c.Needs, conformance.NeedHistory) || slices.Contains(c.Needs, conformance.NeedNodes) && slices.Contains(c.Needs, conformance.NeedPause)
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
