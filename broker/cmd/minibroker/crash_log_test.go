package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// settlement is where an id came to rest.
type settlement struct {
	wire.DescribeGlobalTransactionsResponseGlobalTransaction
	heuristic bool
}

// settled waits until nothing of the id is undecided or pending.
func (w *crashWorld) settled(t *testing.T) settlement {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl := kgoClient(t, w.addr, kgo.MaxVersions(wire.Versions()))
	for {
		g, err := described(ctx, cl, w.id)
		if err != nil {
			t.Fatalf("DescribeGlobalTransactions: %v, last %+v", err, g)
		}
		open := false
		for _, c := range w.clusters {
			open = open || len(openTransactions(t, c, w.id)) > 0
		}
		if g.ErrorCode == 0 && !open && (g.State == "Empty" || strings.HasPrefix(g.State, "Complete")) {
			l, found, err := listed(ctx, cl, w.id)
			if err != nil || !found {
				t.Fatalf("ListGlobalTransactions: %v, found %v", err, found)
			}
			return settlement{g, l.Heuristic}
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not settled: open %v, %+v", open, g)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// lastRecord reads the log as any consumer can and returns the last record of
// the id, once it says what Describe says: that one may be lazy. The decisions
// of one sequence must be of one kind.
func (w *crashWorld) lastRecord(t *testing.T, s settlement) *txnlog.GlobalTransaction {
	t.Helper()
	states := map[string]txnlog.State{"Empty": txnlog.StateEmpty, "CompleteCommit": txnlog.StateCompleteCommit, "CompleteAbort": txnlog.StateCompleteAbort}
	deadline := time.Now().Add(patience)
	for {
		values := logOf(t, w.addr, w.id)
		if len(values) > 0 {
			last := values[len(values)-1]
			if last.State == states[s.State] && last.Sequence == s.Sequence {
				checkOneDecision(t, values)
				return last
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the log does not come to say %s: %+v", s.State, values)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func checkOneDecision(t *testing.T, values []*txnlog.GlobalTransaction) {
	t.Helper()
	commit, abort := map[int64]bool{}, map[int64]bool{}
	for _, v := range values {
		commit[v.Sequence] = commit[v.Sequence] || v.State == txnlog.StatePrepareCommit || v.State == txnlog.StateCompleteCommit
		abort[v.Sequence] = abort[v.Sequence] || v.State == txnlog.StatePrepareAbort || v.State == txnlog.StateCompleteAbort
		if commit[v.Sequence] && abort[v.Sequence] {
			t.Errorf("transaction %d was decided both ways: %+v", v.Sequence, values)
			return
		}
	}
}

// logOf returns every record of the id that counts, in order.
func logOf(t *testing.T, addr, id string) []*txnlog.GlobalTransaction {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(txnlog.Topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.KeepControlRecords())
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListEndOffsets(ctx, txnlog.Topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
	var values []*txnlog.GlobalTransaction
	replays := map[int32]*txnlog.Replay{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset == 0 {
			return
		}
		replays[o.Partition] = &txnlog.Replay{
			Partition: o.Partition,
			Entry: func(e txnlog.Entry) error {
				if e.GlobalTransactionalID == id {
					values = append(values, e.Value)
				}
				return nil
			},
			Skipped: func(err error) { t.Errorf("a record does not count: %v", err) },
		}
	})
	for len(replays) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			replay := replays[r.Partition]
			if replay == nil {
				return
			}
			if err := replay.Feed(txnlog.RawRecord{
				Offset: r.Offset, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch, Key: r.Key, Value: r.Value,
			}); err != nil {
				t.Fatal(err)
			}
			if end, _ := ends.Lookup(txnlog.Topic, r.Partition); r.Offset >= end.Offset-1 {
				if err := replay.Finish(); err != nil {
					t.Fatal(err)
				}
				delete(replays, r.Partition)
			}
		})
	}
	return values
}
