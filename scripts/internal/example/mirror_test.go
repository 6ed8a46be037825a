package main

import (
	"slices"
	"testing"
)

// The judge of the mirror finds what is missing, repeated, strange, or in
// another order.
func TestMirrorDifferencesAreFound(t *testing.T) {
	want := [mirrorPartitions][]string{{"a-0", "a-4"}, {"a-1"}, {"a-2"}, {"a-3"}}
	for name, c := range map[string]struct {
		change func(*[mirrorPartitions][]string)
		alien  int
		found  bool
	}{
		"same":              {change: func(*[mirrorPartitions][]string) {}},
		"missing":           {change: func(g *[mirrorPartitions][]string) { g[1] = nil }, found: true},
		"repeated":          {change: func(g *[mirrorPartitions][]string) { g[2] = append(g[2], "a-2") }, found: true},
		"order":             {change: func(g *[mirrorPartitions][]string) { slices.Reverse(g[0]) }, found: true},
		"another partition": {change: func(g *[mirrorPartitions][]string) { g[1], g[2] = g[2], g[1] }, found: true},
		"aborted":           {change: func(g *[mirrorPartitions][]string) { g[3] = append(g[3], "a-aborted-3") }, found: true},
		"of another origin": {change: func(*[mirrorPartitions][]string) {}, alien: 1, found: true},
	} {
		got := [mirrorPartitions][]string{}
		for p := range want {
			got[p] = slices.Clone(want[p])
		}
		c.change(&got)
		m := &mirroring{world: newWorld(&options{out: t.Output()}, t.TempDir())}
		if err := m.report(name, got, &want, c.alien); (err != nil) != c.found {
			t.Errorf("%s: %v", name, err)
		}
	}
}
