package durable_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// versions runs a test for clients with and without the epoch bump of KIP-890.
func versions(t *testing.T, test func(t *testing.T, v4 bool)) {
	t.Helper()
	for _, v4 := range []bool{false, true} {
		t.Run(fmt.Sprintf("v4=%t", v4), func(t *testing.T) { test(t, v4) })
	}
}

func TestOpenTransactionSurvivesKillAndEndsAsAsked(t *testing.T) {
	versions(t, func(t *testing.T, v4 bool) {
		t.Helper()
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("commit=%t", commit), func(t *testing.T) {
				dir := t.TempDir()
				p := startProcess(t, dir, "")
				c := dial(t, p.addr, v4)
				before, err := c.init(t.Context(), "x", unlimited)
				must(t, err)
				c.write(t, before, 0, "before")
				must(t, c.end(t.Context(), before, true))
				x := before
				c.write(t, x, 0, "a0", "a1")
				c.write(t, x, 1, "b0")
				must(t, c.stage(t.Context(), x, group, 7))
				p.kill(t)

				report := repaired(t, dir)
				if len(report.Open) != 1 || report.Open[0] != (durable.Transaction{
					TransactionalID: "x", ProducerID: x.pid, ProducerEpoch: x.epoch, Partitions: 2, Groups: 1,
				}) {
					t.Errorf("open: %+v", report.Open)
				}
				b := startHere(t, dir, "")
				c = dial(t, b.addr(), v4)
				d := c.describe(t, "x")
				if d.State != "Ongoing" || d.ProducerID != x.pid || d.ProducerEpoch != x.epoch || d.TimeoutMillis != unlimited || len(d.Topics) != 1 || len(d.Topics[0].Partitions) != 2 {
					t.Errorf("described as %+v", d)
				}
				if lso, end := c.endOffset(t, 0, 1), c.endOffset(t, 0, 0); lso != 2 || end != 4 {
					t.Errorf("last stable offset %d of %d, want 2 of 4", lso, end)
				}
				c.write(t, x, 2, "after the crash")
				c.write(t, x, 0, "a2")
				must(t, c.end(t.Context(), x, commit))
				if commit {
					wantValues(t, b.addr(), 0, "before", "a0", "a1", "a2")
					wantValues(t, b.addr(), 1, "b0")
					wantValues(t, b.addr(), 2, "after the crash")
				} else {
					wantValues(t, b.addr(), 0, "before")
					wantValues(t, b.addr(), 1)
					wantValues(t, b.addr(), 2)
				}
				want := int64(-1)
				if commit {
					want = 7
				}
				if got := c.committed(t, group); got != want {
					t.Errorf("group has offset %d, want %d", got, want)
				}
			})
		}
	})
}

// The same client goes on over the crash: its transaction is one.
func TestClientContinuesItsTransactionOverKill(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	cl, err := kgo.NewClient(
		kgo.SeedBrokers(p.addr), kgo.TransactionalID("x"), kgo.TransactionTimeout(unlimited*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("t"),
		kgo.MetadataMinAge(50*time.Millisecond), kgo.RetryTimeout(30*time.Second),
	)
	must(t, err)
	defer cl.Close()
	must(t, cl.BeginTransaction())
	produce := func(from int) {
		for i := from; i < from+30; i++ {
			r := &kgo.Record{Partition: int32(i % 3), Value: fmt.Appendf(nil, "%d", i)}
			must(t, cl.ProduceSync(t.Context(), r).FirstErr())
		}
	}
	produce(0)
	p.kill(t)
	b := startHere(t, dir, p.addr)
	produce(30)
	must(t, cl.EndTransaction(t.Context(), kgo.TryCommit))
	must(t, cl.BeginTransaction())
	produce(60)
	must(t, cl.EndTransaction(t.Context(), kgo.TryAbort))
	for partition := range int32(3) {
		var want []string
		for i := int(partition); i < 60; i += 3 {
			want = append(want, fmt.Sprint(i))
		}
		wantValues(t, b.addr(), partition, want...)
	}
}

func TestRetriedBatchIsADuplicateAfterKill(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	c := dial(t, p.addr, false)
	x, err := c.init(t.Context(), "x", unlimited)
	must(t, err)
	offsets := make([]int64, 7)
	for i := range offsets {
		offsets[i] = c.write(t, x, 0, fmt.Sprint(i), "and its twin")
	}
	p.kill(t)
	b := startHere(t, dir, "")
	c = dial(t, b.addr(), false)
	for i := 2; i < 7; i++ { // the broker remembers five
		offset, err := c.produce(t.Context(), x, 0, int32(2*i), fmt.Sprint(i), "and its twin")
		if err != nil || offset != offsets[i] {
			t.Errorf("batch %d repeated: offset %d, %v; want %d", i, offset, err, offsets[i])
		}
	}
	if _, err := c.produce(t.Context(), x, 0, 99, "gap"); !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Errorf("a batch out of order: %v", err)
	}
	c.write(t, x, 0, "next")
	must(t, c.end(t.Context(), x, true))
	if end := c.endOffset(t, 0, 0); end != 16 {
		t.Errorf("log ends at %d, want 14 records, one more and a marker", end)
	}
}

