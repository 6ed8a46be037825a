package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/conformance/readback"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog/topiclog"
)

// participantCluster is a cluster that a test's transactions write to.
type participantCluster struct {
	addr, id string
}

// coordinatorRig is a node with the role gtc, in this process, whose requests
// and appends can be counted.
type coordinatorRig struct {
	addr     string
	log      *topiclog.Log
	requests requestCounter
}

// requestCounter counts what reaches the coordinator.
type requestCounter struct {
	broker.Coordinator
	mu     sync.Mutex
	counts map[string]int
}

func (c *requestCounter) Handle(ctx context.Context, principal, host string, req kmsg.Request) kmsg.Response {
	c.mu.Lock()
	c.counts[fmt.Sprintf("%T", req)]++
	c.mu.Unlock()
	return c.Coordinator.Handle(ctx, principal, host, req)
}

func (c *requestCounter) total() (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, v := range c.counts {
		n += v
	}
	return n
}

func testConfig(t *testing.T, lines ...string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.properties", strings.NewReader(strings.Join(lines, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// serveFront starts a front for opts and returns its address.
func serveFront(t *testing.T, opts broker.Options, ln net.Listener) string {
	t.Helper()
	front, err := broker.NewFront(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = front.Serve(ln) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = front.Shutdown(ctx)
	})
	return net.JoinHostPort(opts.Node.Host, strconv.Itoa(int(opts.Node.Port)))
}

func quiet() zerolog.Logger { return zerolog.New(io.Discard) }

// embeddedCluster is a mini-broker without the role on a directory of its own.
func embeddedCluster(t *testing.T, lines ...string) participantCluster {
	t.Helper()
	cfg := testConfig(t, append([]string{"process.roles=broker", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + t.TempDir()}, lines...)...)
	ln, node, err := listenOne(t.Context(), cfg.NodeID, cfg.Listeners[0])
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := broker.OpenEmbedded(cfg, node, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(embedded.Close)
	addr := serveFront(t, broker.Options{Config: cfg, Node: node, Embedded: embedded, Now: time.Now, Log: quiet()}, ln)
	return participantCluster{addr: addr, id: embedded.ClusterID()}
}

// optedIn is the setting by which an embedded cluster takes part.
const optedIn = "transaction.max.timeout.ms=2147483647"

// newCoordinator starts a node with both roles over the clusters.
func newCoordinator(t *testing.T, clusters map[string]participantCluster, more ...string) *coordinatorRig {
	t.Helper()
	return newCoordinatorWith(t, clusters, func(*service.Options) {}, more...)
}

func newCoordinatorWith(t *testing.T, clusters map[string]participantCluster, change func(*service.Options), more ...string) *coordinatorRig {
	t.Helper()
	var aliases []string
	lines := []string{"process.roles=broker,gtc", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + t.TempDir(), "global.transaction.state.log.num.partitions=4"}
	for alias, c := range clusters {
		aliases = append(aliases, alias)
		lines = append(lines, "gtc.cluster."+alias+".bootstrap.servers="+c.addr)
	}
	lines = append(lines, "gtc.clusters="+strings.Join(aliases, ","))
	cfg := testConfig(t, append(lines, more...)...)
	ln, node, err := listenOne(t.Context(), cfg.NodeID, cfg.Listeners[0])
	if err != nil {
		t.Fatal(err)
	}
	embedded, err := broker.OpenEmbedded(cfg, node, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(embedded.Close)
	opts := broker.Options{Config: cfg, Node: node, Embedded: embedded, Now: time.Now, Log: quiet()}
	rig := &coordinatorRig{}
	if rig.log, err = openLog(t.Context(), opts); err != nil {
		t.Fatal(err)
	}
	clock := service.SystemClock()
	participants, err := openParticipants(cfg, clock, quiet())
	if err != nil {
		t.Fatal(err)
	}
	o := service.Options{
		Log: rig.log, Participants: participants, Config: coreConfig(cfg, participants), Clock: clock, Logger: quiet(),
		NodeID: node.ID, Host: node.Host, Port: node.Port, ScanInterval: cfg.GlobalTransactions.ScanInterval,
		// Lazy records stay out of the count until a forced one takes them along.
		LazyLinger: time.Hour,
	}
	change(&o)
	s, err := service.New(o)
	if err != nil {
		t.Fatal(err)
	}
	s.OwnAll()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := s.Close(ctx); err != nil {
			t.Error(err)
		}
		participants.Close()
		rig.log.Close()
	})
	rig.requests = requestCounter{Coordinator: s, counts: map[string]int{}}
	opts.Coordinator = &rig.requests
	rig.addr = serveFront(t, opts, ln)
	return rig
}

// openClient opens a global transactional id over all the clusters.
func openClient(t *testing.T, rig *coordinatorRig, id string, clusters map[string]participantCluster) *client.Client {
	t.Helper()
	o := client.Options{
		GlobalTransactionalID: id, Coordinator: []string{rig.addr}, Clusters: map[string]client.Cluster{},
		AskTimeout: time.Minute, // what is asked is asked once, on a busy machine too
	}
	for alias, c := range clusters {
		o.Clusters[alias] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.addr)}}
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := client.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = cl.Close(ctx)
	})
	return cl
}

// newTopic creates a topic of this run's own on every cluster.
func newTopic(t *testing.T, clusters map[string]participantCluster) string {
	t.Helper()
	name := "t" + strconv.FormatInt(time.Now().UnixNano(), 36)
	for _, c := range clusters {
		cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if _, err := kadm.NewClient(cl).CreateTopic(t.Context(), 2, 1, nil, name); err != nil {
			t.Fatal(err)
		}
	}
	return name
}

// write begins a transaction and writes one record to each named cluster.
func write(t *testing.T, cl *client.Client, topic, value string, clusters ...string) *client.Txn {
	t.Helper()
	txn, err := cl.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clusters {
		if err := txn.ProduceSync(t.Context(), c, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	return txn
}

// visibleOn reads a topic with the independent reader, once nothing is open.
func visibleOn(t *testing.T, c participantCluster, topic string) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := readback.NewReader(c.addr)
	defer r.Close()
	values, err := r.Values(ctx, topic)
	if err != nil {
		t.Fatal(err)
	}
	return values
}

// openTransactions lists what is open on a cluster of the given id.
func openTransactions(t *testing.T, c participantCluster, id string) []string {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	var listed kadm.ListedTransactions
	until(t, func() (err error) {
		listed, err = kadm.NewClient(cl).ListTransactions(t.Context(), nil, []string{"Ongoing"})
		return err
	})
	var open []string
	for _, tx := range listed {
		if tx.TxnID == id {
			open = append(open, tx.TxnID)
		}
	}
	return open
}

// rawRequest sends a header of the key and version with an empty body and
// returns what comes back until the connection ends.
func rawRequest(t *testing.T, addr string, key, version int16) []byte {
	t.Helper()
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	frame := kbin.AppendInt16(nil, key)
	frame = kbin.AppendInt16(frame, version)
	frame = kbin.AppendInt32(frame, 1) // correlation id
	frame = kbin.AppendNullableString(frame, nil)
	frame = append(frame, 0) // no tags
	if _, err = conn.Write(append(kbin.AppendInt32(nil, int32(len(frame))), frame...)); err != nil {
		t.Fatal(err)
	}
	if err = conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	answer, err := io.ReadAll(conn)
	if err != nil {
		t.Fatalf("the connection does not end: %v", err)
	}
	return answer
}
