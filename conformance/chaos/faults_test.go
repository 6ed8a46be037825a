package chaos

import (
	"fmt"
	"testing"
)

func someFaults(n int) []fault {
	fs := make([]fault, n)
	for i := range fs {
		fs[i] = fault{name: fmt.Sprint(i)}
	}
	return fs
}

func names(rs []round) []string {
	var ns []string
	for _, r := range rs {
		ns = append(ns, fmt.Sprint(r.fault.name, r.before, r.during, r.after))
	}
	return ns
}

func TestSeedChoosesTheFaultsAndTheirTimes(t *testing.T) {
	one, again, other := schedule(1, someFaults(20), 50), schedule(1, someFaults(20), 50), schedule(2, someFaults(20), 50)
	if fmt.Sprint(names(one)) != fmt.Sprint(names(again)) {
		t.Error("one seed has chosen two schedules")
	}
	if fmt.Sprint(names(one)) == fmt.Sprint(names(other)) {
		t.Error("two seeds have chosen one schedule")
	}
}

func TestLongerRunBeginsLikeTheShorterOne(t *testing.T) {
	short, long := schedule(1, someFaults(20), 7), schedule(1, someFaults(20), 50)
	if fmt.Sprint(names(short)) != fmt.Sprint(names(long[:7])) {
		t.Error("a run of 7 rounds is not the beginning of one of 50")
	}
}

func TestEveryFaultComesBeforeAnyComesTwice(t *testing.T) {
	seen := map[string]int{}
	for _, r := range schedule(1, someFaults(20), 40) {
		seen[r.fault.name]++
	}
	for _, f := range someFaults(20) {
		if seen[f.name] != 2 {
			t.Errorf("fault %s came %d times in two turns of the list", f.name, seen[f.name])
		}
	}
}
