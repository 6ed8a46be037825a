package sim

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Seeds that have failed once stay.
func TestKeptSeeds(t *testing.T) {
	seeds, err := ReadSeeds("testdata/seeds.txt")
	if err != nil {
		t.Fatal(err)
	}
	if len(seeds) == 0 {
		t.Fatal("no seed is kept")
	}
	for _, s := range seeds {
		if r := Simulate(s, "", nil); r.Violation != "" {
			t.Errorf("seed %d: %s; see scripts/sim --seed %d --trace", s, r.Violation, s)
		}
	}
}

func TestSimulation(t *testing.T) {
	committed, aborted, torn, givenUp, expired := 0, 0, 0, 0, 0
	for s := range uint64(1000) {
		r := Simulate(s, "", nil)
		if r.Violation != "" {
			t.Errorf("seed %d: %s; see scripts/sim --seed %d --trace", s, r.Violation, s)
		}
		committed, aborted, torn = committed+r.Committed, aborted+r.Aborted, torn+r.Torn
		givenUp, expired = givenUp+r.GivenUp, expired+r.Expired
	}
	// Runs in which nothing happens would prove nothing.
	if committed < 500 || aborted < 500 || torn < 3 || givenUp < 3 || expired < 3 {
		t.Errorf("%d committed, %d aborted, %d torn, %d given up, %d expired", committed, aborted, torn, givenUp, expired)
	}
}

func TestReplayIsTheSameRun(t *testing.T) {
	for s := range uint64(20) {
		var first, second []string
		Simulate(s, "", func(l string) { first = append(first, l) })
		Simulate(s, "", func(l string) { second = append(second, l) })
		if len(first) != len(second) {
			t.Fatalf("seed %d: %d and %d lines", s, len(first), len(second))
		}
		for i := range first {
			if first[i] != second[i] {
				t.Fatalf("seed %d line %d: %q and %q", s, i, first[i], second[i])
			}
		}
	}
}

// A checker that does not find what is broken proves nothing.
func TestEveryMutantIsFound(t *testing.T) {
	for _, m := range Mutants() {
		t.Run(string(m), func(t *testing.T) {
			if seeds, _ := FindMutant(m); seeds == 0 {
				t.Errorf("not found in %d seeds", mostMutantSeeds)
			}
		})
	}
}

func TestSmallestSearchIsComplete(t *testing.T) {
	f := Smallest().Run()
	if !f.Complete || f.Violation != "" {
		t.Errorf("complete: %v, %s\n%v", f.Complete, violationText(f.Violation), f.Path)
	}
	if f.Worlds < 1_000 {
		t.Errorf("%d states: the world has become too small", f.Worlds)
	}
	t.Logf("%d states, %d moves, depth %d", f.Worlds, f.Moves, f.Depth)
}

// Without any one of the rules the search finds a broken promise.
func TestSearchFindsEveryRuleLeftOut(t *testing.T) {
	for _, s := range RuleSearches() {
		t.Run(s.Name, func(t *testing.T) {
			f := s.Run()
			if f.Violation == "" {
				t.Fatalf("not found in %d states", f.Worlds)
			}
			t.Logf("%d states, depth %d: %s", f.Worlds, f.Depth, f.Violation)
		})
	}
}

// Where prepared transactions are kept, an InitProducerId before InitGlobalTxn tears
// nothing, which it does elsewhere (TestSearchFindsEveryRuleLeftOut).
func TestWithoutR3NothingTearsWherePreparedTransactionsAreKept(t *testing.T) {
	f := Search{Name: "without R3, kept", Config: func() *world {
		w := searched(withoutR3, 2, []int16{bumps, bumps}, both, budget{}).keeping()
		w.outcomesOnly = true
		return w
	}}.Run()
	if !f.Complete || f.Violation != "" || f.Worlds < 1_000 {
		t.Errorf("%d states, complete: %v, %s\n%v", f.Worlds, f.Complete, violationText(f.Violation), f.Path)
	}
}
