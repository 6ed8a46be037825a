package durable_test

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// halfEnded makes a directory in which a transaction over partitions 0, 1 and
// 2 and one group was ended, and then takes back the last steps of the end:
// kfake writes the markers (in any order), the group's offsets, the end, the
// next epoch; the journal has the answer last.
func halfEnded(t *testing.T, v4, commit bool, undo int, withGroup bool) (dir string, x txn) {
	t.Helper()
	dir = t.TempDir()
	p := startProcess(t, dir, "")
	c := dial(t, p.addr, v4)
	w, err := c.init(t.Context(), "x", unlimited)
	must(t, err)
	c.write(t, w, 1, "before")
	must(t, c.end(t.Context(), w, true))
	for partition := range int32(3) {
		c.write(t, w, partition, fmt.Sprint("v", partition))
	}
	if withGroup {
		must(t, c.stage(t.Context(), w, group, 9))
	}
	x = *w
	must(t, c.end(t.Context(), w, commit))
	p.kill(t)

	journal := filepath.Join(dir, "transactions.journal")
	if kinds := frameKinds(t, journal, "k"); len(kinds) > 0 && kinds[len(kinds)-1] == "ended" {
		cutEntries(t, journal, 1)
	}
	steps := []func(){}
	if !v4 {
		steps = append(steps, func() { cutEntries(t, filepath.Join(dir, "pids.log"), 1) }) // the next epoch
	}
	steps = append(steps, func() { cutEntries(t, filepath.Join(dir, "pids.log"), 1) }) // the end
	if commit && withGroup {
		steps = append(steps, func() { cutEntries(t, filepath.Join(dir, "groups.log"), 1) })
	}
	for partition := range int32(3) {
		steps = append(steps, func() { cutLastBatch(t, dir, partition) })
	}
	if undo > len(steps) {
		t.Fatalf("the end has %d steps, cannot undo %d", len(steps), undo)
	}
	for _, step := range steps[:undo] {
		step()
	}
	return dir, x
}

// endSteps is the number of steps that halfEnded can take back.
func endSteps(v4, commit, withGroup bool) int {
	steps := 4 // the markers, the end
	if !v4 {
		steps++
	}
	if commit && withGroup {
		steps++
	}
	return steps
}

// Wherever the process dies in an end, it is finished: the markers tell the
// outcome, and a repeat is answered as it would have been.
func TestEndPartWayIsFinished(t *testing.T) {
	versions(t, func(t *testing.T, v4 bool) {
		t.Helper()
		for n := range 4 {
			commit, withGroup := n%2 == 0, n < 2
			for undo := range endSteps(v4, commit, withGroup) { // but for the first marker
				t.Run(fmt.Sprintf("commit=%t/group=%t/undo=%d", commit, withGroup, undo), func(t *testing.T) {
					dir, x := halfEnded(t, v4, commit, undo, withGroup)
					repaired(t, dir)
					b := startHere(t, dir, "")
					c := dial(t, b.addr(), v4)
					if d := c.describe(t, "x"); d.State != "Empty" {
						t.Errorf("transaction is %s", d.State)
					}
					other := x
					if err := c.end(t.Context(), &other, !commit); !errors.Is(err, kerr.InvalidTxnState) {
						t.Errorf("the other outcome is answered %v", err)
					}
					checkEnded(t, b, c, x, commit, withGroup)
				})
			}
		}
	})
}

// With no marker written the transaction is open, and either outcome is right.
func TestEndNotBegunIsOpen(t *testing.T) {
	versions(t, func(t *testing.T, v4 bool) {
		t.Helper()
		for _, asked := range []bool{true, false} {
			for _, commit := range []bool{true, false} {
				t.Run(fmt.Sprintf("asked=%t/commit=%t", asked, commit), func(t *testing.T) {
					dir, x := halfEnded(t, v4, asked, endSteps(v4, asked, true), true)
					repaired(t, dir)
					b := startHere(t, dir, "")
					c := dial(t, b.addr(), v4)
					if d := c.describe(t, "x"); d.State != "Ongoing" || d.ProducerEpoch != x.epoch {
						t.Errorf("transaction is %s at epoch %d", d.State, d.ProducerEpoch)
					}
					checkEnded(t, b, c, x, commit, true)
				})
			}
		}
	})
}

