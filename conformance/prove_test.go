package conformance

import (
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/report"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
)

func TestAFaultIsCaughtByACaseThatFailsForIt(t *testing.T) {
	begun := make(chan struct{})
	close(begun)
	for _, c := range []struct {
		name    string
		verdict report.Verdict
		begun   <-chan struct{}
		late    bool
		stalls  bool
		caught  bool
	}{
		{"it fails", report.Failed, begun, false, false, true},
		{"it passes", report.Passed, begun, false, false, false},
		{"it is not applicable", report.NotApplicable, begun, false, false, false},
		{"it fails, and the target was right", report.Failed, nil, false, false, false},
		{"its time is over", report.Failed, begun, true, false, false},
		{"its time is over, and the target never does it", report.Failed, begun, true, true, true},
		{"its time is over before the target was wrong", report.Failed, nil, true, true, false},
		{"it sees at once that a target will never do it", report.Failed, begun, false, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Proof{Fault: wrong.Fault{Stalls: c.stalls}, Result: report.Result{Verdict: c.verdict, Text: "what it said"}}
			if missed := p.missed(c.begun, c.late); missed == "" != c.caught {
				t.Errorf("missed %q, want caught %t", missed, c.caught)
			}
		})
	}
}
