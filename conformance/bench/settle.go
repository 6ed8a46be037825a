package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
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
	// it has answered for one of them, and until nothing is pending.
	Ready, Answer, All time.Duration
	// Bare is what the participants need for as many EndTxn from clients that
	// do nothing else; 0 when Options.Bare is not set.
	Bare time.Duration
}

// Settle measures what a coordinator does after a SIGKILL that leaves n commits
// decided in its log of which no participant knows.
//
// Two mini-brokers, or two Kafka clusters, take part, each behind a holder. On
// both, every id has a record in an open transaction without timeout, and the
// coordinator is asked to commit it. It looks at both clusters, makes its
// decision durable, and tries to tell them; the holder answers
// COORDINATOR_LOAD_IN_PROGRESS. When the coordinator says of every id
// "committed, pending", it is killed, and started again with the clusters' own
// addresses: a holder between them would take its share of the machine.
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
	free        []string // addresses that nobody listens on
	minibroker  string
	measureBare bool
	holders     []*holder
	direct      []string // the clusters' own addresses
	nodes       []*node.Node
	kafka       []*cluster.Cluster
	coordinator *node.Node
	gtc         *kgo.Client
	clusters    []*kgo.Client
	ids         []string // of the clusters
}

func newSettling(ctx context.Context, o Options) (*settling, error) {
	s := &settling{dir: filepath.Join(o.Dir, "settle"), minibroker: o.Minibroker, measureBare: o.Bare}
	if err := mkdir(s.dir); err != nil {
		return s, err
	}
	var err error
	if s.free, err = ports(ctx, 1+3*len(aliases)); err != nil {
		return s, err
	}
	var held []string
	for i, name := range aliases {
		server, direct, proxy := s.free[1+3*i], s.free[2+3*i], s.free[3+3*i]
		if direct, err = s.startParticipant(ctx, o, name, server, direct, proxy); err != nil {
			return s, err
		}
		h, holdErr := newHolder(ctx, proxy, server)
		if holdErr != nil {
			return s, holdErr
		}
		s.holders, s.direct, held = append(s.holders, h), append(s.direct, direct), append(held, proxy)
		if err = s.openCluster(ctx, direct); err != nil {
			return s, err
		}
	}
	if err = s.startCoordinator(ctx, held); err != nil {
		return s, err
	}
	s.gtc, err = kgo.NewClient(kgo.SeedBrokers(s.coordinator.Addr), kgo.MaxVersions(wire.Versions()))
	return s, err
}

// aliases are the coordinator's names for the clusters.
var aliases = []string{"us", "eu"}

// startCoordinator starts it for the first time, or again with the same log and
// other addresses of the clusters.
func (s *settling) startCoordinator(ctx context.Context, clusters []string) (err error) {
	addr := s.free[0]
	properties := []string{
		"process.roles=broker,gtc", "listeners=PLAINTEXT://" + addr, "log.dirs=" + filepath.Join(s.dir, "gtc"),
		"gtc.clusters=" + strings.Join(aliases, ","),
	}
	for i, name := range aliases {
		properties = append(properties, "gtc.cluster."+name+".bootstrap.servers="+clusters[i])
	}
	if s.coordinator, err = node.New(s.minibroker, s.dir, "gtc", addr, properties); err != nil {
		return err
	}
	return s.coordinator.Start(ctx)
}

