package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// The crash suite ends a coordinator by SIGKILL before and after each of its
// appends and outgoing requests, starts it again on its data directory, and
// compares what the client was told, what the log says last, what
// DescribeGlobalTransactions shows, and what a reader sees on each participant.
// A point that is not reached fails the test.

// crash is one run: a scenario, and where the coordinator dies in it.
type crash struct {
	scenario scenario
	at       string // point:n
}

func (c crash) String() string {
	return c.scenario.name + "/" + strings.NewReplacer("/", "-", ":", "-").Replace(c.at)
}

// points spells every point out, both sides.
func points(names ...string) (all []string) {
	for _, n := range names {
		point, count, _ := strings.Cut(n, ":")
		for _, side := range []string{"/before", "/after"} {
			all = append(all, point+side+":"+count)
		}
	}
	return all
}

// crashes is the whole table. A count is that of the whole run, from the start
// of the process: reply:1 is InitGlobalTxn's answer and reply:2 EndGlobalTxn's.
func crashes() (all []crash) {
	for _, s := range []struct {
		scenario scenario
		at       []string
	}{
		{commitOverTwo, points("check:1", "append-session:1", "reply:1", "scan:1", "scan:2",
			"vote:1", "append-prepare-commit:1", "end-txn:1", "end-txn:2", "reply:2", "append-lazy:1")},
		{voteRefused, points("vote:1", "append-prepare-abort:1", "end-txn:1", "end-txn:2", "reply:2", "append-lazy:1")},
		{epochStays, points("end-txn:2", "append-complete:1", "reply:2")},
		{abortAsked, points("append-prepare-abort:1", "end-txn:1", "end-txn:2", "reply:2", "append-lazy:1")},
		{onePhase, points("end-txn:1", "reply:2", "append-lazy:1")},
		{timedOut, points("scan:3", "append-prepare-abort:1", "end-txn:1", "end-txn:2", "append-lazy:1")},
	} {
		for _, at := range s.at {
			all = append(all, crash{s.scenario, at})
		}
	}
	return all
}

// The points of service.FaultPoints and those of the table are the same, so
// that a new one is not forgotten here.
func TestEveryPointIsInTheCrashTable(t *testing.T) {
	in := map[string]bool{}
	for _, c := range crashes() {
		point, _, _ := strings.Cut(c.at, ":")
		in[point] = true
	}
	for _, p := range service.FaultPoints() {
		if !in[p] {
			t.Errorf("the coordinator is never killed at %s", p)
		}
		delete(in, p)
	}
	for p := range in {
		t.Errorf("there is no point %s", p)
	}
}

func TestAKillAtAnyPointLeavesOneOutcome(t *testing.T) {
	clusters := twoEmbedded(t)
	epochsStay := asClusters(newScripted(t, "us", 1), newScripted(t, "eu", 1))
	for _, c := range crashes() {
		t.Run(c.String(), func(t *testing.T) {
			t.Parallel()
			if c.scenario.name == epochStays.name {
				runCrash(t, epochsStay, c)
				return
			}
			runCrash(t, clusters, c)
		})
	}
}

// runCrash plays the scenario against a coordinator that dies at the point and
// comes back, and compares.
func runCrash(t *testing.T, clusters map[string]participantCluster, c crash) {
	t.Helper()
	w := newCrashWorld(t, clusters)
	doomed := w.start(t, "--crash-at", c.at)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	told := make(chan result, 1)
	go func() { told <- c.scenario.run(ctx, w) }()

	select {
	case <-doomed.done:
		if s, ok := doomed.cmd.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Fatalf("it ended with %v, and not by SIGKILL at %s", doomed.cmd.ProcessState, c.at)
		}
	case <-time.After(patience):
		t.Fatalf("%s was not reached", c.at)
	}
	w.start(t)
	got := <-told
	defer got.close()
	if got.err != nil {
		t.Fatalf("the client: %v", got.err)
	}
	w.compare(t, got, c.scenario)
	if got.goOn != nil {
		if err := got.goOn(ctx); err != nil {
			t.Errorf("the id does not go on: %v", err)
		}
	}
}

// crashWorld is one coordinator's data directory and address, and an id and a
// topic that nobody else uses.
type crashWorld struct {
	clusters  map[string]participantCluster
	aliases   []string // of the clusters that are configured
	dir, addr string
	id, topic string
}

func newCrashWorld(t *testing.T, clusters map[string]participantCluster) *crashWorld {
	t.Helper()
	return &crashWorld{clusters: clusters, aliases: []string{"us", "eu"}, dir: t.TempDir(), addr: freeAddr(t), id: uniqueID(t), topic: newTopic(t, clusters)}
}

// start runs the coordinator and waits until it serves.
func (w *crashWorld) start(t *testing.T, more ...string) *process {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	args := append(more, "--ready-file", ready, "--log-level", "info")
	overrides := []string{
		"process.roles=broker,gtc", "listeners=PLAINTEXT://" + w.addr, "log.dirs=" + w.dir,
		"gtc.clusters=" + strings.Join(w.aliases, ","),
		"global.transaction.state.log.num.partitions=1",
		"global.transaction.scan.interval.ms=200",
		"global.transaction.retry.backoff.max.ms=200",
	}
	for _, alias := range w.aliases {
		overrides = append(overrides, "gtc.cluster."+alias+".bootstrap.servers="+w.clusters[alias].addr)
	}
	for _, o := range overrides {
		args = append(args, "--override", o)
	}
	p := start(t, args...)
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(ready); err == nil {
			return p
		}
		select {
		case <-p.done:
			// A scan can be the point, and comes before anybody is served.
			return p
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("does not serve:\n%s", p.logged())
		}
	}
}

// compare is the invariant of every case: the client's answer, the last
// decision in the log, and what is visible on each participant are the same.
func (w *crashWorld) compare(t *testing.T, got result, s scenario) {
	t.Helper()
	outcome := got.outcome
	if outcome == "" { // nobody was left to be told
		outcome = s.want
	}
	if outcome != s.want {
		t.Errorf("the client was told %q, want %q", outcome, s.want)
	}
	settled := w.settled(t)
	last := w.lastRecord(t, settled)
	if decision := s.decision(last); decision != outcome {
		t.Errorf("the log says %q last, the client was told %q: %+v", decision, outcome, last)
	}
	for name, c := range w.clusters {
		var want []string
		if outcome == "committed" && got.wrote[name] {
			want = []string{"v"}
		}
		if seen := visibleOn(t, c, w.topic); fmt.Sprint(seen) != fmt.Sprint(want) {
			t.Errorf("%s shows %v after %q, want %v", name, seen, outcome, want)
		}
	}
	if settled.heuristic {
		t.Errorf("shown as heuristic, and nothing differs: %+v", settled)
	}
}

func kgoClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}
