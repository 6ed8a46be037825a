package readback

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// interleave writes to one partition with two transactional producers and one
// plain one, commits and aborts at random, and returns the values that must be
// visible, by the offset they were written at.
func interleave(ctx context.Context, t *testing.T, addr, topic string, steps int, seed uint64) map[int64]string {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	committed := map[int64]string{}
	type producer struct {
		cl   *kgo.Client
		open map[int64]string
	}
	var ps []*producer
	for i := range 3 {
		opts := []kgo.Opt{kgo.SeedBrokers(addr), kgo.RecordPartitioner(kgo.ManualPartitioner())}
		if i < 2 {
			opts = append(opts, kgo.TransactionalID(fmt.Sprintf("%s-%d", topic, i)))
		}
		cl, err := kgo.NewClient(opts...)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(cl.Close)
		ps = append(ps, &producer{cl: cl})
	}
	for n := range steps {
		i := rng.IntN(3)
		p := ps[i]
		if i < 2 && p.open == nil {
			if err := p.cl.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			p.open = map[int64]string{}
		}
		if i < 2 && len(p.open) > 0 && rng.IntN(4) == 0 {
			commit := rng.IntN(2) == 0
			if err := p.cl.EndTransaction(ctx, kgo.TransactionEndTry(commit)); err != nil {
				t.Fatal(err)
			}
			if commit {
				for o, v := range p.open {
					committed[o] = v
				}
			}
			p.open = nil
			continue
		}
		r := &kgo.Record{Topic: topic, Value: []byte("v" + strconv.Itoa(n))}
		if err := p.cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			p.open[r.Offset] = string(r.Value)
		} else {
			committed[r.Offset] = string(r.Value)
		}
	}
	for _, p := range ps[:2] {
		if p.open != nil {
			if err := p.cl.EndTransaction(ctx, kgo.TryAbort); err != nil {
				t.Fatal(err)
			}
		}
	}
	return committed
}

// checkEveryOffset reads from every offset, control records included, with
// small and large limits.
func checkEveryOffset(ctx context.Context, t *testing.T, addr, topic string, want map[int64]string) {
	t.Helper()
	r := NewReader(addr)
	defer r.Close()
	whole, err := r.settled(ctx, topic, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, maxBytes := range []int32{1, 1 << 20} {
		r.MaxBytes = maxBytes
		for from := int64(0); from < whole.HighWatermark; from++ {
			got, err := r.Partition(ctx, topic, 0, from)
			if err != nil {
				t.Fatal(err)
			}
			var expect []string
			for o := from; o < whole.HighWatermark; o++ {
				if v, ok := want[o]; ok {
					expect = append(expect, v)
				}
			}
			var values []string
			for _, rec := range got.Records {
				values = append(values, rec.Value)
			}
			if !slices.Equal(values, expect) {
				t.Fatalf("from %d with %d bytes: read %v, want %v", from, maxBytes, values, expect)
			}
		}
	}
}

// Case 37: the oracle itself, at every offset.
func TestReadsExactlyTheCommittedRecordsFromEveryOffset(t *testing.T) {
	const seed = 37
	t.Logf("seed %d", seed)
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "mixed"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := interleave(t.Context(), t, c.ListenAddrs()[0], "mixed", 120, seed)
	checkEveryOffset(t.Context(), t, c.ListenAddrs()[0], "mixed", want)
}

// A topic is created before every broker knows of it.
func TestWaitsForATopicThatIsNotKnownYet(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "new"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	asked := 0
	c.ControlKey(3, func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		meta := req.(*kmsg.MetadataRequest)
		if asked++; asked > 4 || len(meta.Topics) != 1 {
			return nil, nil, false
		}
		resp := req.ResponseKind().(*kmsg.MetadataResponse)
		topic := kmsg.NewMetadataResponseTopic()
		topic.Topic, topic.ErrorCode = meta.Topics[0].Topic, kerr.UnknownTopicOrPartition.Code
		resp.Topics = append(resp.Topics, topic)
		return resp, nil, true
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r := NewReader(c.ListenAddrs()[0])
	defer r.Close()
	if records, err := r.Topic(ctx, "new"); err != nil || len(records) != 0 {
		t.Errorf("%v, %v, want no records and no error", records, err)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := r.Topic(short, "never"); err == nil {
		t.Error("a topic that is not there has been read")
	}
}

func TestSaysThatATransactionIsOpen(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "open"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	addr := c.ListenAddrs()[0]
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("open"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err = cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err = cl.ProduceSync(t.Context(), &kgo.Record{Topic: "open", Value: []byte("x")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := NewReader(addr)
	defer r.Close()
	p, err := r.Partition(t.Context(), "open", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if !p.Open() || len(p.Records) != 0 {
		t.Errorf("open transaction: open=%v with %d visible records, want true and 0", p.Open(), len(p.Records))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := r.Topic(ctx, "open"); err == nil {
		t.Error("Topic must not answer while a transaction is open")
	}
}
