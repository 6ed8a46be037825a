package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
)

// patience is for a machine that does many other things.
const patience = 3 * time.Minute

// minibroker is the binary, built once, and only for tests that need one: a
// fuzzer's workers are processes of this package too.
var minibroker = sync.OnceValues(func() (string, error) {
	path := filepath.Join(built, "minibroker")
	out, err := exec.Command("go", "build", "-o", path, "github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
})

// built is the directory of the binary.
var built string

func TestMain(m *testing.M) { os.Exit(inDirectory(m)) }

func inDirectory(m *testing.M) int {
	var err error
	if built, err = os.MkdirTemp("", "mirror-test-"); err != nil {
		panic(err)
	}
	defer func() { _ = os.RemoveAll(built) }()
	return m.Run()
}

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

func freeAddr(t *testing.T) string {
	t.Helper()
	addr, err := node.FreeAddr(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return addr
}

// startNode runs a mini-broker until the test's end. A property that begins with
// ! is the protocol of its listener.
func startNode(t *testing.T, name string, properties ...string) *node.Node {
	t.Helper()
	addr, dir, protocol := freeAddr(t), t.TempDir(), "PLAINTEXT"
	properties = slices.DeleteFunc(properties, func(line string) bool {
		p, found := strings.CutPrefix(line, "!")
		if found {
			protocol = p
		}
		return found
	})
	binary, err := minibroker()
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.New(binary, dir, name, addr, append([]string{
		"listeners=" + protocol + "://" + addr, "log.dirs=" + filepath.Join(dir, "data"), "transaction.max.timeout.ms=2147483647",
		"log.flush.interval.messages=9223372036854775807", "log.level=warn",
	}, properties...))
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil { // the node ends with it
		t.Fatal(err)
	}
	t.Cleanup(func() {
		n.Stop()
		if log, err := os.ReadFile(n.Log()); t.Failed() && err == nil && len(log) > 0 {
			t.Logf("%s:\n%s", name, log[max(0, len(log)-3000):])
		}
	})
	return n
}

// rig is two clusters and a coordinator.
type rig struct {
	us, eu, gtc string // addresses
	topics      string // a prefix of the test's own
	admins      map[string]*kadm.Client
}

// newRig opens the test's own clients.
func newRig(t *testing.T, us, eu, gtc, topics string) rig {
	t.Helper()
	r := rig{us: us, eu: eu, gtc: gtc, topics: topics, admins: map[string]*kadm.Client{}}
	for _, alias := range []string{"us", "eu"} {
		r.admins[alias] = kadm.NewClient(newClient(t, r.addr(alias)))
	}
	return r
}

// embedded lets the test run beside others: it waits more than it works.
func embedded(t *testing.T) rig {
	t.Helper()
	t.Parallel()
	us := startNode(t, "us", "process.roles=broker", "cluster.id=us-id")
	eu := startNode(t, "eu", "process.roles=broker", "cluster.id=eu-id")
	return newRig(t, us.Addr, eu.Addr, coordinator(t, us.Addr, eu.Addr), "t")
}

func coordinator(t *testing.T, us, eu string) string {
	t.Helper()
	return startNode(t, "gtc", "process.roles=broker,gtc", "gtc.clusters=us,eu",
		"gtc.cluster.us.bootstrap.servers="+us, "gtc.cluster.eu.bootstrap.servers="+eu,
		"global.transaction.scan.interval.ms=500").Addr
}

func (r rig) addr(alias string) string { return map[string]string{"us": r.us, "eu": r.eu}[alias] }

func patterns(t *testing.T, p ...string) mirror.Patterns {
	t.Helper()
	c, err := mirror.CompilePatterns(p...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// flow is one with short times.
func (r rig) flow(t *testing.T, source, target string) mirror.Flow {
	return mirror.Flow{
		Source: source, Target: target,
		Topics:                mirror.Filter{Include: patterns(t, ".*"+r.topics+".*")},
		Groups:                mirror.Filter{Include: patterns(t, ".*"), Exclude: patterns(t, "console-consumer-.*")},
		RefreshTopicsInterval: 500 * time.Millisecond, SyncTopicConfigs: true, SyncGroupOffsets: true,
		SyncGroupOffsetsInterval: 300 * time.Millisecond, TransactionTimeout: 20 * time.Second, BatchLinger: 5 * time.Millisecond,
	}
}

func (r rig) options(policy mirror.Policy, flows ...mirror.Flow) mirror.Options {
	return mirror.Options{
		Instance: "one", Coordinator: []string{r.gtc}, Policy: policy, Flows: flows, Clock: mirror.SystemClock(), Logger: zerolog.Nop(),
		Clusters: map[string]mirror.Cluster{
			"us": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(r.us)}},
			"eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(r.eu)}},
		},
	}
}

// running is a mirror in this process.
type running struct {
	cancel context.CancelFunc
	err    chan error
	reg    *prometheus.Registry
}

func run(t *testing.T, o mirror.Options) *running {
	t.Helper()
	reg := prometheus.NewRegistry()
	o.Registerer = reg
	if os.Getenv("MIRROR_LOG") != "" {
		o.Logger = zerolog.New(zerolog.ConsoleWriter{Out: os.Stderr, TimeFormat: "05.000"}).With().Timestamp().Logger()
	} else {
		o.Logger = zerolog.New(zerolog.NewTestWriter(t)).With().Timestamp().Logger()
	}
	m, err := mirror.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{cancel, make(chan error, 1), reg}
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.err <- m.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return r
}

// stop ends the mirror and fails the test unless it ends well.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.err; err != nil {
		t.Fatalf("the mirror ended with %v", err)
	}
}

