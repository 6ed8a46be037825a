package broker_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/broker/durable"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// node is a front with what is behind it, on a real socket.
type node struct {
	addr     string
	front    *broker.Front
	embedded *broker.Embedded
	grace    time.Duration // of stop, for the connections
	stop     func()
}

type nodeOption func(*broker.Options)

func withCoordinator(c broker.Coordinator) nodeOption {
	return func(o *broker.Options) { o.Coordinator = c }
}

// startNode starts a node in memory unless the overrides name a data
// directory.
func startNode(tb testing.TB, overrides []string, opts ...nodeOption) *node {
	tb.Helper()
	overrides = append([]string{"listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="}, overrides...)
	cfg, err := config.Load("", overrides)
	if err != nil {
		tb.Fatal(err)
	}
	return startConfigured(tb, cfg, opts...)
}

func startConfigured(tb testing.TB, cfg *config.Config, opts ...nodeOption) *node {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	port := ln.Addr().(*net.TCPAddr).Port
	log := zerolog.New(zerolog.NewTestWriter(tb)).Level(zerolog.WarnLevel)
	o := broker.Options{
		Config: cfg, Node: broker.Node{ID: cfg.NodeID, Host: "127.0.0.1", Port: int32(port)},
		Now: time.Now, Log: log,
	}
	if cfg.Roles.Broker {
		var repaired durable.Report
		repair := func(dir string) (err error) {
			repaired, err = durable.Repair(dir, time.Now(), log)
			return err
		}
		if o.Embedded, err = broker.OpenEmbedded(cfg, o.Node, repair, log); err != nil {
			tb.Fatal(err)
		}
		o.Embedded.TakeOffline(repaired.Offline)
	}
	for _, opt := range opts {
		opt(&o)
	}
	front, err := broker.NewFront(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- front.Serve(ln) }()
	n := &node{addr: ln.Addr().String(), front: front, embedded: o.Embedded, grace: time.Second}
	n.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), n.grace)
		defer cancel()
		if err := front.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			tb.Errorf("Shutdown: %v", err)
		}
		if err := <-served; err != nil {
			tb.Errorf("Serve: %v", err)
		}
		if o.Embedded != nil {
			o.Embedded.Close()
		}
	})
	tb.Cleanup(n.stop)
	return n
}

func (n *node) client(tb testing.TB, opts ...kgo.Opt) *kgo.Client {
	tb.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.addr), kgo.MaxVersions(wire.Versions()), kgo.RequestRetries(0),
	}, opts...)...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(cl.Close)
	return cl
}

// raw is a connection that speaks frames.
type raw struct {
	t testing.TB
	net.Conn
	in *bufio.Reader
}

func (n *node) dial(tb testing.TB) *raw {
	tb.Helper()
	c, err := net.Dial("tcp", n.addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		tb.Fatal(err)
	}
	return &raw{t: tb, Conn: c, in: bufio.NewReader(c)}
}

func frameOf(req kmsg.Request, correlationID int32) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw")).AppendRequest(nil, req, correlationID)
}

func (r *raw) send(frame []byte) {
	r.t.Helper()
	if _, err := r.Write(frame); err != nil {
		r.t.Fatalf("sending: %v", err)
	}
}

