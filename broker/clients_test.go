package broker_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// consume reads n records of a topic from its start.
func consume(t *testing.T, cl *kgo.Client, n int) []string {
	t.Helper()
	var got []string
	for len(got) < n {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatalf("after %q: %v", got, err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
	}
	slices.Sort(got)
	return got
}

func produce(t *testing.T, cl *kgo.Client, topic string, values ...string) {
	t.Helper()
	for _, v := range values {
		if err := cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestKgoProducesAndConsumes(t *testing.T) {
	n := startNode(t, nil)
	producer := n.client(t, kgo.AllowAutoTopicCreation(), kgo.RequestRetries(5))
	produce(t, producer, "t", "a", "b")
	leaderOnly := n.client(t, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	produce(t, leaderOnly, "t", "c", "d") // acks=0 has no answers at all
	consumer := n.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if got := consume(t, consumer, 4); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("got %q", got)
	}
}

func TestALargeRecordPasses(t *testing.T) {
	n := startNode(t, nil)
	cl := n.client(t)
	createTopic(t, cl, "t")
	value := strings.Repeat("x", 900_000)
	produce(t, cl, "t", value)
	consumer := n.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if got := consume(t, consumer, 1); got[0] != value {
		t.Errorf("%d bytes", len(got[0]))
	}
}

func TestTransactionsAreReadCommitted(t *testing.T) {
	n := startNode(t, nil)
	createTopic(t, n.client(t), "t")
	cl := n.client(t, kgo.TransactionalID("tid"), kgo.RequestRetries(5))
	for i, end := range []kgo.TransactionEndTry{kgo.TryCommit, kgo.TryAbort, kgo.TryCommit} {
		if err := cl.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, "t", fmt.Sprintf("txn %d", i))
		if err := cl.EndTransaction(t.Context(), end); err != nil {
			t.Fatal(err)
		}
	}
	committed := n.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if got := consume(t, committed, 2); !slices.Equal(got, []string{"txn 0", "txn 2"}) {
		t.Errorf("read committed: %q", got)
	}
}

func TestGroupsCommitAndResume(t *testing.T) {
	n := startNode(t, nil)
	cl := n.client(t)
	createTopic(t, cl, "t")
	produce(t, cl, "t", "a", "b", "c")
	group := []kgo.Opt{kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RequestRetries(5)}
	first := n.client(t, group...)
	if got := consume(t, first, 3); !slices.Equal(got, []string{"a", "b", "c"}) {
		t.Fatalf("got %q", got)
	}
	if err := first.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	first.Close()
	produce(t, cl, "t", "d")
	if got := consume(t, n.client(t, group...), 1); !slices.Equal(got, []string{"d"}) {
		t.Errorf("after the commit: %q", got)
	}
}

func TestAnIndependentClientProducesAndConsumes(t *testing.T) {
	n := startNode(t, nil)
	createTopic(t, n.client(t), "t")
	w := &kafka.Writer{Addr: kafka.TCP(n.addr), Topic: "t", RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond, Transport: &kafka.Transport{}}
	t.Cleanup(func() {
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		w.Transport.(*kafka.Transport).CloseIdleConnections()
	})
	if err := w.WriteMessages(t.Context(), kafka.Message{Value: []byte("a")}, kafka.Message{Value: []byte("b")}); err != nil {
		t.Fatal(err)
	}
	r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{n.addr}, GroupID: "g", Topic: "t", StartOffset: kafka.FirstOffset, MaxWait: 100 * time.Millisecond})
	defer func() { _ = r.Close() }()
	var got []string
	for range 2 {
		m, err := r.FetchMessage(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(m.Value))
		if err := r.CommitMessages(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %q", got)
	}
	offsets, err := kadm.NewClient(n.client(t)).FetchOffsets(t.Context(), "g")
	if err != nil {
		t.Fatal(err)
	}
	total := int64(0)
	offsets.Each(func(o kadm.OffsetResponse) { total += o.At })
	if total != 2 {
		t.Errorf("committed %d records, want 2", total)
	}
}

// onDisk is a configuration with a data directory.
func onDisk(t *testing.T, dir string, overrides ...string) *config.Config {
	t.Helper()
	cfg, err := config.Load("", append([]string{"log.dirs=" + dir}, overrides...))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestARestartFindsEverything(t *testing.T) {
	dir := t.TempDir()
	n := startConfigured(t, onDisk(t, dir))
	cl := n.client(t)
	createTopic(t, cl, "t")
	produce(t, cl, "t", "a", "b")
	id := initOld(t, n.dial(t), 5, func(*kmsg.InitProducerIDRequest) {})
	commit := kadm.Offsets{}
	commit.AddOffset("t", 0, 17, -1)
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", commit); err != nil {
		t.Fatal(err)
	}
	clusterID := n.embedded.ClusterID()
	cl.Close()
	n.stop()

	n = startConfigured(t, onDisk(t, dir))
	cl = n.client(t)
	if got := n.embedded.ClusterID(); got != clusterID || len(got) != 22 {
		t.Errorf("cluster id %q, was %q", got, clusterID)
	}
	meta, err := kadm.NewClient(cl).Metadata(t.Context())
	if err != nil || len(meta.Topics["t"].Partitions) != 2 || meta.Cluster != clusterID {
		t.Fatalf("%+v %v", meta, err)
	}
	consumer := n.client(t, kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if got := consume(t, consumer, 2); !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("records %q", got)
	}
	offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), "g")
	if o, ok := offsets.Lookup("t", 0); err != nil || !ok || o.At != 17 {
		t.Errorf("offset %+v %v", o, err)
	}
	again := initOld(t, n.dial(t), 5, func(*kmsg.InitProducerIDRequest) {})
	if again.code != 0 || again.id != id.id || again.epoch != id.epoch+1 {
		t.Errorf("producer %+v after %+v", again, id)
	}
}

