package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	topic    = "t"
	globalID = "payments-7"
)

// participantCluster is a cluster that takes part, real or not.
type participantCluster struct {
	name, addr, id string
	transactionV1  bool
	fake           *kfake.Cluster
	endTxns        *atomic.Int64 // EndTxn frames that the cluster got, from anybody
	inits          *atomic.Int64 // InitProducerId
}

// newKfake starts a participant that has opted in by its timeout.
func newKfake(t *testing.T, name string, more ...kfake.Opt) participantCluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.NumBrokers(1),
		kfake.ClusterID("cluster-" + name),
		kfake.SeedTopics(1, topic),
		kfake.BrokerConfigs(map[string]string{"transaction.max.timeout.ms": "2147483647"}),
	}, more...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	p := participantCluster{
		name: name, addr: c.ListenAddrs()[0], id: "cluster-" + name, fake: c,
		endTxns: new(atomic.Int64), inits: new(atomic.Int64),
	}
	count(c, keyEndTxn, p.endTxns)
	count(c, keyInitProducerID, p.inits)
	return p
}

func count(c *kfake.Cluster, key int16, n *atomic.Int64) {
	c.ControlKey(key, func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		n.Add(1)
		return nil, nil, false
	})
}

// env is a coordinator with its participants.
type env struct {
	*fakeCoordinator
	us, eu participantCluster
}

func newEnv(t *testing.T) env {
	t.Helper()
	e := env{us: newKfake(t, "us"), eu: newKfake(t, "eu")}
	e.fakeCoordinator = newFakeCoordinator(t, e.us, e.eu)
	return e
}

func (e env) options() Options {
	return Options{
		GlobalTransactionalID: globalID,
		Coordinator:           []string{e.addr},
		Clusters: map[string]Cluster{
			"us": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(e.us.addr)}},
			"eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(e.eu.addr)}},
		},
		BackoffMin: time.Millisecond,
		BackoffMax: 20 * time.Millisecond,
	}
}

func (e env) open(t *testing.T) *Client {
	t.Helper()
	return open(t, e.options())
}

func open(t *testing.T, o Options) *Client {
	t.Helper()
	cl, err := Open(deadline(t, patience), o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = cl.Close(ctx) // the test has its own look at Close
	})
	return cl
}

// patience bounds what takes a second on an idle machine.
const patience = 2 * time.Minute

// expiring is a context whose deadline passes when the test says so.
type expiring struct {
	context.Context
	passed chan struct{}
}

func (e expiring) Done() <-chan struct{} { return e.passed }

func (e expiring) Err() error {
	select {
	case <-e.passed:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// expiresWhen is a context whose deadline passes once what is true: a call has
// come so far then, however slow the machine is.
func expiresWhen(t *testing.T, what func() bool) context.Context {
	t.Helper()
	e := expiring{context.WithoutCancel(t.Context()), make(chan struct{})}
	go func() {
		defer close(e.passed)
		for end := time.Now().Add(patience); !what() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}()
	return e
}

func deadline(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func begin(t *testing.T, cl *Client) *Txn {
	t.Helper()
	txn, err := cl.Begin(deadline(t, patience))
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	return txn
}

func produce(t *testing.T, txn *Txn, cluster string, values ...string) {
	t.Helper()
	for _, v := range values {
		txn.Produce(t.Context(), cluster, &kgo.Record{Topic: topic, Value: []byte(v)}, nil)
	}
}

func commit(t *testing.T, txn *Txn) Result {
	t.Helper()
	r, err := txn.Commit(deadline(t, patience))
	if err != nil {
		t.Fatalf("Commit: %v", err)
	}
	if r.Outcome != OutcomeCommitted || !r.Complete() {
		t.Fatalf("Commit = %+v, want committed and complete", r)
	}
	return r
}

// visible returns what a fresh read_committed consumer reads from the start of
// the topic up to a marker that is written now, outside of any transaction. It
// fails when an open transaction holds the reader back.
func visible(t *testing.T, addr string) []string {
	t.Helper()
	return visibleIn(t, addr, topic)
}

func visibleIn(t *testing.T, addr, topic string) []string {
	t.Helper()
	ctx := deadline(t, patience)
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics(topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.DefaultProduceTopic(topic),
		kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	marker := fmt.Sprintf("marker %d", time.Now().UnixNano())
	if err := cl.ProduceSync(ctx, kgo.StringRecord(marker)).FirstErr(); err != nil {
		t.Fatal(err)
	}
	var values []string
	for {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read until the marker: %v", err)
		}
		for _, r := range fetches.Records() {
			v := string(r.Value)
			if v == marker {
				return values
			}
			if len(v) < 6 || v[:6] != "marker" {
				values = append(values, v)
			}
		}
	}
}

// readAll is what is visible in all partitions of a topic on which nothing is
// open.
func readAll(t *testing.T, addr, topic string) (values []string) {
	t.Helper()
	ctx := deadline(t, patience)
	cl := plain(t, addr, kgo.ConsumeTopics(topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.KeepControlRecords()) // or the position would stay before a marker at the end
	adm := kadm.NewClient(cl)
	all, err := adm.ListEndOffsets(ctx, topic)
	if err = errors.Join(err, all.Error()); err != nil {
		t.Fatal(err)
	}
	for left := all[topic]; ; {
		maps.DeleteFunc(left, func(_ int32, end kadm.ListedOffset) bool { return end.Offset == 0 })
		if len(left) == 0 {
			return values
		}
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatalf("read back: %v; left %v", err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				values = append(values, string(r.Value))
			}
			if r.Offset >= left[r.Partition].Offset-1 {
				delete(left, r.Partition)
			}
		})
	}
}

// readIndependently reads n records with another implementation of the
// consumer. kafka-go stops at the last stable offset, so that it proves that
// records are committed; but it gives control records to the application, and
// does not drop aborted ones, so that it cannot prove that nothing is there.
func readIndependently(t *testing.T, addr, topic string, n int) []string {
	t.Helper()
	r := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{addr}, Topic: topic, Partition: 0,
		IsolationLevel: kafka.ReadCommitted, MaxWait: 100 * time.Millisecond,
	})
	defer func() { _ = r.Close() }()
	var values []string
	ctx := deadline(t, patience)
	for len(values) < n {
		m, err := r.ReadMessage(ctx)
		if err != nil {
			t.Fatalf("kafka-go has read %q and then: %v", values, err)
		}
		// A control record's key: version 0, type 0 abort or 1 commit.
		if k := string(m.Key); k != "\x00\x00\x00\x00" && k != "\x00\x00\x00\x01" {
			values = append(values, string(m.Value))
		}
	}
	return values
}

func splitAddr(t *testing.T, addr string) (string, int32) {
	t.Helper()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return host, int32(n)
}
