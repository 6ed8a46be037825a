package main

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// operatorsTool builds kafka-global-transactions.
func operatorsTool(t *testing.T) string {
	t.Helper()
	bin := filepath.Join(t.TempDir(), "kafka-global-transactions")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", bin, "github.com/kafka-gtc/kafka-gtc/gtc/client/cmd/kafka-global-transactions")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return bin
}

// operator runs kafka-global-transactions against a node and returns what it
// printed and whether it succeeded.
func operator(t *testing.T, bin, addr string, args ...string) (string, bool) {
	t.Helper()
	out, code := operatorCode(t, bin, addr, args...)
	return out, code == 0
}

func operatorCode(t *testing.T, bin, addr string, args ...string) (out string, code int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), bin, append([]string{"--bootstrap-server", addr}, args...)...)
	printed, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(printed), cmd.ProcessState.ExitCode()
}

func TestAnOperatorSeesAndEndsGlobalTransactions(t *testing.T) {
	bin := operatorsTool(t)
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters)
	topic := newTopic(t, clusters)
	cl := openClient(t, rig, "payments-1", clusters)
	if _, err := write(t, cl, topic, "x", "us", "eu").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		ok   bool
		says []string
	}{
		{[]string{"list"}, true, []string{"payments-1", "CompleteCommit"}},
		{[]string{"list", "--pattern", "orders.*"}, true, []string{"ID"}},
		{[]string{"list", "--state", "Weird"}, false, []string{"Weird"}},
		{[]string{"list", "--json"}, true, []string{`"GlobalTransactionalID":"payments-1"`}},
		{[]string{"describe", "payments-1"}, true, []string{"CompleteCommit", "participant cluster-us", "participant cluster-eu", "complete"}},
		{[]string{"describe", "nobody"}, false, []string{"nobody", "TRANSACTIONAL_ID_NOT_FOUND"}},
		{[]string{"forget", "payments-1"}, false, []string{"no complete heuristic outcome", "INVALID_TXN_STATE"}},
		{[]string{"retry", "payments-1"}, false, []string{"no participant of this id is pending"}},
		{[]string{"abort", "payments-1"}, false, []string{"nothing undecided"}},
		{[]string{"give-up", "payments-1"}, false, []string{"cluster"}},
		{[]string{"give-up", "payments-1", "--cluster", "cluster-eu"}, false, []string{"--gone-for-good"}},
		{[]string{"give-up", "payments-1", "--cluster", "cluster-eu", "--gone-for-good"}, false, []string{"no participant of this id is pending on cluster cluster-eu"}},
	} {
		out, ok := operator(t, bin, rig.addr, c.args...)
		if ok != c.ok {
			t.Errorf("%v: succeeded %v, want %v:\n%s", c.args, ok, c.ok, out)
		}
		for _, want := range c.says {
			if !strings.Contains(out, want) {
				t.Errorf("%v does not say %q:\n%s", c.args, want, out)
			}
		}
		if c.args[len(c.args)-1] == "orders.*" && strings.Contains(out, "payments-1") {
			t.Errorf("the pattern is not applied:\n%s", out)
		}
	}
}
