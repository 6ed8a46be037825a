package bench

import (
	"os/exec"
	"path/filepath"
	"testing"
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
func TestRingIsMeasured(t *testing.T) {
	o := Options{Minibroker: minibroker(t), Dir: t.TempDir()}
	one, many, err := Ring(t.Context(), o, 4, 12)
	if err != nil {
		t.Fatal(err)
	}
	if one.Ring != 1 || many.Ring != 4 || one.PerSecond <= 0 || many.PerSecond <= 0 || many.Median <= 0 {
		t.Errorf("%+v, %+v", one, many)
	}
}