// An answered end stays answered: kfake alone forgets the outcome with its next
// epoch, and then calls the repeat of a commit invalid.
func TestRepeatedEndAfterKillGetsTheSameAnswer(t *testing.T) {
	versions(t, func(t *testing.T, v4 bool) {
		t.Helper()
		dir := t.TempDir()
		p := startProcess(t, dir, "")
		c := dial(t, p.addr, v4)
		x, err := c.init(t.Context(), "x", unlimited)
		must(t, err)
		c.write(t, x, 0, "a")
		asked := *x
		must(t, c.end(t.Context(), x, true))
		p.kill(t)
		b := startHere(t, dir, "")
		c = dial(t, b.addr(), v4)
		other := asked
		if err := c.end(t.Context(), &other, false); !errors.Is(err, kerr.InvalidTxnState) {
			t.Errorf("abort after commit: %v", err)
		}
		again := asked
		must(t, c.end(t.Context(), &again, true))
		if again.pid != x.pid || again.epoch != x.epoch {
			t.Errorf("repeat gave %d/%d, first answer was %d/%d", again.pid, again.epoch, x.pid, x.epoch)
		}
		c.write(t, x, 0, "b")
		must(t, c.end(t.Context(), x, true))
		wantValues(t, b.addr(), 0, "a", "b")
	})
}

// InitProducerId aborts a transaction and logs no end of it; the commit before
// it must not be taken for the answer to a commit of the aborted one.
func TestCommitOfATransactionThatInitAbortedStaysRefused(t *testing.T) {
	versions(t, func(t *testing.T, v4 bool) {
		t.Helper()
		dir := t.TempDir()
		p := startProcess(t, dir, "")
		c := dial(t, p.addr, v4)
		x, err := c.init(t.Context(), "x", unlimited)
		must(t, err)
		c.write(t, x, 0, "a")
		must(t, c.end(t.Context(), x, true))
		c.write(t, x, 0, "b")
		aborted := *x
		_, err = c.init(t.Context(), "x", unlimited)
		must(t, err)
		p.kill(t)
		b := startHere(t, dir, "")
		c = dial(t, b.addr(), false)
		if err := c.end(t.Context(), &aborted, true); !errors.Is(err, kerr.InvalidTxnState) {
			t.Errorf("commit of what was aborted: %v", err)
		}
		wantValues(t, b.addr(), 0, "a")
	})
}

func TestStagedOffsetsAloneSurviveKill(t *testing.T) {
	versions(t, func(t *testing.T, v4 bool) {
		t.Helper()
		dir := t.TempDir()
		p := startProcess(t, dir, "")
		c := dial(t, p.addr, v4)
		ids := []string{"one", "two"}
		open := make(map[string]*txn)
		for i, id := range ids {
			x, err := c.init(t.Context(), id, unlimited)
			must(t, err)
			must(t, c.stage(t.Context(), x, id, 1))
			must(t, c.end(t.Context(), x, true)) // leaves nothing behind in the next
			must(t, c.stage(t.Context(), x, id, int64(10+i)))
			must(t, c.stage(t.Context(), x, id, int64(20+i)))
			open[id] = x
		}
		for range 2 { // and over a second crash, with nothing done in between
			p.kill(t)
			if report := repaired(t, dir); len(report.Open) != 2 {
				t.Fatalf("open: %+v", report.Open)
			}
			p = startProcess(t, dir, "")
		}
		c = dial(t, p.addr, v4)
		must(t, c.end(t.Context(), open["one"], true))
		must(t, c.end(t.Context(), open["two"], false))
		p.kill(t)
		b := startHere(t, dir, "")
		c = dial(t, b.addr(), v4)
		got := []int64{c.committed(t, "one"), c.committed(t, "two")}
		if !slices.Equal(got, []int64{20, 1}) {
			t.Errorf("groups have %v, want 20 of the commit and 1 of before the abort", got)
		}
	})
}

func TestTransactionOverACleanStopAndThenAKill(t *testing.T) {
	dir := t.TempDir()
	b := startHere(t, dir, "")
	c := dial(t, b.addr(), false)
	x, err := c.init(t.Context(), "x", unlimited)
	must(t, err)
	c.write(t, x, 0, "a")
	must(t, c.stage(t.Context(), x, group, 5))
	c.cl.Close()
	must(t, b.stop())
	p := startProcess(t, dir, "") // kfake removes the session once it has read it
	p.kill(t)
	again := startHere(t, dir, "")
	c = dial(t, again.addr(), false)
	must(t, c.end(t.Context(), x, true))
	wantValues(t, again.addr(), 0, "a")
	if got := c.committed(t, group); got != 5 {
		t.Errorf("group has %d", got)
	}
}

func TestFiniteTimeoutIsKeptOverKill(t *testing.T) {
	dir := t.TempDir()
	p := startProcess(t, dir, "")
	c := dial(t, p.addr, false)
	short, err := c.init(t.Context(), "short", 300)
	must(t, err)
	c.write(t, short, 0, "short")
	long, err := c.init(t.Context(), "long", unlimited)
	must(t, err)
	c.write(t, long, 1, "long")
	p.kill(t)
	backdate(t, dir, time.Now().Add(-2000*time.Hour))
	b := startHere(t, dir, "")
	c = dial(t, b.addr(), false)
	if d := c.describe(t, "short"); d.State != "Empty" {
		t.Errorf("a transaction past its timeout is %s", d.State)
	}
	if d := c.describe(t, "long"); d.State != "Ongoing" {
		t.Errorf("a transaction without timeout is %s after 83 days", d.State)
	}
	must(t, c.end(t.Context(), long, true))
	wantValues(t, b.addr(), 0)
	wantValues(t, b.addr(), 1, "long")
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := c.end(ctx, short, true); err == nil {
		t.Error("commit of a transaction that timed out was accepted")
	}
}
