//go:build kafka

package topiclog

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

// flip is one bit of one byte in the header of one batch.
type flip struct {
	batch, at int
	bit       byte
}

// Each byte in the header of each batch is changed in two ways on the disk of a
// broker that is down, each in a partition of its own. Whatever the broker makes of
// it, the partition is refused, or nothing is missing. There are two segments, since the first batch of one is found, or
// not, by its own header.
func TestAChangedByteOfABatchHidesNothingOnKafka(t *testing.T) {
	c := cluster.Up(t, "txnlog-damage", cluster.V44)
	var flips []flip
	for _, batch := range []int{0, 2, 4, 5} { // a claim may be gone, compacted: 5 is there all the same
		for at := range batchOverhead {
			flips = append(flips, flip{batch, at, 0x01}, flip{batch, at, 0x80})
		}
	}
	s := kafkaStore(t, c)
	s.configure = func(o *Options) { o.Partitions = int32(len(flips)) }
	l := s.open(t)
	each(t, len(flips), func(ctx context.Context, i int) error { return writeLog(ctx, l, int32(i), 0, 3) })
	alter(t, s, map[string]string{"segment.ms": "1"})
	each(t, len(flips), func(ctx context.Context, i int) error { return writeLog(ctx, l, int32(i), 3, 5) })
	dir := dataDir(t, s)
	if err := c.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i, f := range flips {
		change(t, filepath.Join(dir, fmt.Sprintf("%s-%d", s.topic, i)), f)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = s.open(t)
	each(t, len(flips), func(ctx context.Context, i int) error {
		got := make(map[string]int64)
		w, err := l.Claim(ctx, int32(i), func(e txnlog.Entry) error {
			got[e.GlobalTransactionalID] = e.Value.Sequence
			return nil
		})
		if txnlog.Refuses(err) || errors.Is(err, kerr.UnknownServerError) { // the broker itself fails at the append of the claim
			return nil
		}
		// Another base offset changes nothing where compaction has left room for it.
		harmless := flips[i].at < lengthAt || flips[i].at >= leaderEpochAt && flips[i].at < magicAt
		if err != nil || !harmless {
			t.Errorf("%+v: got %v, want the partition refused", flips[i], err)
			return nil
		}
		for n := range 5 {
			if id := fmt.Sprint("id-", n); got[id] != int64(n+1) {
				t.Errorf("%+v: %s is not there: %v", flips[i], id, got)
			}
		}
		return w.Close(ctx)
	})
}

const leaderEpochAt = 12

// writeLog appends records first to last-1, each in a batch of its own.
func writeLog(ctx context.Context, l *Log, partition int32, first, last int) error {
	w, err := l.Claim(ctx, partition, func(txnlog.Entry) error { return nil })
	if err != nil {
		return err
	}
	for n := first; n < last; n++ {
		done := make(chan error, 1)
		w.Append([]txnlog.Record{logtest.Put(fmt.Sprint("id-", n), int64(n+1))}, func(err error) { done <- err })
		if err := <-done; err != nil {
			return err
		}
	}
	return w.Close(ctx)
}

// change flips the bit of the batch of the record, counted over the segments.
func change(t *testing.T, dir string, f flip) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.log"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", dir, files, err)
	}
	seen := 0
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for at := 0; at < len(raw); {
			b, err := parseBatch(raw[at:])
			if err != nil {
				t.Fatalf("%s at %d: %v", file, at, err)
			}
			if seen == f.batch {
				raw[at+f.at] ^= f.bit
				if err := os.WriteFile(file, raw, 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			seen++
			at += b.size
		}
	}
	t.Fatalf("%s has %d batches", dir, seen)
}

func dataDir(t *testing.T, s *store) string {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	dirs, err := kadm.NewClient(client).DescribeAllLogDirs(t.Context(), kadm.TopicsSet{s.topic: {0: {}}})
	if err != nil {
		t.Fatal(err)
	}
	dir := ""
	dirs.Each(func(d kadm.DescribedLogDir) { dir = d.Dir })
	return dir
}

func each(t *testing.T, n int, do func(context.Context, int) error) {
	t.Helper()
	g, ctx := errgroup.WithContext(t.Context())
	g.SetLimit(16)
	for i := range n {
		g.Go(func() error {
			if err := do(ctx, i); err != nil {
				return fmt.Errorf("%d: %w", i, err)
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
}
