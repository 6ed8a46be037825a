package history_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
)

var (
	us = history.Place{Cluster: "us", Topic: "a"}
	eu = history.Place{Cluster: "eu", Topic: "a", Partition: 1}
)

// at builds a history by hand; its clock ticks with every event.
type at struct {
	now int64
	h   history.History
}

func (b *at) event(e history.Event) {
	b.now += 1000
	e.At = b.now
	b.h.Events = append(b.h.Events, e)
}

// write writes the value "txn@cluster" and has it acknowledged at the offset.
func (b *at) write(txn string, p history.Place, offset int64) string {
	value := fmt.Sprintf("%s@%s", txn, p.Cluster)
	b.writeValue(txn, p, offset, value)
	return value
}

func (b *at) writeValue(txn string, p history.Place, offset int64, value string) {
	b.event(history.Event{Kind: history.Write, Txn: txn, Place: p, Value: value})
	b.event(history.Event{Kind: history.Wrote, Txn: txn, Place: p, Value: value, Offset: offset})
}

func (b *at) ask(txn, op string) { b.event(history.Event{Kind: history.Ask, Txn: txn, Op: op}) }

func (b *at) told(txn string, o history.Outcome) {
	b.event(history.Event{Kind: history.Answer, Txn: txn, Result: o})
}

// poll sees the value now; final sees it when all is over.
func (b *at) poll(p history.Place, offset int64, value string) {
	b.now += 1000
	b.h.Polled = append(b.h.Polled, history.Read{At: b.now, Place: p, Offset: offset, Value: value})
}

func (b *at) final(p history.Place, offset int64, value string) {
	b.h.Final = append(b.h.Final, history.Read{Place: p, Offset: offset, Value: value})
}

func (b *at) see(p history.Place, offset int64, value string) {
	b.poll(p, offset, value)
	b.final(p, offset, value)
}

// both writes to both clusters and asks for commit.
func (b *at) both(txn string) (inUS, inEU string) {
	inUS, inEU = b.write(txn, us, 0), b.write(txn, eu, 0)
	b.ask(txn, history.OpCommit)
	return inUS, inEU
}