// receive gives the correlation id of the next answer, and all after it.
func (r *raw) receive() (int32, []byte, error) {
	var size [4]byte
	if _, err := io.ReadFull(r.in, size[:]); err != nil {
		return 0, nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(r.in, frame); err != nil {
		return 0, nil, err
	}
	return int32(binary.BigEndian.Uint32(frame)), frame[4:], nil
}

// ask sends a request and decodes its answer.
func ask[R kmsg.Response](tb testing.TB, r *raw, req kmsg.Request) R {
	tb.Helper()
	r.send(frameOf(req, 7))
	id, rest, err := r.receive()
	if err != nil || id != 7 {
		tb.Fatalf("the answer to %s: id %d, %v", wire.NameForKey(req.Key()), id, err)
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != 18 {
		rest = rest[1:]
	}
	if err := resp.ReadFrom(rest); err != nil {
		tb.Fatalf("the answer to %s: %v", wire.NameForKey(req.Key()), err)
	}
	return resp.(R)
}

// coordinator is a Coordinator of test functions.
type coordinator struct {
	handle func(context.Context, kmsg.Request) kmsg.Response
	find   func(string) (int32, string, int32, error)
}

func (c coordinator) Handle(ctx context.Context, principal, _ string, req kmsg.Request) kmsg.Response {
	if principal != "User:ANONYMOUS" {
		panic("principal " + principal)
	}
	return c.handle(ctx, req)
}

func (c coordinator) FindCoordinator(_, _, id string) (int32, string, int32, error) {
	return c.find(id)
}

// echo answers every request with its default response.
var echo = coordinator{
	handle: func(_ context.Context, req kmsg.Request) kmsg.Response { return req.ResponseKind() },
	find: func(id string) (int32, string, int32, error) {
		switch id {
		case "loading":
			return 0, "", 0, fmt.Errorf("partition 3: %w", kerr.CoordinatorLoadInProgress)
		case "lost":
			return 0, "", 0, errors.New("nobody owns it")
		}
		return 0, "127.0.0.1", 9, nil
	},
}

var bothRoles = []string{"process.roles=broker,gtc"}

// serves checks that a fresh client is served.
func (n *node) serves(t *testing.T) {
	t.Helper()
	resp := ask[*kmsg.MetadataResponse](t, n.dial(t), kmsg.NewPtrMetadataRequest())
	if len(resp.Brokers) != 1 {
		t.Fatalf("%d brokers", len(resp.Brokers))
	}
}

func TestMetadataNamesTheAdvertisedAddress(t *testing.T) {
	n := startNode(t, []string{"cluster.id=us"})
	meta, err := kadm.NewClient(n.client(t)).BrokerMetadata(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if b := meta.Brokers; len(b) != 1 || b[0].NodeID != 0 || net.JoinHostPort(b[0].Host, strconv.Itoa(int(b[0].Port))) != n.addr {
		t.Errorf("brokers %+v, want node 0 at %s", b, n.addr)
	}
	if meta.Cluster != "us" || meta.Controller != 0 {
		t.Errorf("cluster %q, controller %d", meta.Cluster, meta.Controller)
	}
}

func TestAnswersKeepTheOrderOfRequests(t *testing.T) {
	release, fast := make(chan struct{}), make(chan struct{})
	n := startNode(t, bothRoles, withCoordinator(coordinator{handle: func(_ context.Context, req kmsg.Request) kmsg.Response {
		if req.Key() == wire.KeyEndGlobalTxn {
			<-release
		} else {
			close(fast)
		}
		return req.ResponseKind()
	}}))
	c := n.dial(t)
	c.send(slices.Concat(
		frameOf(kmsg.NewPtrMetadataRequest(), 1),
		frameOf(wire.NewPtrEndGlobalTxnRequest(), 2),
		frameOf(kmsg.NewPtrMetadataRequest(), 3),
		frameOf(wire.NewPtrDescribeGlobalTransactionsRequest(), 4),
		frameOf(kmsg.NewPtrListGroupsRequest(), 5),
	))
	<-fast // the fourth is being worked on while the second is not done
	var got []int32
	for range 5 {
		id, _, err := c.receive()
		if err != nil {
			t.Fatal(err)
		}
		if got = append(got, id); id == 1 {
			if err := c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			if b, err := c.in.ReadByte(); err == nil {
				t.Fatalf("an answer overtook the slow one: %d", b)
			}
			if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			close(release)
		}
	}
	if !slices.Equal(got, []int32{1, 2, 3, 4, 5}) {
		t.Errorf("answers %v", got)
	}
}

func TestTooManyOutstandingRequestsAreNotRead(t *testing.T) {
	const requests = 500
	var mu sync.Mutex
	running, most := 0, 0
	release := make(chan struct{})
	n := startNode(t, bothRoles, withCoordinator(coordinator{handle: func(_ context.Context, req kmsg.Request) kmsg.Response {
		mu.Lock()
		running++
		most = max(most, running)
		mu.Unlock()
		<-release
		mu.Lock()
		running--
		mu.Unlock()
		return req.ResponseKind()
	}}))
	c := n.dial(t)
	go func() {
		for i := range requests {
			if _, err := c.Write(frameOf(wire.NewPtrEndGlobalTxnRequest(), int32(i))); err != nil {
				return
			}
		}
	}()
	waitFor(t, "a full pipeline", func() bool { mu.Lock(); defer mu.Unlock(); return running >= 64 })
	n.serves(t) // others are not held up
	close(release)
	for i := range requests {
		if id, _, err := c.receive(); err != nil || id != int32(i) {
			t.Fatalf("answer %d: id %d, %v", i, id, err)
		}
	}
	// 64 in the queue, one with the writer, one that waits for its place.
	if most > 66 {
		t.Errorf("%d requests were worked on at once", most)
	}
}

// patience bounds what takes a second on an idle machine.
const patience = 2 * time.Minute

func waitFor(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s", what)
		}
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

func TestWhatCameBeforeABadFrameIsAnswered(t *testing.T) {
	n := startNode(t, nil)
	c := n.dial(t)
	c.send(slices.Concat(frameOf(kmsg.NewPtrMetadataRequest(), 1), frameOf(kmsg.NewPtrListGroupsRequest(), 2), []byte{0, 0, 0, 8, 99, 99, 0, 0, 0, 0, 0, 3}))
	for want := range int32(2) {
		if id, _, err := c.receive(); err != nil || id != want+1 {
			t.Fatalf("answer %d: id %d, %v", want+1, id, err)
		}
	}
	if _, _, err := c.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("after the bad frame: %v", err)
	}
}

func TestATruncatedFrameHoldsUpNobodyAndEnds(t *testing.T) {
	clock := &testClock{now: time.Now()}
	n := startNode(t, nil, func(o *broker.Options) { o.Now = clock.Now })
	c := n.dial(t)
	clock.add(-29900 * time.Millisecond) // the time that a begun frame has is all but over
	frame := frameOf(kmsg.NewPtrMetadataRequest(), 1)
	c.send(frame[:len(frame)-1])
	if _, _, err := c.receive(); err == nil || isTimeout(err) {
		t.Errorf("a frame that does not come to its end: %v", err)
	}
	clock.add(29900 * time.Millisecond)
	n.serves(t)
}

type testClock struct {
	mu  sync.Mutex
	now time.Time
	off time.Duration
}

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.off)
}

