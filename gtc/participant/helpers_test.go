package participant

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var started = time.Now()

func clock() gtc.Time {
	return gtc.Time{Mono: time.Since(started).Milliseconds(), Wall: time.Now().UnixMilli()}
}

// drive is a driver of the clusters given, closed with the test.
func drive(t *testing.T, clusters ...Config) *Clusters {
	t.Helper()
	c, err := New(Options{Clusters: clusters, Clock: clock, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// noTimeout opts a kfake cluster in.
var noTimeout = kfake.BrokerConfigs(map[string]string{maxTimeoutMillis: "2147483647"})

// fake is a one-broker kfake cluster with topic "t" of one partition.
func fake(t *testing.T, id string, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	opts = append([]kfake.Opt{kfake.NumBrokers(1), kfake.ClusterID(id), kfake.SeedTopics(1, "t"), noTimeout}, opts...)
	c, err := kfake.NewCluster(opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// at has a timeout that a busy machine does not reach; tests of what is away set
// a shorter one.
func at(alias string, addrs ...string) Config {
	return Config{Alias: alias, ClientOpts: []kgo.Opt{kgo.SeedBrokers(addrs...)}, RequestTimeout: 20 * time.Second}
}

// away is a cluster that cannot be reached, and is waited for, until back is
// called, which returns when the driver has connected.
func away(t *testing.T, alias, id string) (cfg Config, back func(c *Clusters)) {
	t.Helper()
	a := fake(t, id)
	open := make(chan struct{})
	cfg = at(alias, a.ListenAddrs()...)
	cfg.RequestTimeout = 10 * time.Minute
	cfg.ClientOpts = append(cfg.ClientOpts, kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		select {
		case <-open:
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}))
	return cfg, func(c *Clusters) {
		close(open)
		eventually(t, func() bool {
			return slices.ContainsFunc(c.Clusters(), func(s Status) bool { return s.Alias == alias && s.Reachable })
		})
	}
}

// answer makes the cluster answer one key by f for as long as f returns a
// response; with nil the cluster answers itself.
func answer[Req kmsg.Request](c *kfake.Cluster, key int16, f func(Req) kmsg.Response) {
	c.ControlKey(key, func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if resp := f(kreq.(Req)); resp != nil {
			return resp, nil, true
		}
		return nil, nil, false
	})
}

// producer is an application's producer: one transactional id on one cluster.
type producer struct {
	t  *testing.T
	cl *kgo.Client
	id string
}

const noTimeoutDuration = 2147483647 * time.Millisecond

func newProducer(t *testing.T, id string, timeout time.Duration, addrs ...string) *producer {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.TransactionalID(id), kgo.TransactionTimeout(timeout))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &producer{t, cl, id}
}

// write begins a transaction and writes one record to each topic.
func (p *producer) write(topics ...string) {
	p.t.Helper()
	if err := p.cl.BeginTransaction(); err != nil {
		p.t.Fatal(err)
	}
	for _, topic := range topics {
		if err := p.cl.ProduceSync(p.t.Context(), &kgo.Record{Topic: topic, Value: []byte("x")}).FirstErr(); err != nil {
			p.t.Fatal(err)
		}
	}
}

func (p *producer) ref(clusterID string) gtc.ParticipantRef {
	p.t.Helper()
	pid, epoch, err := p.cl.ProducerID(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return gtc.ParticipantRef{ClusterID: clusterID, ProducerID: pid, ProducerEpoch: epoch}
}

// voteFor takes one vote and makes the record that the coordinator would.
func voteFor(t *testing.T, c *Clusters, id string, ref gtc.ParticipantRef) (txnlog.Participant, gtc.Vote) {
	t.Helper()
	v := c.Vote(t.Context(), id, []gtc.ParticipantRef{ref})[0]
	return txnlog.Participant{
		ClusterID: ref.ClusterID, ProducerID: ref.ProducerID, ProducerEpoch: ref.ProducerEpoch,
		EndTxnVersion: v.EndTxnVersion,
		AuditTopic:    v.AuditTopic, AuditPartition: v.AuditPartition, StartMillis: v.StartMillis,
	}, v
}

// prepared takes the vote again while the cluster cannot be asked.
func prepared(t *testing.T, c *Clusters, id string, ref gtc.ParticipantRef) (p txnlog.Participant) {
	t.Helper()
	var v gtc.Vote
	eventually(t, func() bool {
		p, v = voteFor(t, c, id, ref)
		return v.Code != gtc.VoteUnavailable
	})
	if v.Code != gtc.VotePrepared {
		t.Fatalf("vote %d (%s), want prepared", v.Code, v.Detail)
	}
	return p
}

// settle repeats End, as the coordinator would, until it proves something.
func settle(t *testing.T, c *Clusters, id string, p txnlog.Participant, commit bool) gtc.EndAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		ans := c.End(ctx, gtc.EndTxn{ID: id, Participant: p, Commit: commit})
		if ans.Outcome != gtc.EndRetry {
			return ans
		}
		select {
		case <-ctx.Done():
			t.Fatalf("not settled: %s", ans.Detail)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// visible counts the records of the topic that a fresh read_committed reader
// sees. It waits until no transaction is open there: an end is done some
// milliseconds before its marker is written, and a broker that was just started
// may not lead the partition yet.
func visible(t *testing.T, topic string, addrs ...string) int {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	var end kadm.ListedOffset
	eventually(t, func() bool {
		stable, stableErr := adm.ListCommittedOffsets(t.Context(), topic)
		all, allErr := adm.ListEndOffsets(t.Context(), topic)
		if errors.Join(stableErr, stable.Error(), allErr, all.Error()) != nil {
			return false
		}
		end, _ = stable.Lookup(topic, 0)
		last, found := all.Lookup(topic, 0)
		return found && end.Offset == last.Offset
	})
	reader, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	n := 0
	for next := int64(0); next < end.Offset; {
		fs := reader.PollFetches(t.Context())
		if err := fs.Err(); err != nil {
			t.Fatal(err)
		}
		fs.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				n++
			}
			next = r.Offset + 1
		})
	}
	return n
}

// A cutter stands between the driver and a cluster and cuts connections around
// the requests of one API key.
type cutter struct {
	key  int16
	mode atomic.Int32
	seen atomic.Int32 // requests of the key that passed or were cut
}

const (
	passAll     = int32(iota)
	cutBefore   // the connection breaks before the request is written
	cutAfter    // the request arrives, its answer does not
	refuseDials // no connection can be made
	countOnly
)

func (c *cutter) opt() kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		if c.mode.Load() == refuseDials {
			return nil, &net.OpError{Op: "dial", Net: network, Err: net.ErrClosed}
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &cutConn{Conn: conn, c: c}, nil
	})
}

type cutConn struct {
	net.Conn
	c    *cutter
	once sync.Once
	deaf atomic.Bool
}

func (c *cutConn) Write(b []byte) (int, error) {
	if len(b) < 6 || int16(binary.BigEndian.Uint16(b[4:])) != c.c.key {
		return c.Conn.Write(b)
	}
	c.c.seen.Add(1)
	switch c.c.mode.Load() {
	case cutBefore:
		_ = c.Close()
		return 0, net.ErrClosed
	case cutAfter:
		c.deaf.Store(true)
		n, err := c.Conn.Write(b)
		return n, err
	}
	return c.Conn.Write(b)
}

func (c *cutConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.deaf.Load() {
		c.once.Do(func() { _ = c.Close() })
		return 0, net.ErrClosed
	}
	return n, err
}

func contains(t *testing.T, what, part string) {
	t.Helper()
	if !strings.Contains(what, part) {
		t.Errorf("%q does not say %q", what, part)
	}
}

// patience bounds what takes a second on an idle machine.
const patience = 2 * time.Minute

// eventually waits until what is true.
func eventually(t *testing.T, what func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !what(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v", patience)
		}
	}
}
