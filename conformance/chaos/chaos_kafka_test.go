//go:build kafka

package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/chaos"
)

// TestMain is a client of the load when a run starts this binary as one.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == "load" {
		if err := chaos.Load(context.Background(), os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func run(t *testing.T, o chaos.Options) (string, error) {
	t.Helper()
	o.Minibroker = filepath.Join(t.TempDir(), "minibroker")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", o.Minibroker, "github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var out bytes.Buffer
	o.Out, o.Clients = &out, 3
	err := chaos.Run(t.Context(), o)
	t.Log(out.String())
	return out.String(), err
}

func TestFewRounds(t *testing.T) {
	for _, nodes := range []int{1, 2} {
		t.Run(fmt.Sprintf("nodes=%d", nodes), func(t *testing.T) {
			out, err := run(t, chaos.Options{Rounds: 5, Seed: 1, Nodes: nodes, Settle: 3 * time.Minute})
			if err != nil || !strings.HasSuffix(out, " transactions, 0 anomalies\n") {
				t.Error(err)
			}
		})
	}
}

// What an operator and a restored cluster tear is reported, and explained.
func TestActsAreExplained(t *testing.T) {
	for _, name := range []string{"copy and restore chaos-us", "operator gives up eu, link gtc-eu: answers lost"} {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, chaos.Options{Rounds: 2, Seed: 1, Nodes: 1, Settle: 3 * time.Minute, Fault: name})
			if err != nil || !strings.HasSuffix(out, " transactions, 0 anomalies\n") {
				t.Error(err)
			}
			if strings.Contains(out, "\n0 transactions were not whole and reported") && strings.Contains(out, "; 0 were lost") {
				t.Error("nothing was torn or lost, so that nothing is proved")
			}
		})
	}
}

// A run that cannot fail proves nothing.
func TestOutsiderIsFound(t *testing.T) {
	_, err := run(t, chaos.Options{Rounds: 2, Seed: 1, Nodes: 1, Fault: "outsider commits on chaos-us"})
	if !errors.Is(err, chaos.ErrAnomalies) {
		t.Errorf("Run = %v, want %v", err, chaos.ErrAnomalies)
	}
}
