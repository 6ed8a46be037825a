package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
)

// visibleNow reads a topic once, up to the last stable offset of this moment.
func visibleNow(t *testing.T, c participantCluster, topic string) (values []string, open bool) {
	t.Helper()
	r := readback.NewReader(c.addr)
	defer r.Close()
	for id := range 2 { // newTopic's partitions
		var p readback.Partition
		until(t, func() (err error) {
			p, err = r.Partition(t.Context(), topic, id, 0)
			return err
		})
		open = open || p.Open()
		for _, rec := range p.Records {
			values = append(values, rec.Value)
		}
	}
	slices.Sort(values)
	return values, open
}

// Case 35: a commit is visible on every cluster when WaitVisible has returned,
// to a reader that does not wait.
func visibleWhenToldSo(t *testing.T, clusters map[string]participantCluster) {
	t.Helper()
	rig, topic := newCoordinator(t, clusters), newTopic(t, clusters)
	cl := openClient(t, rig, uniqueID(t), clusters)
	var want []string
	for i := range 10 {
		value := "v" + strconv.Itoa(i)
		want = append(want, value)
		txn := write(t, cl, topic, value, "us", "eu")
		if _, err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := txn.WaitVisible(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, c := range clusters {
			if got, open := visibleNow(t, c, topic); open || !slices.Equal(got, want) {
				t.Errorf("%s shows %v (open %v), want %v", name, got, open, want)
			}
		}
	}
}

func TestACommitIsVisibleWhenWaitVisibleReturns(t *testing.T) { visibleWhenToldSo(t, twoEmbedded(t)) }

// Case 30: a cluster is taken out of the configuration while a decision waits
// for it. The others are served, the decision is kept and names what is
// missing, the process ends when asked to, and goes on when the cluster is back.
func TestAClusterTakenOutOfTheConfigurationIsNamed(t *testing.T) {
	clusters := twoEmbedded(t)
	w := newCrashWorld(t, clusters)
	doomed := w.start(t, "--crash-at", "append-prepare-commit/after:1")
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	told := make(chan result, 1)
	go func() { told <- runCommit(ctx, w) }()
	doomed.exit(t)

	w.aliases = []string{"us"}
	p := w.start(t)
	cl := (&coordinatorRig{addr: w.addr}).admin(t)
	until(t, func() error {
		d, err := described(ctx, cl, w.id)
		if err != nil {
			return err
		}
		us, eu := find(d, clusters["us"].id), find(d, clusters["eu"].id)
		if us == nil || us.State != 1 || eu == nil || eu.State != 0 || eu.Message == nil ||
			!strings.Contains(*eu.Message, clusters["eu"].id) || !strings.Contains(*eu.Message, "gtc.clusters") {
			return fmt.Errorf("described as %+v, want us complete, and eu pending for want of a configured cluster", d)
		}
		return nil
	})
	p.signal(t, syscall.SIGTERM)
	if code := p.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}

	w.aliases = []string{"us", "eu"}
	w.start(t)
	got := <-told
	defer got.close()
	if got.err != nil {
		t.Fatal(got.err)
	}
	w.compare(t, got, commitOverTwo)
}
