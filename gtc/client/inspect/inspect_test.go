package inspect_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client/inspect"
)

// What is read of two transactions and one that is open, three records each in
// one batch, as the log's beginning moves into the first batch and beyond.
func TestWhatAPartitionShows(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "t"))
	must(t, err)
	defer c.Close()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.ListenAddrs()...), kgo.TransactionalID("id"), kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(50*time.Millisecond))
	must(t, err)
	defer cl.Close()
	var epochs []int16
	var id int64
	for _, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort} {
		must(t, cl.BeginTransaction())
		id, epochs = write(ctx, t, cl, epochs)
		must(t, cl.EndTransaction(ctx, end))
	}
	must(t, cl.BeginTransaction())
	_, epochs = write(ctx, t, cl, epochs)

	open, err := inspect.Ongoing(ctx, cl, "t", 0, id)
	if want := (inspect.OpenTransaction{From: 8, Epoch: epochs[2]}); err != nil || open != want {
		t.Errorf("open: %+v, %v, want %+v", open, err, want)
	}
	if open, err = inspect.Ongoing(ctx, cl, "t", 0, id+1); err != nil || open.From != -1 {
		t.Errorf("open of another producer: %+v, %v", open, err)
	}
	type shown struct {
		epoch                int16
		records, first, last int64
		sequence             int32
		end                  inspect.End
		marker               int64
	}
	whole := []shown{
		{epochs[0], 3, 0, 2, 0, inspect.Committed, 3}, {epochs[1], 3, 4, 6, 0, inspect.Aborted, 7}, {epochs[2], 3, 8, 10, 0, inspect.Open, -1},
	}
	for at, first := range map[int64]shown{
		0: whole[0],
		2: {epochs[0], 1, 2, 2, 2, inspect.Committed, 3}, // inside the batch
		3: {-1, 0, -1, -1, -1, inspect.Committed, 3},
	} {
		p, failed := inspect.Read(ctx, cl, inspect.Question{Topic: "t", ProducerID: id, From: at})
		must(t, failed)
		var got []shown
		for _, s := range p.Spans {
			got = append(got, shown{s.Epoch, s.Records, s.First, s.Last, s.Sequence, s.End, s.MarkerOffset})
		}
		if len(got) != 3 || got[0] != first || got[1] != whole[1] || got[2] != whole[2] || p.LogEnd != 11 {
			t.Errorf("from %d: %+v, log end %d", at, got, p.LogEnd)
		}
	}
	_, err = kadm.NewClient(cl).DeleteRecords(ctx, kadm.Offsets{"t": {0: {Topic: "t", At: 2}}})
	must(t, err)
	p, err := inspect.Read(ctx, cl, inspect.Question{Topic: "t", ProducerID: id, Enough: func(s inspect.Span) bool { return s.End == inspect.Committed }})
	if err != nil || p.LogStart != 2 || p.From != 2 || len(p.Spans) != 1 || p.Spans[0].Records != 1 || p.Spans[0].MarkerMillis <= 0 || p.Spans[0].MarkerCoordinator < 0 {
		t.Errorf("after DeleteRecords: %+v, %v", p, err)
	}
	if at, err := inspect.OffsetAt(ctx, cl, "t", 0, time.Now().Add(time.Hour).UnixMilli()); err != nil || at != 11 {
		t.Errorf("an hour ahead is offset %d, %v", at, err)
	}
	if _, err := inspect.Read(ctx, cl, inspect.Question{Topic: "gone", ProducerID: id}); !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Errorf("a topic that is not there: %v", err)
	}
}

// write writes three records in one batch.
func write(ctx context.Context, t *testing.T, cl *kgo.Client, epochs []int16) (int64, []int16) {
	t.Helper()
	got := cl.ProduceSync(ctx, kgo.StringRecord("a"), kgo.StringRecord("b"), kgo.StringRecord("c"))
	must(t, got.FirstErr())
	r := got[0].Record
	return r.ProducerID, append(epochs, r.ProducerEpoch)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