// The note of an end that was done, its answer lost, is not about the next
// transaction, although below version 5 that has the same epoch and the markers
// fit.
func TestVersion4NoteOfTheTransactionBeforeEndsNothing(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	c := dial(t, p.addr, true)
	x, err := c.init(t.Context(), answerLost, unlimited)
	must(t, err)
	c.write(t, x, 0, "before")
	must(t, c.end(t.Context(), x, true))
	journal := filepath.Join(dir, "transactions.journal")
	if kinds := frameKinds(t, journal, "k"); !slices.Equal(kinds, []string{"ending"}) {
		t.Fatalf("journal has %v", kinds)
	}
	c.write(t, x, 1, "open")
	p.kill(t)
	if report := repaired(t, dir); len(report.Open) != 1 || len(report.Finished) != 0 {
		t.Fatalf("open %+v, finished %+v", report.Open, report.Finished)
	}
	b := startHere(t, dir, "")
	must(t, dial(t, b.addr(), true).end(t.Context(), x, false))
	wantValues(t, b.addr(), 0, "before")
	wantValues(t, b.addr(), 1)
}

// checkEnded ends x and checks everything that the outcome must show.
func checkEnded(t *testing.T, b *testBroker, c *rawClient, x txn, commit, withGroup bool) {
	t.Helper()
	next := x
	next.seq = make(map[int32]int32)
	must(t, c.end(t.Context(), &next, commit))
	if want := x.epoch + 1; !c.v4 && (next.epoch != want || next.pid != x.pid) {
		t.Errorf("answer names %d/%d, want %d/%d", next.pid, next.epoch, x.pid, want)
	}
	offset := int64(-1)
	want := [][]string{nil, {"before"}, nil}
	if commit && withGroup {
		offset = 9
	}
	if commit {
		want = [][]string{{"v0"}, {"before", "v1"}, {"v2"}}
	}
	if got := c.committed(t, group); got != offset {
		t.Errorf("group has %d, want %d", got, offset)
	}
	for partition := range want {
		wantValues(t, b.addr(), int32(partition), want[partition]...)
	}
	if !c.v4 { // and its producer can go on
		c.write(t, &next, 0, "next")
		must(t, c.end(t.Context(), &next, true))
		wantValues(t, b.addr(), 0, append(slices.Clone(want[0]), "next")...)
	}
}

// InitProducerId aborts what it finds, marker by marker; half of it done, the
// transaction must not be open on the rest, or a decided commit would tear it.
func TestInitPartWayIsFinished(t *testing.T) {
	for undo := range 3 {
		t.Run(fmt.Sprintf("undo=%d", undo), func(t *testing.T) {
			dir := t.TempDir()
			p := startProcess(t, dir, "")
			c := dial(t, p.addr, false)
			x, err := c.init(t.Context(), "x", unlimited)
			must(t, err)
			for partition := range int32(3) {
				c.write(t, x, partition, "v")
			}
			_, err = c.init(t.Context(), "x", unlimited)
			must(t, err)
			p.kill(t)
			cutEntries(t, filepath.Join(dir, "transactions.journal"), 1)
			cutEntries(t, filepath.Join(dir, "pids.log"), 1)
			for partition := range int32(undo) {
				cutLastBatch(t, dir, partition)
			}
			repaired(t, dir)
			b := startHere(t, dir, "")
			c = dial(t, b.addr(), false)
			if err := c.end(t.Context(), x, true); !errors.Is(err, kerr.InvalidTxnState) {
				t.Errorf("commit after the abort: %v", err)
			}
			for partition := range int32(3) {
				wantValues(t, b.addr(), partition)
			}
		})
	}
}

