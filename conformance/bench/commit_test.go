package bench

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func minibroker(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "minibroker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", path, "github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// The way is tested and not the machine: what the ratio is depends on both.
func TestCommitsAreMeasuredInAllWays(t *testing.T) {
	o := Options{Minibroker: minibroker(t), Dir: t.TempDir()}
	paces, err := Commits(t.Context(), o, []int{1, 3}, 4, 1, 200*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if len(paces) != 6 {
		t.Fatalf("%+v: want three ways for each of two numbers of clients", paces)
	}
	for _, p := range paces {
		if p.PerSecond <= 0 || p.Latency.Median <= 0 || p.Latency.Max < p.Latency.P99 {
			t.Errorf("%+v", p)
		}
	}
}
