package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const topic = "bench"

// preparing is how many ids are prepared at a time.
const preparing = 64

// Settled is the figure of Settle.
type Settled struct {
	Ids int
	// From the start of the process after the SIGKILL: until it serves, until
	// it has answered for all its ids, and until nothing is pending.
	Ready, Answer, All time.Duration
	// Told is how many EndTxn the participants got, none before the SIGKILL.
	Told int64
}

// Settle measures what a coordinator does after a SIGKILL that leaves n commits
// decided in its log of which no participant knows.
//
// Two mini-brokers, or two Kafka clusters, take part, each behind a holder. On both, every id has a
// record in an open transaction without timeout, and the coordinator is asked
// to commit it. It looks at both clusters, makes its decision durable, and
// tries to tell them; the holder answers COORDINATOR_LOAD_IN_PROGRESS. When the
// coordinator says of every id "committed, pending", it is killed, the holder
// passes on from then, and the coordinator is started again.
func Settle(ctx context.Context, o Options, n int) (Settled, error) {
	s, err := newSettling(ctx, o)
	if err != nil {
		s.stop()
		return Settled{}, err
	}
	defer s.stop()
	return s.measure(ctx, n)
}

type settling struct {
	dir         string
	holders     []*holder
	nodes       []*node.Node
	kafka       []*cluster.Cluster
	coordinator *node.Node
	gtc         *kgo.Client
	clusters    []*kgo.Client
	ids         []string // of the clusters
}

func newSettling(ctx context.Context, o Options) (*settling, error) {
	s := &settling{dir: filepath.Join(o.Dir, "settle")}
	if err := mkdir(s.dir); err != nil {
		return s, err
	}
	free, err := ports(ctx, 5)
	if err != nil {
		return s, err
	}
	properties := []string{
		"process.roles=broker,gtc", "listeners=PLAINTEXT://" + free[0], "log.dirs=" + filepath.Join(s.dir, "gtc"), "gtc.clusters=us,eu",
	}
	for i, name := range []string{"us", "eu"} {
		server, proxy := free[1+2*i], free[2+2*i]
		if err = s.startParticipant(ctx, o, name, server, proxy); err != nil {
			return s, err
		}
		h, holdErr := newHolder(ctx, proxy, server)
		if holdErr != nil {
			return s, holdErr
		}
		s.holders = append(s.holders, h)
		properties = append(properties, "gtc.cluster."+name+".bootstrap.servers="+proxy)
		if err = s.openCluster(ctx, proxy); err != nil {
			return s, err
		}
	}
	if s.coordinator, err = node.New(o.Minibroker, s.dir, "gtc", free[0], properties); err != nil {
		return s, err
	}
	if err = s.coordinator.Start(ctx); err != nil {
		return s, err
	}
	s.nodes = append(s.nodes, s.coordinator)
	s.gtc, err = kgo.NewClient(kgo.SeedBrokers(free[0]), kgo.MaxVersions(wire.Versions()))
	return s, err
}

// startParticipant starts a cluster whose clients are sent to the proxy.
func (s *settling) startParticipant(ctx context.Context, o Options, name, server, proxy string) error {
	if o.Kafka {
		p := cluster.V44
		p.Config = append(p.Config[:len(p.Config):len(p.Config)],
			"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller.port},HELD://"+server,
			"advertised.listeners=PLAINTEXT://127.0.0.1:{port},HELD://"+proxy,
			"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,HELD:PLAINTEXT",
			"inter.broker.listener.name=PLAINTEXT")
		_ = (&cluster.Cluster{Name: "bench-" + name}).Down(ctx) // an earlier run has left it with other ports
		c, err := cluster.Ensure(ctx, "bench-"+name, p)
		if err == nil {
			s.kafka = append(s.kafka, c)
		}
		return err
	}
	n, err := node.New(cmp.Or(o.Participant, o.Minibroker), s.dir, name, server, []string{
		"process.roles=broker", "listeners=PLAINTEXT://" + server, "advertised.listeners=PLAINTEXT://" + proxy,
		"log.dirs=" + filepath.Join(s.dir, name), "transaction.max.timeout.ms=2147483647",
		// The figure is the coordinator's, not that of a participant's disk.
		"log.flush.interval.messages=9223372036854775807",
	})
	if err == nil {
		err = n.Start(ctx)
	}
	if err == nil {
		s.nodes = append(s.nodes, n)
	}
	return err
}

func (s *settling) openCluster(ctx context.Context, addr string) error {
	// The last version whose Produce names topics, and does not begin a
	// transaction by itself.
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MaxVersions(kversion.V3_7_0()))
	if err != nil {
		return err
	}
	s.clusters = append(s.clusters, cl)
	adm := kadm.NewClient(cl)
	if _, err = adm.CreateTopic(ctx, 8, 1, nil, topic); err != nil {
		return err
	}
	meta, err := adm.BrokerMetadata(ctx)
	s.ids = append(s.ids, meta.Cluster)
	return err
}

