package bench

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// SessionTimeout is that of the nodes in Takeover, the shortest that a Kafka
// cluster allows without being told otherwise.
const SessionTimeout = 6 * time.Second

// Takeover measures how long an id has no coordinator after the SIGKILL of the
// node that coordinates it. Two nodes keep their log on a real Kafka cluster,
// a third mini-broker is a participant. The id has a session; it is asked for
// over the node that is left, until that one answers for it.
func Takeover(ctx context.Context, o Options) (time.Duration, error) {
	t := &takeover{dir: filepath.Join(o.Dir, "takeover")}
	defer t.stop()
	if err := t.start(ctx, o); err != nil {
		return 0, err
	}
	return t.measure(ctx)
}

type takeover struct {
	dir         string
	home        *cluster.Cluster
	participant *node.Node
	nodes       []*node.Node
}

func (t *takeover) start(ctx context.Context, o Options) error {
	if err := mkdir(t.dir); err != nil {
		return err
	}
	var err error
	if t.home, err = cluster.Ensure(ctx, "bench-home", cluster.V44); err != nil {
		return err
	}
	free, err := ports(ctx, 3)
	if err != nil {
		return err
	}
	t.participant, err = node.New(o.Minibroker, t.dir, "us", free[0], []string{
		"process.roles=broker", "listeners=PLAINTEXT://" + free[0], "log.dirs=" + filepath.Join(t.dir, "us"),
		"transaction.max.timeout.ms=2147483647", "cluster.id=bench-us",
	})
	if err == nil {
		err = t.participant.Start(ctx)
	}
	if err != nil {
		return err
	}
	for i, addr := range free[1:] {
		n, err := node.New(o.Minibroker, t.dir, fmt.Sprintf("gtc-%d", i), addr, []string{
			"process.roles=gtc", fmt.Sprintf("node.id=%d", i), "listeners=PLAINTEXT://" + addr,
			"gtc.clusters=us", "gtc.cluster.us.bootstrap.servers=" + free[0], "gtc.home.bootstrap.servers=" + t.home.Bootstrap,
			"global.transaction.state.log.replication.factor=1", "global.transaction.state.log.min.isr=1",
			fmt.Sprintf("global.transaction.coordinator.session.timeout.ms=%d", SessionTimeout.Milliseconds()),
		})
		if err == nil {
			err = n.Start(ctx)
		}
		if err != nil {
			return err
		}
		t.nodes = append(t.nodes, n)
	}
	return nil
}

func (t *takeover) stop() {
	for _, n := range append(t.nodes, t.participant) {
		if n != nil && n.Process != nil {
			n.Stop()
		}
	}
	if t.home != nil {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_ = t.home.Down(ctx)
	}
}

const takenOver = "taken-over"

func (t *takeover) measure(ctx context.Context) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	var clients []*kgo.Client
	for _, n := range t.nodes {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr), kgo.MaxVersions(wire.Versions()))
		if err != nil {
			return 0, err
		}
		defer cl.Close()
		clients = append(clients, cl)
	}
	owner, err := t.open(ctx, clients)
	if err != nil {
		return 0, err
	}
	if err := t.nodes[owner].Kill(); err != nil {
		return 0, err
	}
	began := time.Now()
	for other := clients[1-owner]; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if describe(ctx, other, takenOver) != "" {
			return time.Since(began), nil
		}
	}
	return 0, fmt.Errorf("bench: nobody took over: %w", ctx.Err())
}

// open opens a session, when both nodes know who coordinates the id, and
// returns which one does.
func (t *takeover) open(ctx context.Context, clients []*kgo.Client) (owner int, err error) {
	init := wire.NewPtrInitGlobalTxnRequest()
	init.GlobalTransactionalID, init.TimeoutMillis, init.ClusterIDs = takenOver, 60_000, []string{"bench-us"}
	init.InstanceID = [16]byte{1}
	for i := 0; ctx.Err() == nil; i = 1 - i {
		resp, initErr := init.RequestWith(ctx, clients[i].SeedBrokers()[0])
		if initErr == nil {
			initErr = wire.ErrorForCode(resp.ErrorCode)
		}
		if err = initErr; err == nil {
			return i, nil
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 0, errors.Join(ctx.Err(), err)
}

// describe is the state of an id, empty when the coordinator does not tell.
func describe(ctx context.Context, cl *kgo.Client, id string) string {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	resp, err := req.RequestWith(ctx, cl.SeedBrokers()[0])
	if err != nil || len(resp.GlobalTransactions) != 1 || resp.GlobalTransactions[0].ErrorCode != 0 {
		return ""
	}
	return resp.GlobalTransactions[0].State
}
