package service_test

import (
	"context"
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/topiclog"
)

// idle is the record of an id that committed on two clusters and rests. Cluster
// ids have the length of real ones.
func idle(i int) txnlog.Record {
	const us, eu = "dFUHAtqPGVkVRwdlpqRL9A", "elG_K-SwwHM9T0_FL2Jgzg"
	participant := func(cluster string) txnlog.Participant {
		return txnlog.Participant{
			ClusterID: cluster, ProducerID: int64(1000 + i), ProducerEpoch: 6, EndTxnVersion: 5, State: txnlog.ParticipantComplete,
			NextProducerID: int64(1000 + i), NextProducerEpoch: 7, AuditTopic: "orders", AuditPartition: 3, StartMillis: 1_795_000_000_000,
		}
	}
	return txnlog.Record{
		GlobalTransactionalID: fmt.Sprintf("orders-mirror-%d", i),
		Value: &txnlog.GlobalTransaction{
			State: txnlog.StateCompleteCommit, GlobalEpoch: 3, Sequence: 1_795_000_000_000, TimeoutMillis: 60_000,
			InstanceID: txnlog.UUID{1}, PreviousInstanceID: txnlog.UUID{2}, ClusterIDs: []string{us, eu},
			Participants:  []txnlog.Participant{participant(us), participant(eu)},
			DecidedMillis: 1_795_000_000_000, UpdatedMillis: 1_795_000_000_000,
		},
	}
}

// streamed is a log that makes its records up while it is read, so that it
// holds no memory of its own. They are encoded and decoded on the way.
type streamed struct {
	n      int
	record func(i int) txnlog.Record
}

func (*streamed) Partitions() int32 { return 1 }
func (*streamed) Close()            {}

func (l *streamed) Claim(_ context.Context, _ int32, replay func(txnlog.Entry) error) (txnlog.Writer, error) {
	r := txnlog.Replay{Entry: replay, Skipped: func(error) {}}
	for i := range l.n {
		rec := l.record(i)
		key, err := txnlog.AppendKey(nil, rec.GlobalTransactionalID)
		if err != nil {
			return nil, err
		}
		raw := txnlog.RawRecord{Offset: int64(i), Key: key, Value: txnlog.AppendValue(nil, rec.Value)}
		if err := r.Feed(raw); err != nil {
			return nil, err
		}
	}
	return mute{}, nil
}

// mute is a writer that has nothing to write.
type mute struct{}

func (mute) Append(_ []txnlog.Record, done func(error)) { done(nil) }
func (mute) Close(context.Context) error                { return nil }

// load owns every partition and waits until it is served.
func load(tb testing.TB, log txnlog.Log) *service.Service {
	tb.Helper()
	s, err := service.New(service.Options{
		Log: log, Participants: newClusters(), Config: gtc.DefaultConfig(), Logger: zerolog.Nop(), Clock: service.SystemClock(),
		ScanInterval: time.Hour,
	})
	if err != nil {
		tb.Fatal(err)
	}
	s.OwnAll()
	eventually(tb, func() error {
		if active, owned := s.Loaded(); active != owned {
			return fmt.Errorf("%d of %d partitions are active", active, owned)
		}
		return nil
	})
	return s
}

func stop(tb testing.TB, s *service.Service) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		tb.Error(err)
	}
}

func heap() uint64 {
	runtime.GC()
	runtime.GC() // what the first one had to finalise
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// memoryPerID loads n idle ids of two participants each.
func memoryPerID(tb testing.TB, n int) uint64 {
	tb.Helper()
	before := heap()
	s := load(tb, &streamed{n: n, record: idle})
	used := heap() - before
	stop(tb, s)
	return used / uint64(n)
}

func TestIdleIDTakesAtMostAKibibyte(t *testing.T) {
	if got := memoryPerID(t, 100_000); got > 1024 {
		t.Errorf("%d bytes for each idle id, want 1024 at most", got)
	}
}

func BenchmarkMemory(b *testing.B) {
	for b.Loop() {
		b.ReportMetric(float64(memoryPerID(b, 100_000)), "bytes/id")
	}
}

// replayed is a log on a topic, with n records of ids that come again and again.
func replayed(tb testing.TB, n int) txnlog.Log {
	tb.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(c.Close)
	l, err := topiclog.Open(context.Background(), topiclog.Options{
		ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, Partitions: 1, ReplicationFactor: 1, MinInsyncReplicas: 1,
		Create: true, Logger: zerolog.Nop(), Clock: wall{},
	})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(l.Close)
	w, err := l.Claim(context.Background(), 0, func(txnlog.Entry) error { return nil })
	if err != nil {
		tb.Fatal(err)
	}
	const group = 1000
	written := make(chan error, n/group)
	for i := 0; i < n; i += group {
		records := make([]txnlog.Record, group)
		for k := range records {
			records[k] = idle((i + k) % 10_000)
		}
		w.Append(records, func(err error) { written <- err })
	}
	for range n / group {
		if err := <-written; err != nil {
			tb.Fatal(err)
		}
	}
	if err := w.Close(context.Background()); err != nil {
		tb.Fatal(err)
	}
	return l
}

type wall struct{}

func (wall) Now() time.Time                         { return time.Now() }
func (wall) After(d time.Duration) <-chan time.Time { return time.After(d) }

// BenchmarkReplay is the time from owning a partition to serving it, claim,
// reading, decoding and the state machine together.
func BenchmarkReplay(b *testing.B) {
	const n = 500_000
	l := replayed(b, n)
	for b.Loop() {
		stop(b, load(b, l))
	}
	b.ReportMetric(float64(n*b.N)/b.Elapsed().Seconds(), "records/s")
}

// The limit is of the processor's time, which a busy machine takes no more of,
// and generous: the race detector.
func TestReplayIsFast(t *testing.T) {
	const n = 50_000
	l := replayed(t, n)
	began := processorTime(t)
	stop(t, load(t, l))
	if took := processorTime(t) - began; took > 10*time.Second {
		t.Errorf("%d records took %v, want 5,000 a second at least", n, took)
	}
}

// processorTime is what this process has used so far.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		t.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
