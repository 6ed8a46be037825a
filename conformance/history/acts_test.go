package history_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/history"
)

// begin begins a transaction of the id "id"; its name on both clusters is producer
// 1 with that epoch.
func (b *at) begin(txn string) { b.event(history.Event{Kind: history.Begin, Txn: txn, ID: "id"}) }

func (b *at) named(txn string, p history.Place, epoch int16) string {
	value := fmt.Sprintf("%s@%s@%d", txn, p.Cluster, b.now)
	b.event(history.Event{Kind: history.Write, Txn: txn, Place: p, Value: value})
	b.event(history.Event{Kind: history.Wrote, Txn: txn, Place: p, Value: value, Offset: b.now, Producer: history.Producer{ID: 1, Epoch: epoch}})
	return value
}

func (b *at) committed(txn string, ended ...string) {
	b.event(history.Event{Kind: history.Answer, Txn: txn, Result: history.Committed, Ended: ended})
}

// offset is where named had the value acknowledged.
func (b *at) offset(value string) int64 {
	for _, e := range b.h.Events {
		if e.Kind == history.Wrote && e.Value == value {
			return e.Offset
		}
	}
	panic("nobody wrote " + value)
}

// visible sees a value in one life of its cluster; kept is also there at the end.
func (b *at) visible(p history.Place, life int, value string) {
	b.now += 1000
	b.h.Polled = append(b.h.Polled, history.Read{At: b.now, Place: p, Offset: b.offset(value), Value: value, Life: life})
}

func (b *at) kept(p history.Place, life int, values ...string) {
	for _, value := range values {
		b.visible(p, life, value)
		b.h.Final = append(b.h.Final, history.Read{Place: p, Offset: b.offset(value), Value: value, Life: life})
	}
}

// act is one that begins now and is over a moment later.
func (b *at) act(kind history.Kind, cluster, id string) {
	began := b.now + 1000
	b.now += 1000
	b.event(history.Event{Kind: kind, Began: began, Place: history.Place{Cluster: cluster}, ID: id})
}

func (b *at) copied(cluster string)  { b.act(history.Copied, cluster, "") }
func (b *at) giveUp(cluster string)  { b.act(history.GaveUp, cluster, "id") }
func (b *at) restore(cluster string) { b.restored(cluster, func() {}) }

// restored lets something happen while the cluster is down.
func (b *at) restored(cluster string, down func()) {
	began := b.now + 1000
	b.now += 1000
	down()
	b.event(history.Event{Kind: history.Restored, Began: began, Place: history.Place{Cluster: cluster}})
}

// says is a report of the coordinator.
func (b *at) says(kind history.Kind, cluster string, epoch int16, how history.Outcome) {
	b.event(history.Event{
		Kind: kind, ID: "id", Place: history.Place{Cluster: cluster}, Producer: history.Producer{ID: 1, Epoch: epoch}, Result: how,
	})
}

func (b *at) contradicted(cluster string, epoch int16, how history.Outcome) {
	b.says(history.Contradicted, cluster, epoch, how)
}

func (b *at) pending(cluster string, epoch int16) { b.says(history.Pending, cluster, epoch, "") }

// twoPlaces writes one value to each cluster.
func (b *at) twoPlaces(txn string, epoch int16) (inUS, inEU string) {
	b.begin(txn)
	return b.named(txn, us, epoch), b.named(txn, eu, epoch)
}

