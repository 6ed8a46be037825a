package bench

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Small, so that the way is tested and not the machine: every commit that was
// decided before the SIGKILL is told to both participants after it. Settle itself
// fails when one had been told before, or is not readable once at the end.
func TestDecidedCommitsAreToldAfterASigkill(t *testing.T) {
	o := Options{Minibroker: filepath.Join(t.TempDir(), "minibroker"), Dir: t.TempDir(), Bare: true}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", o.Minibroker, "github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	const n = 50
	s, err := Settle(t.Context(), o, n)
	if err != nil {
		t.Fatal(err)
	}
	if s.Ids != n || s.Answer <= 0 || s.All < s.Answer || s.Bare <= 0 {
		t.Errorf("%+v", s)
	}
}