func newClient(t *testing.T, addr string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(addr), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.CloseAllowingRebalance)
	return cl
}

func (r rig) create(t *testing.T, alias string, partitions int32, configs map[string]string, topics ...string) {
	t.Helper()
	c := map[string]*string{}
	for k, v := range configs {
		c[k] = &v
	}
	resp, err := r.admins[alias].CreateTopics(within(t), partitions, 1, c, topics...)
	if err == nil {
		err = resp.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// write produces values to a partition in one transaction, which commits or
// aborts.
func (r rig) write(t *testing.T, alias, topic string, partition int32, commit bool, values ...string) {
	t.Helper()
	cl := newClient(t, r.addr(alias), kgo.TransactionalID("app-"+alias), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	defer cl.Close()
	if err := cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		rec := &kgo.Record{
			Topic: topic, Partition: partition, Key: []byte("k" + v), Value: []byte(v),
			Headers:   []kgo.RecordHeader{{Key: "h", Value: []byte("of " + v)}, {Key: "null"}},
			Timestamp: time.Now().Add(-time.Hour), // and not so old that retention takes it
		}
		if err := cl.ProduceSync(within(t), rec).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err := cl.EndTransaction(within(t), kgo.TransactionEndTry(commit)); err != nil {
		t.Fatal(err)
	}
}

// values are what a read_committed reader sees of a topic, by partition.
func (r rig) values(t *testing.T, alias, topic string) map[int][]string {
	t.Helper()
	values, err := r.tryValues(t, alias, topic)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func (r rig) tryValues(t *testing.T, alias, topic string) (map[int][]string, error) {
	t.Helper()
	reader := readback.NewReader(r.addr(alias))
	defer reader.Close()
	records, err := reader.Topic(within(t), topic)
	values := map[int][]string{}
	for _, rec := range records {
		values[rec.Partition] = append(values[rec.Partition], rec.Value)
	}
	return values, err
}

// eventually waits until check returns nothing.
func eventually(t *testing.T, what string, check func() string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		problem := check()
		if problem == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %s", what, problem)
		}
	}
}

func (r rig) hasTopic(t *testing.T, alias, topic string) bool {
	t.Helper()
	d, err := r.admins[alias].ListTopics(within(t), topic)
	return err == nil && d.Has(topic) && len(d[topic].Partitions) > 0
}

// awaitValues waits until a topic holds what it should, and fails at once when
// it holds more.
func (r rig) awaitValues(t *testing.T, alias, topic string, want map[int][]string) {
	t.Helper()
	eventually(t, topic+" on "+alias, func() string {
		if !r.hasTopic(t, alias, topic) {
			return "no such topic"
		}
		got, err := r.tryValues(t, alias, topic)
		if err != nil {
			return err.Error()
		}
		for p, vs := range got {
			if len(vs) > len(want[p]) || strings.Join(vs, ",") != strings.Join(want[p][:len(vs)], ",") {
				t.Fatalf("%s-%d on %s is %q, want %q", topic, p, alias, vs, want[p])
			}
		}
		for p, vs := range want {
			if len(got[p]) < len(vs) {
				return fmt.Sprintf("partition %d has %d of %d records", p, len(got[p]), len(vs))
			}
		}
		return ""
	})
}

// groupOffset is what a group has committed; -1 nothing.
func (r rig) groupOffset(t *testing.T, alias, group, topic string, partition int32) int64 {
	t.Helper()
	o, err := r.admins[alias].FetchOffsets(within(t), group)
	if errors.Is(err, kerr.GroupIDNotFound) || kerr.IsRetriable(err) {
		return -1
	}
	if err != nil {
		t.Fatal(err)
	}
	if at, ok := o.Lookup(topic, partition); ok {
		return at.At
	}
	return -1
}
