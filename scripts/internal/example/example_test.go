package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

// built has the binaries that an example needs.
func built(t *testing.T, o options) *options {
	t.Helper()
	dir := t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir,
		"github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker", "github.com/kafka-gtc/kafka-gtc/scripts/internal/example")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o.out, o.minibroker, o.self = t.Output(), filepath.Join(dir, "minibroker"), filepath.Join(dir, "example")
	return &o
}

// Each example in its short form, with kills; in is nil only when everything was
// read back as it should be.
func short(t *testing.T, o options) {
	t.Helper()
	b := built(t, o)
	for name, run := range map[string]func(context.Context, *world) error{
		"ctp": runCTP, "fanout": runFanout, "mirror": runMirrorAliases, "mirror under one name": runMirrorIdentity,
	} {
		t.Run(name, func(t *testing.T) {
			own := *b
			own.out = t.Output()
			clusters := []string{"a", "b"}
			if name == "fanout" {
				clusters = fanoutClusters
			}
			if err := own.in(t.Context(), clusters, run); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestExamples(t *testing.T) {
	short(t, options{records: 600, instances: 3, kills: 2, seed: 1})
}

func TestDifferencesAreFound(t *testing.T) {
	want := map[string]int{"a": 1, "b": 1, "c": 1}
	for _, c := range []struct {
		values []string
		want   difference
	}{
		{[]string{"a", "b", "c"}, difference{}},
		{[]string{"a", "c"}, difference{missing: 1}},
		{[]string{"a", "b", "b", "b", "c"}, difference{repeated: 2}},
		{[]string{"a", "b", "c", "d", "d"}, difference{alien: 2}},
		{nil, difference{missing: 3}},
	} {
		if got := differ(c.values, want); got != c.want {
			t.Errorf("%q: %v, want %v", c.values, got, c.want)
		}
	}
}

func TestTornTransactionsAreFound(t *testing.T) {
	all := func(names ...string) map[string]int {
		seen := map[string]int{}
		for _, n := range names {
			for _, r := range fanoutRecords(n) {
				seen[r]++
			}
		}
		return seen
	}
	if counts, errs := allOrNone(all("x", "z"), map[string]string{"x": "committed", "y": "aborted", "z": ""}); len(errs) != 0 || counts["committed"] != 1 || counts[""] != 1 {
		t.Errorf("%v, %v, want no differences", counts, errs)
	}
	torn := all("x")
	delete(torn, fanoutRecords("x")[1])
	for name, c := range map[string]struct {
		seen map[string]int
		told map[string]string
	}{
		"torn":                {torn, map[string]string{"x": ""}},
		"committed and gone":  {nil, map[string]string{"x": "committed"}},
		"aborted and visible": {all("x"), map[string]string{"x": "aborted"}},
		"of no transaction":   {all("x"), nil},
	} {
		if _, errs := allOrNone(c.seen, c.told); len(errs) == 0 {
			t.Errorf("%s: no difference was found", name)
		}
	}
	if _, errs := allOrNone(all("x", "x"), map[string]string{"x": "committed"}); len(errs) != len(fanoutRecords("x")) {
		t.Errorf("repeated: %v", errs)
	}
}