func (s *settling) stop() {
	for _, cl := range append(s.clusters, s.gtc) {
		if cl != nil {
			cl.Close()
		}
	}
	for _, n := range s.nodes {
		n.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range s.kafka {
		_ = c.Down(ctx)
	}
	for _, h := range s.holders {
		h.Close()
	}
}

func (s *settling) hold(on bool) {
	for _, h := range s.holders {
		h.holding.Store(on)
	}
}

func (s *settling) told() (passed int64) {
	for _, h := range s.holders {
		passed += h.passed.Load()
	}
	return passed
}

func (s *settling) measure(ctx context.Context, n int) (Settled, error) {
	ends := make([]*wire.EndGlobalTxnRequest, n)
	err := each(ctx, n, func(ctx context.Context, i int) (err error) {
		ends[i], err = s.prepare(ctx, i)
		return err
	})
	if err != nil {
		return Settled{}, err
	}
	before := s.told() // InitGlobalTxn tries with an EndTxn of nobody's whether it may
	s.hold(true)
	if err = each(ctx, n, func(ctx context.Context, i int) error { return s.decide(ctx, ends[i]) }); err != nil {
		return Settled{}, err
	}
	pending, err := s.pending(ctx)
	if told := s.told() - before; err != nil || pending != n || told != 0 {
		return Settled{}, fmt.Errorf("bench: %d of %d commits decided and pending, %d EndTxn told before the kill: %w", pending, n, told, err)
	}
	if err = s.coordinator.Kill(); err != nil {
		return Settled{}, err
	}
	s.hold(false)
	began := time.Now()
	if err = s.coordinator.Start(ctx); err != nil {
		return Settled{}, err
	}
	r := Settled{Ids: n, Ready: time.Since(began)}
	// A list of all ids costs the one who is measured, so it is asked for only
	// when every participant has been told.
	for r.All == 0 && ctx.Err() == nil {
		switch {
		case r.Answer == 0:
			if describes(ctx, s.gtc, ends[0].GlobalTransactionalID) {
				r.Answer = time.Since(began)
			}
		case s.told()-before >= int64(2*n):
			if pending, err = s.pending(ctx); err == nil && pending == 0 {
				r.All = time.Since(began)
			}
		}
		time.Sleep(2 * time.Millisecond)
	}
	if ctx.Err() != nil {
		return r, fmt.Errorf("bench: %d EndTxn told, %d commits pending: %w", s.told()-before, pending, errors.Join(ctx.Err(), err))
	}
	r.Told = s.told() - before
	for err = s.verify(ctx, n); errors.Is(err, errUnreadable) && ctx.Err() == nil; err = s.verify(ctx, n) { // Kafka's markers follow
		time.Sleep(10 * time.Millisecond)
	}
	return r, err
}

// prepare leaves a transaction of the i-th id open on both clusters and returns
// the request for its commit.
func (s *settling) prepare(ctx context.Context, i int) (*wire.EndGlobalTxnRequest, error) {
	id := fmt.Sprintf("settle-%05d", i)
	init := wire.NewPtrInitGlobalTxnRequest()
	init.GlobalTransactionalID, init.TimeoutMillis, init.ClusterIDs = id, 900_000, s.ids
	init.InstanceID = [16]byte{1, byte(i), byte(i >> 8)}
	var opened *wire.InitGlobalTxnResponse
	err := again(ctx, func() (err error) {
		if opened, err = init.RequestWith(ctx, s.gtc); err == nil {
			err = refusedInit(opened)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("InitGlobalTxn: %w", err)
	}
	end := wire.NewPtrEndGlobalTxnRequest()
	end.GlobalTransactionalID, end.GlobalEpoch, end.Sequence = id, opened.GlobalEpoch, opened.Sequence
	end.Committed, end.TimeoutMillis = true, 1
	for k, cl := range s.clusters {
		pid, epoch, err := open(ctx, cl, id, int32(i%8))
		if err != nil {
			return nil, err
		}
		end.Participants = append(end.Participants, wire.EndGlobalTxnRequestParticipant{ClusterID: s.ids[k], ProducerID: pid, ProducerEpoch: epoch})
	}
	return end, nil
}

// decide asks for a commit until it is decided.
func (s *settling) decide(ctx context.Context, end *wire.EndGlobalTxnRequest) error {
	err := again(ctx, func() error {
		resp, err := end.RequestWith(ctx, s.gtc)
		if err == nil {
			err = wire.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case err != nil || resp.Outcome == wire.OutcomeCommitted:
			return err
		case resp.Outcome == wire.OutcomeAborted:
			return fmt.Errorf("bench: %s was aborted: %s", end.GlobalTransactionalID, text(resp.ErrorMessage))
		}
		return errUndecided
	})
	if err != nil {
		return fmt.Errorf("EndGlobalTxn: %w", err)
	}
	return nil
}

// refusedInit is the error of an answer, with what is said of the clusters.
func refusedInit(resp *wire.InitGlobalTxnResponse) error {
	err := wire.ErrorForCode(resp.ErrorCode)
	for _, c := range resp.ClusterErrors {
		if c.ErrorCode != 0 {
			err = fmt.Errorf("%w; cluster %s: %s", err, c.ClusterID, text(c.ErrorMessage))
		}
	}
	return err
}

var errUndecided = errors.New("bench: not decided yet")

// again calls f until its error is none that passes.
func again(ctx context.Context, f func() error) error {
	for {
		err := f()
		if err == nil || !wire.IsRetriable(err) && !errors.Is(err, errUndecided) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// open leaves one record in a transaction without timeout.
func open(ctx context.Context, cl *kgo.Client, id string, partition int32) (int64, int16, error) {
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &id, 2147483647
	init.ProducerID, init.ProducerEpoch = -1, -1
	p, err := init.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(p.ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("InitProducerId: %w", err)
	}
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.TransactionalID, add.ProducerID, add.ProducerEpoch = id, p.ProducerID, p.ProducerEpoch
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = topic, []int32{partition}
	add.Topics = append(add.Topics, t)
	added, err := add.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(added.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("AddPartitionsToTxn: %w", err)
	}
	produce := kmsg.NewPtrProduceRequest()
	produce.TransactionID, produce.Acks, produce.TimeoutMillis = &id, -1, 30_000
	pt, pp := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	pp.Partition, pp.Records = partition, batch(p.ProducerID, p.ProducerEpoch, id)
	pt.Topic, pt.Partitions = topic, append(pt.Partitions, pp)
	produce.Topics = append(produce.Topics, pt)
	produced, err := produce.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(produced.Topics[0].Partitions[0].ErrorCode)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("writing: %w", err)
	}
	return p.ProducerID, p.ProducerEpoch, nil
}

// batch is one transactional record.
func batch(producerID int64, epoch int16, value string) []byte {
	r := kmsg.NewRecord()
	r.Value = []byte(value)
	r.Length = int32(len(r.AppendTo(nil)) - 1) // the length of 0 is one byte
	now := time.Now().UnixMilli()
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, Attributes: 0x10, FirstTimestamp: now, MaxTimestamp: now,
		ProducerID: producerID, ProducerEpoch: epoch, NumRecords: 1, Records: r.AppendTo(nil),
	}
	raw := b.AppendTo(nil)
	b.Length = int32(len(raw) - 12)
	b.CRC = int32(crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b.AppendTo(nil)
}

// pending counts the ids that are decided and not complete.
func (s *settling) pending(ctx context.Context) (int, error) {
	req := wire.NewPtrListGlobalTransactionsRequest()
	req.StateFilters = []string{"PrepareCommit"}
	resp, err := req.RequestWith(ctx, s.gtc)
	if err == nil {
		err = wire.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return 0, err
	}
	return len(resp.GlobalTransactions), nil
}

var errUnreadable = errors.New("bench: not all records are readable")

// verify counts what a read_committed reader may see: all, on both clusters.
func (s *settling) verify(ctx context.Context, n int) error {
	for i, cl := range s.clusters {
		adm := kadm.NewClient(cl)
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			return err
		}
		stable, err := adm.ListCommittedOffsets(ctx, topic)
		if err != nil {
			return err
		}
		var written, readable int64
		ends.Each(func(o kadm.ListedOffset) { written += o.Offset })
		stable.Each(func(o kadm.ListedOffset) { readable += o.Offset })
		// Each id is one record and one marker.
		if written != int64(2*n) || readable != written {
			return fmt.Errorf("%w: cluster %s ends at %d and is readable to %d, want %d", errUnreadable, s.ids[i], written, readable, 2*n)
		}
	}
	return nil
}

// each calls f for 0 to n-1, some at a time, and returns the first error.
func each(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var workers sync.WaitGroup
	for range preparing {
		workers.Go(func() {
			for i := next.Add(1) - 1; i < int64(n) && ctx.Err() == nil; i = next.Add(1) - 1 {
				if err := f(ctx, int(i)); err != nil {
					cancel(err)
				}
			}
		})
	}
	workers.Wait()
	return context.Cause(ctx)
}