func TestCheck(t *testing.T) {
	tests := []struct {
		name string
		make func(*at)
		want []history.AnomalyKind
	}{
		{"committed and visible on both clusters", func(b *at) {
			x, y := b.both("t")
			b.told("t", history.Committed)
			b.see(us, 0, x)
			b.see(eu, 0, y)
		}, nil},
		{"aborted and invisible", func(b *at) {
			b.both("t")
			b.told("t", history.Aborted)
		}, nil},
		{"no answer, all visible", func(b *at) {
			x, y := b.both("t")
			b.see(us, 0, x)
			b.see(eu, 0, y)
		}, nil},
		{"no answer, nothing visible", func(b *at) { b.both("t") }, nil},
		{"killed before it asked, nothing visible", func(b *at) { b.write("t", us, 0) }, nil},
		{"visible while commit is under way, before the answer", func(b *at) {
			x, y := b.both("t")
			b.see(us, 0, x)
			b.see(eu, 0, y)
			b.told("t", history.Committed)
		}, nil},
		{"a value that was not acknowledged may be anywhere", func(b *at) {
			b.event(history.Event{Kind: history.Write, Txn: "t", Place: us, Value: "x"})
			b.ask("t", history.OpCommit)
			b.see(us, 77, "x")
		}, nil},

		{"aborted, and visible", func(b *at) {
			x, y := b.both("t")
			b.told("t", history.Aborted)
			b.see(us, 0, x)
			b.see(eu, 0, y)
		}, []history.AnomalyKind{history.AbortedRead}},
		{"aborted, and visible for a moment", func(b *at) {
			x, _ := b.both("t")
			b.told("t", history.Aborted)
			b.poll(us, 0, x)
		}, []history.AnomalyKind{history.AbortedRead, history.Vanished}},
		{"nobody asked, and visible", func(b *at) {
			b.see(us, 0, b.write("t", us, 0))
		}, []history.AnomalyKind{history.AbortedRead}},
		{"only abort was asked, and visible", func(b *at) {
			x := b.write("t", us, 0)
			b.ask("t", history.OpAbort)
			b.see(us, 0, x)
		}, []history.AnomalyKind{history.AbortedRead}},
		{"committed, and nothing visible", func(b *at) {
			b.both("t")
			b.told("t", history.Committed)
		}, []history.AnomalyKind{history.LostWrite}},
		{"committed, and one cluster misses it", func(b *at) {
			x, _ := b.both("t")
			b.told("t", history.Committed)
			b.see(us, 0, x)
		}, []history.AnomalyKind{history.LostWrite, history.Torn}},
		{"aborted, and one cluster shows it", func(b *at) {
			_, y := b.both("t")
			b.told("t", history.Aborted)
			b.see(eu, 0, y)
		}, []history.AnomalyKind{history.AbortedRead, history.Torn}},
		{"no answer, and one cluster misses it", func(b *at) {
			_, y := b.both("t")
			b.see(eu, 0, y)
		}, []history.AnomalyKind{history.Torn}},
		{"no answer, and a part is missing on one and the same cluster", func(b *at) {
			x := b.write("t", us, 0)
			b.writeValue("t", us, 1, "second")
			b.ask("t", history.OpCommit)
			b.see(us, 0, x)
		}, []history.AnomalyKind{history.Torn}},
		{"visible twice in one partition", func(b *at) {
			x, y := b.both("t")
			b.see(us, 0, x)
			b.see(us, 1, x)
			b.see(eu, 0, y)
		}, []history.AnomalyKind{history.Duplicate, history.InconsistentOffsets}},
		{"visible twice, never acknowledged", func(b *at) {
			b.event(history.Event{Kind: history.Write, Txn: "t", Place: us, Value: "x"})
			b.ask("t", history.OpCommit)
			b.see(us, 0, "x")
			b.see(us, 1, "x")
		}, []history.AnomalyKind{history.Duplicate}},
		{"visible before it was asked for", func(b *at) {
			x := b.write("t", us, 0)
			b.see(us, 0, x)
			b.ask("t", history.OpCommit)
			b.told("t", history.Committed)
		}, []history.AnomalyKind{history.PreCommittedRead}},
		{"not at the offset acknowledged", func(b *at) {
			x := b.write("t", us, 4)
			b.ask("t", history.OpCommit)
			b.see(us, 5, x)
		}, []history.AnomalyKind{history.InconsistentOffsets}},
		{"not in the partition written to", func(b *at) {
			x := b.write("t", us, 0)
			b.ask("t", history.OpCommit)
			b.see(eu, 0, x)
		}, []history.AnomalyKind{history.InconsistentOffsets}},
		{"two values at one offset", func(b *at) {
			x := b.write("t", us, 0)
			b.ask("t", history.OpCommit)
			b.writeValue("u", us, 0, "other")
			b.ask("u", history.OpCommit)
			b.poll(us, 0, x)
			b.final(us, 0, "other")
		}, []history.AnomalyKind{history.InconsistentOffsets, history.Vanished}},
		{"seen, and gone when all is over", func(b *at) {
			x := b.write("t", us, 0)
			b.ask("t", history.OpCommit)
			b.poll(us, 0, x)
		}, []history.AnomalyKind{history.Vanished}},
		{"in another order than written", func(b *at) {
			b.event(history.Event{Kind: history.Write, Txn: "t", Place: us, Value: "1"})
			b.event(history.Event{Kind: history.Write, Txn: "t", Place: us, Value: "2"})
			b.ask("t", history.OpCommit)
			b.see(us, 0, "2")
			b.see(us, 1, "1")
		}, []history.AnomalyKind{history.OutOfOrder}},
		{"a value that nobody wrote", func(b *at) {
			b.see(us, 0, "x")
		}, []history.AnomalyKind{history.Stray}},
		{"committed, then aborted", func(b *at) {
			x, y := b.both("t")
			b.told("t", history.Committed)
			b.ask("t", history.OpAbort)
			b.told("t", history.Aborted)
			b.see(us, 0, x)
			b.see(eu, 0, y)
		}, []history.AnomalyKind{history.AbortedRead, history.ChangedOutcome}},
		{"the coordinator says that the clusters differ", func(b *at) {
			b.both("t")
			b.told("t", history.Heuristic)
		}, []history.AnomalyKind{history.HeuristicOutcome}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b at
			// A healthy transaction of somebody else is in every history.
			z := b.write("healthy", history.Place{Cluster: "us", Topic: "b"}, 9)
			b.ask("healthy", history.OpCommit)
			b.told("healthy", history.Committed)
			b.see(history.Place{Cluster: "us", Topic: "b"}, 9, z)
			test.make(&b)
			found := history.Check(b.h).Anomalies
			var kinds []history.AnomalyKind
			for _, a := range found {
				kinds = append(kinds, a.Kind)
				if a.Txn == "healthy" {
					t.Errorf("the healthy transaction is blamed: %v", a)
				}
			}
			if kinds = slices.Compact(kinds); !slices.Equal(kinds, test.want) {
				t.Errorf("Check = %v, want %v", found, test.want)
			}
		})
	}
}

func TestCount(t *testing.T) {
	var b at
	b.both("committed")
	b.told("committed", history.Unknown)
	b.told("committed", history.Committed)
	b.both("aborted")
	b.told("aborted", history.Aborted)
	b.both("no answer")
	b.write("not asked", us, 0)
	b.both("not told")
	b.told("not told", history.Unknown)
	want := history.Outcomes{Committed: 1, Aborted: 1, Unknown: 3}
	if got := history.Count(b.h); got != want || got.Total() != 5 {
		t.Errorf("Count = %+v, want %+v", got, want)
	}
}
