package gtc

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

var rewriteMatrix = flag.Bool("rewrite-matrix", false, "write testdata/matrix/states_by_events.txt anew")

// situations are the states of an id, each reached from nothing by events.
func situations() []struct {
	name   string
	events []any
} {
	init1 := InitRequest{Request: 1, ID: "pay", TimeoutMillis: 60_000, ClusterIDs: []string{"us", "eu"}, InstanceID: txnlog.UUID{1}}
	checked := ParticipantsChecked{ID: "pay", Attempt: 1, Results: []CheckResult{{ClusterID: "us"}, {ClusterID: "eu"}}}
	two := []ParticipantRef{{"us", 7, 3}, {"eu", 9, 0}}
	commit := EndRequest{Request: 2, ID: "pay", GlobalEpoch: 1, Sequence: 1, Commit: true, Participants: two, TimeoutMillis: 1000}
	abort := commit
	abort.Commit = false
	one := commit
	one.Participants = two[:1]
	votes := VotesTaken{ID: "pay", GlobalEpoch: 1, Sequence: 1, Votes: []Vote{{EndTxnVersion: 5}, {EndTxnVersion: 5}}}
	ended := func(i int, o EndOutcome) Event {
		return EndAnswered{ID: "pay", Sequence: 1, Participant: two[i], Answer: EndAnswer{
			Outcome: o, EndTxnVersion: 5, NextProducerID: two[i].ProducerID, NextProducerEpoch: two[i].ProducerEpoch + 1,
		}}
	}
	scan := ScanCompleted{ClusterID: "us", Open: []OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5}}}
	session := []any{init1, checked}
	with := func(more ...any) []any { return append(append([]any{}, session...), more...) }
	wait := waitFor(60_000)
	return []struct {
		name   string
		events []any
	}{
		{"unknown", nil},
		{"checking", []any{init1}},
		{"Empty", session},
		{"Ongoing (voting)", with(commit)},
		{"Ongoing (one-phase)", with(one)},
		{"Ongoing (seen open)", with(scan)},
		{"PrepareCommit", with(commit, votes)},
		{"PrepareAbort", with(abort)},
		{"CompleteCommit", with(commit, votes, ended(0, EndDone), ended(1, EndDone))},
		{"CompleteAbort", with(abort, ended(0, EndDone), ended(1, EndDone))},
		{"heuristic", with(commit, votes, ended(0, EndDone), ended(1, EndAborted))},
		{"session ended", with(scan, wait, ended(0, EndDone))},
	}
}

// waitFor stands among the events: the clock moves, and a Tick comes.
type waitFor int64

// stimuli are the events that each situation is exposed to.
func stimuli() []struct {
	name  string
	event any
} {
	two := []ParticipantRef{{"us", 7, 3}, {"eu", 9, 0}}
	end := func(seq int64, epoch int32, commit bool, refs []ParticipantRef) Event {
		return EndRequest{Request: 9, ID: "pay", GlobalEpoch: epoch, Sequence: seq, Commit: commit, Participants: refs, TimeoutMillis: 1000}
	}
	answer := func(o EndOutcome) Event {
		return EndAnswered{ID: "pay", Sequence: 1, Participant: two[0], Answer: EndAnswer{Outcome: o, EndTxnVersion: 5, NextProducerID: 7, NextProducerEpoch: 4}}
	}
	init := func(instance byte) Event {
		return InitRequest{Request: 9, ID: "pay", TimeoutMillis: 60_000, ClusterIDs: []string{"us", "eu"}, InstanceID: txnlog.UUID{instance}}
	}
	return []struct {
		name  string
		event any
	}{
		{"InitGlobalTxn, same instance", init(1)},
		{"InitGlobalTxn, new instance", init(2)},
		{"participants checked: ok", ParticipantsChecked{ID: "pay", Attempt: 1, Results: []CheckResult{{ClusterID: "us"}, {ClusterID: "eu"}}}},
		{"participants checked: stale", ParticipantsChecked{ID: "pay", Attempt: 77}},
		{"EndGlobalTxn(commit) 1 of us, eu", end(1, 1, true, two)},
		{"EndGlobalTxn(abort) 1 of us, eu", end(1, 1, false, two)},
		{"EndGlobalTxn(commit) 1 of us", end(1, 1, true, two[:1])},
		{"EndGlobalTxn(commit) 2 of us, eu", end(2, 1, true, two)},
		{"EndGlobalTxn(commit) 2, older epoch", end(2, 0, true, two)},
		{"votes: both prepared", VotesTaken{ID: "pay", GlobalEpoch: 1, Sequence: 1, Votes: []Vote{{EndTxnVersion: 5}, {EndTxnVersion: 5}}}},
		{"votes: eu refused", VotesTaken{ID: "pay", GlobalEpoch: 1, Sequence: 1, Votes: []Vote{{EndTxnVersion: 5}, {Code: VoteRefused, Detail: "fenced"}}}},
		{"votes: stale", VotesTaken{ID: "pay", GlobalEpoch: 1, Sequence: 0, Votes: []Vote{{}, {}}}},
		{"us ended: done", answer(EndDone)},
		{"us ended: committed", answer(EndCommitted)},
		{"us ended: aborted", answer(EndAborted)},
		{"us ended: unknown", answer(EndUnknown)},
		{"us ended: retry", answer(EndRetry)},
		{"scan of us: open", ScanCompleted{ClusterID: "us", Open: []OpenTransaction{{ID: "pay", ProducerID: 7, ProducerEpoch: 3, EndTxnVersion: 5}}}},
		{"scan of us: nothing", ScanCompleted{ClusterID: "us"}},
		{"scan of us: failed", ScanCompleted{ClusterID: "us", Failed: "timeout"}},
		{"Resolve(abort)", ResolveRequest{Request: 9, ID: "pay", Action: ResolveAbort}},
		{"Resolve(retry)", ResolveRequest{Request: 9, ID: "pay", Action: ResolveRetry}},
		{"Resolve(forget)", ResolveRequest{Request: 9, ID: "pay", Action: ResolveForget}},
		{"Resolve(give up us)", ResolveRequest{Request: 9, ID: "pay", Action: ResolveGiveUp, ClusterID: "us"}},
		{"a minute passes", waitFor(60_000)},
	}
}