// startParticipant starts a cluster with two listeners: the clients of one are
// sent to the proxy, and those of the other, which it returns, are not.
func (s *settling) startParticipant(ctx context.Context, o Options, name, server, direct, proxy string) (string, error) {
	if o.Kafka {
		p := cluster.V44
		p.Config = append(p.Config[:len(p.Config):len(p.Config)],
			"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller.port},HELD://"+server,
			"advertised.listeners=PLAINTEXT://127.0.0.1:{port},HELD://"+proxy,
			"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,HELD:PLAINTEXT",
			"inter.broker.listener.name=PLAINTEXT")
		_ = (&cluster.Cluster{Name: "bench-" + name}).Down(ctx) // an earlier run has left it with other ports
		c, err := cluster.Ensure(ctx, "bench-"+name, p)
		if err != nil {
			return "", err
		}
		s.kafka = append(s.kafka, c)
		return c.Bootstrap, nil
	}
	n, err := node.New(cmp.Or(o.Participant, o.Minibroker), s.dir, name, server, []string{
		"process.roles=broker", "listeners=PLAINTEXT://" + direct + ",HELD://" + server,
		"advertised.listeners=PLAINTEXT://" + direct + ",HELD://" + proxy, "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,HELD:PLAINTEXT",
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
	return direct, err
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
	if s.coordinator != nil && s.coordinator.Process != nil {
		s.coordinator.Stop()
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
	r, err := s.settle(ctx, ends)
	if err != nil {
		return r, err
	}
	if err = s.verify(ctx, n); err == nil && s.measureBare {
		r.Bare, err = s.bare(ctx, n)
	}
	return r, err
}

// settle starts the coordinator again and waits until nothing is pending. A list
// of all ids costs the one who is measured, so it is asked for only when single
// ids are complete.
func (s *settling) settle(ctx context.Context, ends []*wire.EndGlobalTxnRequest) (r Settled, err error) {
	r.Ids = len(ends)
	began := time.Now()
	if err = s.startCoordinator(ctx, s.direct); err != nil {
		return r, err
	}
	r.Ready = time.Since(began)
	pending := -1
	for i := 0; ctx.Err() == nil; {
		state := describe(ctx, s.gtc, ends[i].GlobalTransactionalID)
		if state != "" && r.Answer == 0 {
			r.Answer = time.Since(began)
		}
		if state != "CompleteCommit" {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if next := i + 1 + len(ends)/100; next < len(ends) {
			i = next
			continue
		}
		if pending, err = s.pending(ctx); err == nil && pending == 0 {
			r.All = time.Since(began)
			return r, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return r, fmt.Errorf("bench: %d commits pending: %w", pending, errors.Join(ctx.Err(), err))
}

// bare ends as many transactions of the same kind without a coordinator.
func (s *settling) bare(ctx context.Context, n int) (time.Duration, error) {
	ends := make([][]*kmsg.EndTxnRequest, n)
	err := each(ctx, n, func(ctx context.Context, i int) error {
		for _, cl := range s.clusters {
			id := fmt.Sprintf("bare-%05d", i)
			pid, epoch, err := open(ctx, cl, id, int32(i%8))
			if err != nil {
				return err
			}
			end := kmsg.NewPtrEndTxnRequest()
			end.TransactionalID, end.ProducerID, end.ProducerEpoch, end.Commit = id, pid, epoch, true
			ends[i] = append(ends[i], end)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	const connections = 8 // to each cluster, as the coordinator has
	var clients [connections][]*kgo.Client
	for i := range clients {
		for _, addr := range s.direct {
			cl, openErr := kgo.NewClient(kgo.SeedBrokers(addr))
			if openErr != nil {
				return 0, openErr
			}
			defer cl.Close()
			clients[i] = append(clients[i], cl)
		}
	}
	began := time.Now()
	err = each(ctx, n*len(s.direct), func(ctx context.Context, i int) error {
		k := i % len(s.direct)
		i /= len(s.direct)
		return again(ctx, func() error {
			resp, askErr := ends[i][k].RequestWith(ctx, clients[i%connections][k])
			if askErr == nil {
				askErr = kerr.ErrorForCode(resp.ErrorCode)
			}
			return askErr
		})
	})
	return time.Since(began), err
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

// verify waits until a read_committed reader may see all, on both clusters:
// Kafka's markers follow the answer.
func (s *settling) verify(ctx context.Context, n int) error {
	for {
		err := s.readable(ctx, n)
		if !errors.Is(err, errUnreadable) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (s *settling) readable(ctx context.Context, n int) error {
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