func (c *testClock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += d
}

func TestAnIdleConnectionIsClosedButNotOneThatWaits(t *testing.T) {
	release := make(chan struct{})
	n := startNode(t, append([]string{"connections.max.idle.ms=1000"}, bothRoles...), withCoordinator(coordinator{
		handle: func(_ context.Context, req kmsg.Request) kmsg.Response { <-release; return req.ResponseKind() },
	}))
	idle, waiting := n.dial(t), n.dial(t)
	waiting.send(frameOf(wire.NewPtrEndGlobalTxnRequest(), 1))
	if _, _, err := idle.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %v", err)
	}
	close(release)
	if id, _, err := waiting.receive(); err != nil || id != 1 {
		t.Errorf("the waiting connection: %d %v", id, err)
	}
}

func TestConnectionsAboveTheLimitWait(t *testing.T) {
	n := startNode(t, []string{"max.connections=2"})
	first, second, third := n.dial(t), n.dial(t), n.dial(t)
	ask[*kmsg.MetadataResponse](t, first, kmsg.NewPtrMetadataRequest())
	ask[*kmsg.MetadataResponse](t, second, kmsg.NewPtrMetadataRequest())
	third.send(frameOf(kmsg.NewPtrMetadataRequest(), 1))
	if err := third.SetReadDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := third.receive(); !isTimeout(err) {
		t.Fatalf("the third connection was not held back: %v", err)
	}
	_ = first.Close()
	if err := third.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	if id, _, err := third.receive(); err != nil || id != 1 {
		t.Errorf("the third connection after a place is free: %d %v", id, err)
	}
}

func TestShutdownAnswersWhatIsOwed(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	n := startNode(t, bothRoles, withCoordinator(coordinator{
		handle: func(_ context.Context, req kmsg.Request) kmsg.Response {
			close(entered)
			<-release
			return req.ResponseKind()
		},
	}))
	n.grace = patience
	c, idle := n.dial(t), n.dial(t)
	ask[*kmsg.MetadataResponse](t, idle, kmsg.NewPtrMetadataRequest())
	c.send(frameOf(wire.NewPtrEndGlobalTxnRequest(), 1))
	<-entered
	stopped := make(chan struct{})
	go func() { n.stop(); close(stopped) }()
	if _, _, err := idle.receive(); !errors.Is(err, io.EOF) {
		t.Errorf("the idle connection: %v", err)
	}
	close(release)
	if id, _, err := c.receive(); err != nil || id != 1 {
		t.Errorf("the answer owed: %d %v", id, err)
	}
	<-stopped
}

func TestShutdownIsBounded(t *testing.T) {
	entered := make(chan struct{})
	n := startNode(t, bothRoles, withCoordinator(coordinator{
		handle: func(ctx context.Context, _ kmsg.Request) kmsg.Response {
			close(entered)
			<-ctx.Done()
			return nil
		},
	}))
	c := n.dial(t)
	c.send(frameOf(wire.NewPtrEndGlobalTxnRequest(), 1))
	<-entered
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := n.front.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown: %v", err)
	}
	if _, _, err := c.receive(); err == nil {
		t.Error("answered after all")
	}
	if _, err := n.front.Dial(t.Context(), "", ""); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Dial after Shutdown: %v", err)
	}
}

func TestAClientThatLeavesEndsItsHandlers(t *testing.T) {
	entered, left := make(chan struct{}), make(chan struct{})
	n := startNode(t, bothRoles, withCoordinator(coordinator{
		handle: func(ctx context.Context, _ kmsg.Request) kmsg.Response {
			close(entered)
			<-ctx.Done()
			close(left)
			return nil
		},
	}))
	c := n.dial(t)
	c.send(frameOf(wire.NewPtrEndGlobalTxnRequest(), 1))
	<-entered
	_ = c.Close()
	select {
	case <-left:
	case <-time.After(patience):
		t.Error("the handler goes on for a client that has left")
	}
}

func TestDialServesInMemory(t *testing.T) {
	n := startNode(t, []string{"transaction.two.phase.commit.enable=true"})
	for name, dial := range map[string]func(context.Context, string, string) (net.Conn, error){
		"front": n.front.Dial, "embedded": n.embedded.Dial,
	} {
		cl := n.client(t, kgo.Dialer(dial), kgo.SeedBrokers("nowhere:1"))
		meta, err := kadm.NewClient(cl).BrokerMetadata(t.Context())
		if err != nil || len(meta.Brokers) != 1 {
			t.Errorf("%s: %v %v", name, meta, err)
		}
	}
}