// TestEveryStateByEveryEvent holds each reaction against the written table, and
// against what must be true of all of them: no EndTxn that is not one-phase
// without a decision in the log or just written.
func TestEveryStateByEveryEvent(t *testing.T) {
	var got strings.Builder
	for _, situation := range situations() {
		fmt.Fprintf(&got, "== %s\n", situation.name)
		for _, stimulus := range stimuli() {
			sc := newScenario()
			for _, ev := range situation.events {
				sc.feed(t, ev)
			}
			out := sc.feed(t, stimulus.event)
			fmt.Fprintf(&got, "%s\n", stimulus.name)
			for line := range strings.Lines(out) {
				fmt.Fprintf(&got, "    %s", line)
			}
		}
		got.WriteString("\n")
	}
	const path = "testdata/matrix/states_by_events.txt"
	if *rewriteMatrix {
		if err := os.WriteFile(path, []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got.String() != string(want) {
		t.Errorf("the reactions differ from %s; look at each difference, then run with -rewrite-matrix\n%s", path, firstDifference(got.String(), string(want)))
	}
}

func (sc *scenario) feed(t *testing.T, stimulus any) string {
	t.Helper()
	var ev Event = Tick{}
	switch x := stimulus.(type) {
	case waitFor:
		sc.now.Mono += int64(x)
		sc.now.Wall += int64(x)
	case Event:
		ev = x
	}
	before := sc.m.entries["pay"]
	recorded := before != nil && before.value != nil && (busy(before.value) || len(before.value.Leftovers) > 0)
	out := sc.m.Step(sc.now, ev)
	for _, c := range out.Changes {
		if p, ok := c.(Persist); ok && p.Record.Value != nil && !p.Lazy {
			recorded = true
		}
	}
	for _, e := range out.Effects {
		if e, ok := e.(EndTxn); ok && !e.OnePhase && !recorded && !ended(before, e) {
			t.Errorf("%T lets %s leave without a decision in the log", ev, renderEffect(e))
		}
	}
	text := sc.apply(out)
	if err := sc.m.Check(); err != nil {
		t.Errorf("after %T: %v", ev, err)
	}
	return text
}

// ended: the record says already how the participant has ended, and so why it is
// told again.
func ended(e *entry, told EndTxn) bool {
	return e != nil && e.value != nil && told.Sequence == e.value.Sequence && told.Commit == committed(e.value) &&
		slices.ContainsFunc(e.value.Participants, func(p txnlog.Participant) bool { return refOf(p) == refOf(told.Participant) })
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return fmt.Sprintf("line %d\n got: %s\nwant: %s", i+1, g[i], w[i])
		}
	}
	return fmt.Sprintf("%d lines against %d", len(g), len(w))
}