func TestActs(t *testing.T) {
	type kinds = []history.AnomalyKind
	tests := []struct {
		name           string
		make           func(*at)
		want           kinds
		reported, lost int
	}{
		// Given up.
		{"given up, aborted there, reported", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.told("t", history.Heuristic)
			b.kept(eu, 0, y)
		}, nil, 1, 0},
		{"given up, forgotten, and told committed", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "eu")
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.act(history.Forgot, "", "id")
			b.committed("t", "us", "eu")
			b.kept(eu, 0, y)
		}, nil, 1, 0},
		{"given up and committed there after all", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.kept(us, 0, x)
			b.kept(eu, 0, y)
		}, nil, 0, 0},
		{"given up when it had been seen there, and the coordinator had not heard of it", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.kept(us, 0, x)
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.told("t", history.Heuristic)
			b.kept(eu, 0, y)
		}, nil, 0, 0},
		{"given up, aborted there, and not reported", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.kept(eu, 0, y)
		}, kinds{history.Unreported}, 0, 0},
		{"given up, aborted there, and another transaction reported", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.twoPlaces("u", 2)
			b.contradicted("us", 2, history.Unknown)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome, history.Unreported}, 0, 0},
		{"given up on the other cluster", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("eu")
			b.contradicted("us", 1, history.Unknown)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome, history.Torn}, 0, 0},
		{"another id given up", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.act(history.GaveUp, "us", "another")
			b.contradicted("us", 1, history.Unknown)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome, history.Torn}, 0, 0},
		{"given up when it had ended there", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome, history.LostWrite, history.Torn}, 0, 0},
		{"given up before it had begun", func(b *at) {
			b.giveUp("us")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.contradicted("us", 1, history.Unknown)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome, history.Torn}, 0, 0},
		{"given up, and a part is missing on that cluster", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.named("t", us, 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.kept(us, 0, x)
			b.kept(eu, 0, y)
		}, kinds{history.Torn}, 0, 0},
		{"given up, and visible although aborted", func(b *at) {
			x, _ := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.told("t", history.Aborted)
			b.kept(us, 0, x)
		}, kinds{history.AbortedRead, history.Torn}, 0, 0},
		{"given up, and visible for a moment", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
			b.visible(us, 0, x)
			b.kept(eu, 0, y)
		}, kinds{history.Torn, history.Vanished}, 0, 0},

		// What the coordinator reports.
		{"told that the clusters differ, and nothing explains it", func(b *at) {
			b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.begin("u")
			b.named("u", us, 2)
			b.told("u", history.Heuristic)
		}, kinds{history.HeuristicOutcome}, 0, 0},
		{"reported as committed against the decision", func(b *at) {
			b.twoPlaces("t", 1)
			b.ask("t", history.OpAbort)
			b.giveUp("us")
			b.contradicted("us", 1, history.Committed)
		}, kinds{history.HeuristicOutcome}, 0, 0},
		{"reported as aborted, and visible", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.contradicted("us", 1, history.Aborted)
			b.kept(us, 0, x)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome}, 0, 0},
		{"reported as aborted, and then back to when it was open", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.giveUp("us")
			b.copied("us")
			b.contradicted("us", 1, history.Aborted)
			b.restore("us")
			b.kept(us, 1, x)
			b.kept(eu, 0, y)
		}, nil, 0, 0},
		{"reported, and nobody did anything", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.contradicted("us", 1, history.Unknown)
			b.kept(us, 0, x)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome}, 0, 0},
		{"reported of a transaction whose name nobody learned", func(b *at) {
			b.begin("t")
			b.event(history.Event{Kind: history.Write, Txn: "t", Place: us, Value: "not acknowledged"})
			b.giveUp("us")
			b.contradicted("us", 1, history.Unknown)
		}, nil, 0, 0},
		{"reported before it was given up", func(b *at) {
			b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.contradicted("us", 1, history.Unknown)
			b.giveUp("us")
		}, kinds{history.HeuristicOutcome}, 0, 0},
		{"a participant forgot that was given up only", func(b *at) {
			b.twoPlaces("t", 1)
			b.giveUp("us")
			b.says(history.Reopened, "us", 1, "")
		}, kinds{history.HeuristicOutcome}, 0, 0},
		{"a participant forgot that was restored", func(b *at) {
			b.twoPlaces("t", 1)
			b.copied("us")
			b.restore("us")
			b.says(history.Reopened, "us", 1, "")
		}, nil, 0, 0},
		{"a participant forgot what was over before the copy", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.copied("us")
			b.restore("us")
			b.says(history.Reopened, "us", 1, "")
			b.kept(us, 1, x)
			b.kept(eu, 0, y)
		}, kinds{history.HeuristicOutcome}, 0, 0},

		// Restored.
		{"ended before the copy, and there again", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.visible(us, 0, x)
			b.copied("us")
			b.restore("us")
			b.kept(us, 1, x)
			b.kept(eu, 0, y)
		}, nil, 0, 0},
		{"seen before the copy, and gone", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.visible(us, 0, x)
			b.copied("us")
			b.restore("us")
			b.kept(eu, 0, y)
		}, kinds{history.Torn, history.Vanished}, 0, 0},
		{"called complete before the copy, and gone", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.copied("us")
			b.restore("us")
			b.kept(eu, 0, y)
		}, kinds{history.LostWrite, history.Torn}, 0, 0},
		{"seen after the copy, and gone: nobody can know", func(b *at) {
			b.copied("us")
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.visible(us, 0, x)
			b.committed("t", "us", "eu")
			b.restore("us")
			b.kept(eu, 0, y)
		}, nil, 0, 1},
		{"restored twice, and gone with the second", func(b *at) {
			b.copied("us")
			b.restore("us")
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.visible(us, 1, x)
			b.copied("us")
			b.restore("us")
			b.kept(eu, 0, y)
		}, kinds{history.Torn, history.Vanished}, 0, 0},
		{"the other cluster was restored", func(b *at) {
			b.copied("eu")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.restore("eu")
			b.kept(eu, 1, y)
		}, kinds{history.Torn}, 0, 0},
		{"gone with the restore on one cluster, and without on the other", func(b *at) {
			b.copied("us")
			b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.restore("us")
		}, kinds{history.LostWrite}, 0, 1},
		{"written after the restore, and gone", func(b *at) {
			b.copied("us")
			b.restore("us")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.kept(eu, 0, y)
		}, kinds{history.Torn}, 0, 0},
		{"seen after the restore, and gone", func(b *at) {
			b.copied("us")
			x, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.restore("us")
			b.visible(us, 1, x)
			b.kept(eu, 0, y)
		}, kinds{history.Torn, history.Vanished}, 0, 0},
		{"begun in the copy, its end forgotten and then aborted: nobody can know", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.copied("us")
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.restore("us")
			b.kept(eu, 0, y)
		}, nil, 0, 1},
		{"a part in the copy, and the rest forgotten", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.copied("us")
			b.named("t", us, 1)
			b.restore("us")
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.kept(us, 1, x)
			b.kept(eu, 0, y)
		}, nil, 0, 1},
		{"all forgotten, then asked for and committed", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.restore("us")
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.kept(eu, 0, y)
		}, kinds{history.LostWrite, history.Torn}, 0, 0},
		{"pending when it was restored, all forgotten, and reported", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.restored("us", func() { b.pending("us", 1) })
			b.contradicted("us", 1, history.Unknown)
			b.kept(eu, 0, y)
		}, nil, 1, 0},
		{"pending when it was restored, all forgotten, and not reported", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.restored("us", func() { b.pending("us", 1) })
			b.kept(eu, 0, y)
		}, kinds{history.Unreported}, 0, 0},
		{"pending when it was restored, all in the copy, aborted, and not reported", func(b *at) {
			_, y := b.twoPlaces("t", 1)
			b.copied("us")
			b.ask("t", history.OpCommit)
			b.restored("us", func() { b.pending("us", 1) })
			b.kept(eu, 0, y)
		}, kinds{history.Unreported}, 0, 0},
		{"pending when it was restored, a part in the copy, and committed", func(b *at) {
			x, y := b.twoPlaces("t", 1)
			b.copied("us")
			b.named("t", us, 1)
			b.ask("t", history.OpCommit)
			b.restored("us", func() { b.pending("us", 1) })
			b.kept(us, 1, x)
			b.kept(eu, 0, y)
		}, nil, 0, 1},
		{"another was pending when it was restored", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.twoPlaces("u", 2)
			b.restored("us", func() { b.pending("us", 2) })
			b.kept(eu, 0, y)
		}, nil, 0, 1},
		{"pending when the other cluster was restored", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.restored("us", func() { b.pending("eu", 1) })
			b.kept(eu, 0, y)
		}, nil, 0, 1},
		{"its begin forgotten, the rest written after the restore", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.restore("us")
			z := b.named("t", us, 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.kept(us, 1, z)
			b.kept(eu, 0, y)
		}, nil, 0, 1},
		{"its begin forgotten, and the rest gone that was written after the restore", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.restore("us")
			b.named("t", us, 1)
			b.ask("t", history.OpCommit)
			b.committed("t", "us", "eu")
			b.kept(eu, 0, y)
		}, kinds{history.LostWrite, history.Torn}, 0, 1},
		{"not pending when it was restored, and reported all the same", func(b *at) {
			b.copied("us")
			_, y := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.restore("us")
			b.contradicted("us", 1, history.Unknown)
			b.kept(eu, 0, y)
		}, nil, 1, 0},
		{"restored, and visible although aborted", func(b *at) {
			x, _ := b.twoPlaces("t", 1)
			b.ask("t", history.OpCommit)
			b.copied("us")
			b.told("t", history.Aborted)
			b.restore("us")
			b.kept(us, 1, x)
		}, kinds{history.AbortedRead, history.Torn}, 0, 0},
		{"an offset that a forgotten value had is given anew", func(b *at) {
			b.copied("us")
			b.writeValue("t", us, 5, "x")
			b.ask("t", history.OpCommit)
			b.poll(us, 5, "x")
			b.restore("us")
			b.writeValue("u", us, 5, "other")
			b.ask("u", history.OpCommit)
			b.h.Final = append(b.h.Final, history.Read{Place: us, Offset: 5, Value: "other", Life: 1})
		}, nil, 0, 1},
		{"what outlives a restore is at another offset", func(b *at) {
			b.event(history.Event{Kind: history.Write, Txn: "t", Place: us, Value: "x"})
			b.ask("t", history.OpCommit)
			b.poll(us, 5, "x")
			b.copied("us")
			b.restore("us")
			b.h.Final = append(b.h.Final, history.Read{Place: us, Offset: 6, Value: "x", Life: 1})
		}, kinds{history.Duplicate}, 0, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			var b at
			test.make(&b)
			v := history.Check(b.h)
			var found kinds
			for _, a := range v.Anomalies {
				found = append(found, a.Kind)
			}
			if found = slices.Compact(found); !slices.Equal(found, test.want) {
				t.Errorf("Check = %v, want %v", v.Anomalies, test.want)
			}
			if v.Reported != test.reported || v.Lost != test.lost {
				t.Errorf("%d reported and %d lost, want %d and %d", v.Reported, v.Lost, test.reported, test.lost)
			}
		})
	}
}
