package main

import (
	"os/exec"
	"path/filepath"
	"strconv"
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

// Whoever may use an id chooses its name, and an operator's terminal shows it.
func TestAnIDOfControlCharactersIsShownAsText(t *testing.T) {
	bin := operatorsTool(t)
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters)
	topic := newTopic(t, clusters)
	id := "x\x1b]0;x\a\x1b[2J\n"
	for r := rune(1); r < 0xa0; r++ {
		if !strconv.IsPrint(r) {
			id += string(r)
		}
	}
	id += "\u202e\u2066\u2028\nfake-id  CompleteCommit  1"
	cl := openClient(t, rig, id, clusters)
	if _, err := write(t, cl, topic, "x", "us", "eu").Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args  []string
		lines int
	}{
		{[]string{"list"}, 2},
		{[]string{"list", "--pattern", "(?s)x.*"}, 2},
		{[]string{"list", "--pattern", "(" + id}, 1},
		{[]string{"list", "--state", id}, 1},
		{[]string{"list", "--json"}, 1},
		{[]string{"describe", id}, 7},
		{[]string{"describe", "--json", id}, 1},
		{[]string{"describe", "y" + id}, 1},
		{[]string{"abort", id}, 1},
		{[]string{"retry", id}, 1},
		{[]string{"forget", id}, 1},
		{[]string{"give-up", id, "--cluster", id, "--gone-for-good"}, 1},
	} {
		out, _ := operator(t, bin, rig.addr, c.args...)
		if i := strings.IndexFunc(out, func(r rune) bool { return r != '\n' && !strconv.IsPrint(r) }); i >= 0 || strings.Count(out, "\n") != c.lines {
			t.Errorf("%s prints %d lines, want %d:\n%q", c.args[:1], strings.Count(out, "\n"), c.lines, out)
		}
	}
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
