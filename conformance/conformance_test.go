package conformance_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
	"github.com/kafka-gtc/kafka-gtc/conformance/rig"
)

func start(t *testing.T) (*rig.Rig, *conformance.Suite) {
	t.Helper()
	dir := t.TempDir()
	r, err := rig.Start(t.Context(), rig.Options{Dir: dir, Minibroker: os.Getenv("MINIBROKER"), Proof: true})
	t.Cleanup(r.Stop)
	if err != nil {
		t.Fatal(err)
	}
	s, err := conformance.Open(t.Context(), r.Target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	t.Cleanup(func() {
		if t.Failed() {
			log, _ := os.ReadFile(filepath.Join(dir, "gtc.log"))
			t.Logf("the coordinator's log ends with\n%s", log[max(0, len(log)-20_000):])
		}
	})
	return r, s
}

// only is CONFORMANCE_CASE, a pattern, for those who write a case.
func only() []*conformance.Case {
	var f conformance.Filter
	if p := os.Getenv("CONFORMANCE_CASE"); p != "" {
		f.Cases = []string{p}
	}
	return f.Select(conformance.Cases())
}

func TestTheMiniBrokerPasses(t *testing.T) {
	_, s := start(t)
	for _, res := range s.Run(t.Context(), only()).Results {
		t.Run(res.ID, func(t *testing.T) {
			switch res.Verdict {
			case report.Failed:
				t.Errorf("%s: %s", res.Title, res.Text)
				for _, e := range res.Trace {
					t.Logf("%8.1f %s -> %s %s %s\n\t= %s (%.1f)", e.AtMs, e.From, e.To, e.Name, e.Request, e.Answer, e.TookMs)
				}
			case report.NotApplicable:
				t.Logf("not applicable: %s", res.Text)
			case report.Passed:
				t.Logf("%.2f s", res.Seconds)
			}
		})
	}
}

func TestEveryCaseCatchesItsWrongTargets(t *testing.T) {
	r, s := start(t)
	proofs := s.Prove(t.Context(), only(), r.Backs, func(conformance.Proof) {})
	for _, p := range proofs {
		t.Run(p.Case.ID+"/"+p.Fault.Text, func(t *testing.T) {
			if !p.Caught {
				t.Errorf("not caught: %s %s", p.Result.Verdict, p.Result.Text)
				for _, e := range p.Result.Trace {
					t.Logf("%8.1f %s -> %s %s %s\n\t= %s (%.1f)", e.AtMs, e.From, e.To, e.Name, e.Request, e.Answer, e.TookMs)
				}
				return
			}
			t.Logf("%.2f s: %s", p.Result.Seconds, p.Result.Text)
		})
	}
}
