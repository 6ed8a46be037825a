//go:build kafka

package conformance_test

import (
	"os"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/report"
	"github.com/kafka-gtc/kafka-gtc/conformance/rig"
)

// Apache Kafka takes part and tells how its transactions ended: the cases that
// an embedded broker leaves out, and their wrong targets. The whole suite over
// real clusters is scripts/conformance.
func TestCasesThatNeedApacheKafka(t *testing.T) {
	c := cluster.Up(t, "conformance", cluster.V44)
	subject := conformance.ParticipantTarget{Name: "kafka", Bootstrap: c.Bootstrap}
	long(t, rig.Options{Subject: subject}, []string{"HEUR-07", "HEUR-09", "LIFE-01", "LIFE-08", "RECO-01"})
}

// A node is frozen and another takes over, which takes the session's timeout.
func TestCasesThatNeedSeveralNodes(t *testing.T) {
	long(t, rig.Options{Group: true}, []string{"RECO-14"})
}

func long(t *testing.T, o rig.Options, ids []string) {
	t.Helper()
	o.Dir, o.Proof, o.Minibroker = t.TempDir(), true, os.Getenv("CONFORMANCE_MINIBROKER")
	r, err := rig.Start(t.Context(), o)
	t.Cleanup(r.Stop)
	if err != nil {
		t.Fatal(err)
	}
	s, err := conformance.Open(t.Context(), r.Target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	s.Deadline = 2 * time.Minute
	cases := conformance.Filter{Cases: ids}.Select(conformance.Cases())
	for _, res := range s.Run(t.Context(), cases).Results {
		if res.Verdict != report.Passed {
			t.Errorf("%s %s: %s", res.ID, res.Verdict, res.Text)
			tell(t, res.Trace)
		}
	}
	for _, p := range s.Prove(t.Context(), cases, r.Backs, func(conformance.Proof) {}) {
		if p.Missed != "" {
			t.Errorf("%s does not catch a target that %s: %s", p.Case.ID, p.Fault.Text, p.Missed)
		}
	}
}