func TestADataDirectoryKeepsItsClusterID(t *testing.T) {
	dir := t.TempDir()
	startConfigured(t, onDisk(t, dir, "cluster.id=us")).stop()
	_, err := broker.OpenEmbedded(onDisk(t, dir, "cluster.id=eu"), broker.Node{}, nil, testLog(t))
	if err == nil || !strings.Contains(err.Error(), `belongs to cluster "us"`) {
		t.Errorf("another cluster's directory: %v", err)
	}
	for name, damage := range map[string]string{"empty": "", "newer": "version=2\ncluster.id=us\n", "half": "version=1\n"} {
		if err := os.WriteFile(filepath.Join(dir, "meta.properties"), []byte(damage), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := broker.OpenEmbedded(onDisk(t, dir), broker.Node{}, nil, testLog(t)); err == nil || !strings.Contains(err.Error(), "meta.properties") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "meta.properties")); err != nil {
		t.Fatal(err)
	}
	if _, err := broker.OpenEmbedded(onDisk(t, dir), broker.Node{}, nil, testLog(t)); err == nil || !strings.Contains(err.Error(), "no meta.properties") {
		t.Errorf("data of nobody: %v", err)
	}
}

func TestRepairRunsBeforeTheDataIsRead(t *testing.T) {
	dir, failure := t.TempDir(), errors.New("beyond repair")
	var repaired string
	_, err := broker.OpenEmbedded(onDisk(t, dir), broker.Node{}, func(d string) error { repaired = d; return failure }, testLog(t))
	if !errors.Is(err, failure) || repaired != dir {
		t.Errorf("%q %v", repaired, err)
	}
	if _, err := os.Stat(filepath.Join(dir, "meta.json")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("kfake has started on it: %v", err)
	}
}

func TestOneProcessOnlyHoldsADirectory(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "made", "here")
	release, err := broker.LockDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = broker.LockDir(dir); !errors.Is(err, broker.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) {
		t.Errorf("a second lock: %v", err)
	}
	if err = release(); err != nil {
		t.Fatal(err)
	}
	release, err = broker.LockDir(dir)
	if err != nil {
		t.Fatalf("after the release: %v", err)
	}
	if err = release(); err != nil {
		t.Error(err)
	}
}
