package topiclog

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/internal/logtest"
)

// realClock is the machine's.
type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

// testClock is the machine's too, but jumps ahead on request, which also ends
// every wait that the jump passes.
type testClock struct {
	mu    sync.Mutex
	ahead time.Duration
	waits map[chan time.Time]time.Time
}

func newTestClock() *testClock { return &testClock{waits: make(map[chan time.Time]time.Time)} }

func (c *testClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Add(c.ahead)
}

func (c *testClock) After(d time.Duration) <-chan time.Time {
	at := c.Now().Add(d)
	ch := make(chan time.Time, 1)
	c.mu.Lock()
	c.waits[ch] = at
	c.mu.Unlock()
	time.AfterFunc(d, func() { c.fire(at) })
	return ch
}

func (c *testClock) fire(now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for ch, at := range c.waits {
		if !at.After(now) {
			ch <- now
			delete(c.waits, ch)
		}
	}
}

func (c *testClock) advance(d time.Duration) {
	c.mu.Lock()
	c.ahead += d
	c.mu.Unlock()
	c.fire(c.Now())
}

// gate sits in the dialer of one log and plays the network under its produce
// requests.
type gate struct {
	mu   sync.Mutex
	held chan struct{} // closed when acknowledgements may pass
	lose int           // so many acknowledgements get lost, with the connection
	lost int
}

func (g *gate) hold() (release func()) {
	held := make(chan struct{})
	g.mu.Lock()
	g.held = held
	g.mu.Unlock()
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if g.held == held {
			g.held = nil
		}
		close(held)
	}
}

func (g *gate) loseNext(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.lose = n
}

func (g *gate) losses() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lost
}

func (g *gate) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &gatedConn{Conn: conn, g: g, woken: make(chan struct{}, 1)}, nil
}

type gatedConn struct {
	net.Conn
	g       *gate
	woken   chan struct{} // the client gives up a read
	mu      sync.Mutex
	produce bool // the last request written was a produce request
}

func (c *gatedConn) Write(b []byte) (int, error) {
	if len(b) >= 6 {
		c.mu.Lock()
		c.produce = binary.BigEndian.Uint16(b[4:]) == 0
		c.mu.Unlock()
	}
	return c.Conn.Write(b)
}

// Close and a read deadline in the past are how kgo gives up.
func (c *gatedConn) Close() error {
	c.wake()
	return c.Conn.Close()
}

func (c *gatedConn) SetReadDeadline(at time.Time) error {
	if !at.IsZero() && !at.After(time.Now()) {
		c.wake()
	}
	return c.Conn.SetReadDeadline(at)
}

func (c *gatedConn) wake() {
	select {
	case c.woken <- struct{}{}:
	default:
	}
}

var errLost = errors.New("the test has lost an acknowledgement")

func (c *gatedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	produce := c.produce
	c.mu.Unlock()
	if err != nil || !produce {
		return n, err
	}
	c.g.mu.Lock()
	held := c.g.held
	lose := c.g.lose > 0
	if lose {
		c.g.lose--
		c.g.lost++
	}
	c.g.mu.Unlock()
	if lose {
		_ = c.Conn.Close()
		return 0, errLost
	}
	if held == nil {
		return n, err
	}
	select {
	case <-held:
		return n, err
	case <-c.woken:
		return 0, errLost
	}
}

// store is one topic on one cluster, as the tests see it.
type store struct {
	addrs     []string
	topic     string
	compact   func(t *testing.T, partition int32)
	configure func(*Options)

	mu    sync.Mutex
	gates map[txnlog.Log]*gate
}

func newStore(addrs []string, topic string) *store {
	return &store{addrs: addrs, topic: topic, gates: make(map[txnlog.Log]*gate)}
}

func (s *store) options() Options {
	o := Options{
		ClientOpts: []kgo.Opt{kgo.SeedBrokers(s.addrs...)},
		Topic:      s.topic, Partitions: 3, ReplicationFactor: 1, MinInsyncReplicas: 1, Create: true,
		NodeID: 1, Host: "test", Logger: zerolog.Nop(), Clock: realClock{},
	}
	if s.configure != nil {
		s.configure(&o)
	}
	return o
}

func (s *store) open(t *testing.T, change ...func(*Options)) *Log {
	t.Helper()
	g := new(gate)
	o := s.options()
	for _, c := range change {
		c(&o)
	}
	o.ClientOpts = append(o.ClientOpts, kgo.Dialer(g.dial))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := Open(ctx, o)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	t.Cleanup(l.Close)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gates[l] = g
	return l
}

func (s *store) gate(l txnlog.Log) *gate {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gates[l]
}

// records reads a partition whole, with a plain consumer.
func (s *store) records(t *testing.T, partition int32) []txnlog.RawRecord {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var ends kadm.ListedOffsets
	eventually(t, "the end of the log", func() bool { // of a topic that not every broker may know yet
		var err error
		ends, err = kadm.NewClient(client).ListEndOffsets(ctx, s.topic)
		return errors.Join(err, ends.Error()) == nil
	})
	end, _ := ends.Lookup(s.topic, partition)
	if end.Offset == 0 {
		return nil
	}
	var records []txnlog.RawRecord
	for len(records) == 0 || records[len(records)-1].Offset < end.Offset-1 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			records = append(records, txnlog.RawRecord{
				Offset: r.Offset, ProducerID: r.ProducerID, ProducerEpoch: r.ProducerEpoch, Key: r.Key, Value: r.Value,
			})
		})
	}
	return records
}

// inject writes one raw record, in the sequence of its producer.
func (s *store) inject(t *testing.T, partition int32, r txnlog.RawRecord) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sequence := int32(0)
	for _, old := range s.records(t, partition) {
		if old.ProducerID == r.ProducerID && old.ProducerEpoch == r.ProducerEpoch {
			sequence++
		}
	}
	if r.ProducerID < 0 {
		sequence = -1
	}
	b := new(batch)
	b.add(r.Key, r.Value)
	if err := s.send(ctx, partition, b.encode(producer{r.ProducerID, r.ProducerEpoch}, sequence, time.Now().UnixMilli())); err != nil {
		t.Fatalf("inject: %v", err)
	}
}

// send writes a batch as it stands.
func (s *store) send(ctx context.Context, partition int32, b []byte) error {
	o, err := s.options().withDefaults()
	if err != nil {
		return err
	}
	p, err := newPartition(&o, new(stats), partition)
	if err != nil {
		return err
	}
	defer p.client.Close()
	_, err = p.append(ctx, b)
	return err
}

func (s *store) target() logtest.Target {
	return logtest.Target{
		Open: func(t *testing.T) txnlog.Log { return s.open(t) },
		Hold: func(l txnlog.Log) func() { return s.gate(l).hold() },
		AwaitInFlight: func(t *testing.T, n int) {
			eventually(t, "the append to be written", func() bool { return len(s.records(t, 0)) >= n })
		},
		Batches: func(l txnlog.Log) int64 { return l.(*Log).Stats().Batches },
		Foreign: func(l txnlog.Log) int64 { return l.(*Log).Stats().Foreign },
		Records: s.records,
		Inject:  s.inject,
		Compact: s.compact,
	}
}

// patience bounds what takes a second on an idle machine.
const patience = 3 * time.Minute

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", patience, what)
		}
	}
}

func newKfake(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func kfakeStore(t *testing.T, opts ...kfake.Opt) (*store, *kfake.Cluster) {
	t.Helper()
	c := newKfake(t, opts...)
	s := newStore(c.ListenAddrs(), txnlog.Topic)
	s.compact = func(*testing.T, int32) { c.Compact() }
	return s, c
}