// A control record that the disk had no room for: kfake goes on without it and
// shows the records, whichever way the transaction ended. The log of ends says
// which way that was.
func TestMissingMarkerOfAnEndedTransactionIsWritten(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit=%t", commit), func(t *testing.T) {
			dir, x := halfEnded(t, false, commit, 0, false)
			cutLastBatch(t, dir, 0)
			repaired(t, dir)
			b := startHere(t, dir, "")
			c := dial(t, b.addr(), false)
			must(t, c.end(t.Context(), &x, commit))
			if commit {
				wantValues(t, b.addr(), 0, "v0")
			} else {
				wantValues(t, b.addr(), 0)
			}
		})
	}
}

// kfake aborts a transaction that timed out under the next epoch, marker by
// marker, and logs it after that.
func TestTimeoutPartWayIsFinished(t *testing.T) {
	for undo := range 3 {
		t.Run(fmt.Sprintf("undo=%d", undo), func(t *testing.T) {
			dir := t.TempDir()
			p := startProcess(t, dir, "")
			c := dial(t, p.addr, false)
			x, err := c.init(t.Context(), "x", 400)
			must(t, err)
			must(t, c.stage(t.Context(), x, group, 1))
			must(t, c.end(t.Context(), x, true)) // not the answer for the next one
			p.kill(t)
			p = startProcess(t, dir, p.addr) // after which the log of producers has the commit
			c = dial(t, p.addr, false)
			for partition := range int32(3) {
				c.write(t, x, partition, "v")
			}
			for deadline := time.Now().Add(20 * time.Second); c.describe(t, "x").State != "Empty"; {
				if time.Now().After(deadline) {
					t.Fatal("the transaction does not time out")
				}
			}
			p.kill(t)
			cutEntries(t, filepath.Join(dir, "pids.log"), 1)
			for partition := range int32(undo) {
				cutLastBatch(t, dir, partition)
			}
			repaired(t, dir)
			b := startHere(t, dir, "")
			c = dial(t, b.addr(), false)
			if d := c.describe(t, "x"); d.State != "Empty" || d.ProducerEpoch != x.epoch+1 {
				t.Errorf("transaction is %s at epoch %d", d.State, d.ProducerEpoch)
			}
			if err := c.end(t.Context(), x, true); !errors.Is(err, kerr.InvalidTxnState) {
				t.Errorf("commit after the abort: %v", err)
			}
			for partition := range int32(3) {
				wantValues(t, b.addr(), partition)
			}
		})
	}
}

// A transactional batch under an id that never was transactional: nothing can
// end it, and it would hold readers back for ever.
func TestRecordsThatNothingCanEndAreAborted(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	c := dial(t, p.addr, false)
	x, err := c.initIdempotent(t.Context())
	must(t, err)
	x.epoch = 0
	c.write(t, x, 0, "stray")
	p.kill(t)
	repaired(t, dir)
	b := startHere(t, dir, "")
	wantValues(t, b.addr(), 0)
}

// Without the journal (kfake ran without the front) the control records alone
// tell the outcome, as long as every one is there.
func TestEndWithAllMarkersIsRecognisedWithoutJournal(t *testing.T) {
	for _, commit := range []bool{true, false} {
		t.Run(fmt.Sprintf("commit=%t", commit), func(t *testing.T) {
			dir, x := halfEnded(t, false, commit, 2, false)
			cutEntries(t, filepath.Join(dir, "transactions.journal"), len(frameKinds(t, filepath.Join(dir, "transactions.journal"), "k")))
			report, err := durable.Repair(dir, time.Now(), zerolog.Nop())
			must(t, err)
			if len(report.Open) != 0 {
				t.Errorf("open: %+v", report.Open)
			}
			b := startHere(t, dir, "")
			c := dial(t, b.addr(), true)
			other := x
			if err := c.end(t.Context(), &other, !commit); !errors.Is(err, kerr.InvalidTxnState) {
				t.Errorf("the other outcome is answered %v", err)
			}
			must(t, c.end(t.Context(), &x, commit))
		})
	}
}
