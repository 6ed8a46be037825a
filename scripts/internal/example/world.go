package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
)

// world is what an example runs in: clusters, and a coordinator for them.
type world struct {
	*options
	dir   string
	rng   *rand.Rand // what the seed decides
	ports *rand.Rand // and what it must not: other runs may have the same seed
	began time.Time

	gtc      *node.Node
	clusters map[string]string // bootstrap addresses
	nodes    []*node.Node      // clusters that are mini-brokers
	real     []*cluster.Cluster
}

func newWorld(o *options, dir string) *world {
	return &world{options: o, dir: dir, rng: rand.New(rand.NewPCG(o.seed, 1)), ports: rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 2)), began: time.Now(), clusters: map[string]string{}}
}

func (w *world) say(format string, args ...any) {
	fmt.Fprintf(w.out, "%7.2fs  %s\n", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// realClusters is how many Apache Kafka clusters are started at most; further
// ones are mini-brokers.
const realClusters = 2

// start brings the named clusters up, and the coordinator.
func (w *world) start(ctx context.Context, names []string) error {
	properties := []string{
		"process.roles=broker,gtc", "gtc.clusters=" + strings.Join(names, ","),
		"global.transaction.scan.interval.ms=1000", "global.transaction.retry.backoff.max.ms=1000",
		"global.transaction.state.log.num.partitions=8",
	}
	for i, name := range names {
		var addr string
		var err error
		if w.kafka && i < realClusters {
			addr, err = w.apacheKafka(ctx, name)
		} else {
			addr, err = w.miniBroker(ctx, name)
		}
		if err != nil {
			return err
		}
		w.clusters[name] = addr
		properties = append(properties, "gtc.cluster."+name+".bootstrap.servers="+addr)
	}
	var err error
	if w.gtc, err = w.node(ctx, "gtc", properties...); err != nil {
		return err
	}
	w.say("coordinator: a mini-broker with process.roles=broker,gtc on %s", w.gtc.Addr)
	return nil
}

func (w *world) apacheKafka(ctx context.Context, name string) (string, error) {
	c, err := cluster.Ensure(ctx, "example-"+name, cluster.V44)
	if err != nil {
		return "", err
	}
	w.real = append(w.real, c)
	w.say("cluster %s: Apache Kafka %s on %s", name, c.Version, c.Bootstrap)
	return c.Bootstrap, nil
}

func (w *world) miniBroker(ctx context.Context, name string) (string, error) {
	n, err := w.node(ctx, name, "process.roles=broker", "cluster.id=example-"+name, "transaction.max.timeout.ms=2147483647")
	if err != nil {
		return "", err
	}
	w.nodes = append(w.nodes, n)
	w.say("cluster %s: a mini-broker on %s", name, n.Addr)
	return n.Addr, nil
}

// node starts a mini-broker.
func (w *world) node(ctx context.Context, name string, properties ...string) (*node.Node, error) {
	addr, err := w.freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	n, err := node.New(w.minibroker, w.dir, name, addr,
		append(properties, "listeners=PLAINTEXT://"+addr, "log.dirs="+filepath.Join(w.dir, name)))
	if err != nil {
		return nil, err
	}
	// Not ctx: its end is a SIGKILL, and stop is politer.
	return n, n.Start(context.WithoutCancel(ctx))
}

// freeAddr stays below the ports that systems give to outgoing connections: one
// of those could sit on it while a killed node is away.
func (w *world) freeAddr(ctx context.Context) (string, error) {
	for range 1000 {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(10_000+w.ports.IntN(10_000)))
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
		if err == nil {
			return addr, l.Close()
		}
	}
	return "", errors.New("found no free port between 10000 and 20000")
}

// stop ends all that was started.
func (w *world) stop() {
	for _, n := range append([]*node.Node{w.gtc}, w.nodes...) {
		if n != nil && n.Process != nil {
			n.Stop()
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range w.real {
		if err := c.Down(ctx); err != nil {
			w.say("could not stop %s: %v", c.Name, err)
		}
	}
}

// createTopics creates topics on a cluster that was just started.
func (w *world) createTopics(ctx context.Context, name string, partitions int32, topics ...string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(w.clusters[name]))
	if err != nil {
		return err
	}
	defer cl.Close()
	resps, err := kadm.NewClient(cl).CreateTopics(ctx, partitions, 1, nil, topics...)
	if err == nil {
		err = resps.Error()
	}
	if err != nil {
		return fmt.Errorf("create topics on %s: %w", name, err)
	}
	return nil
}

// flags are the clusters and the coordinator for a process of the application.
func (w *world) flags() []string {
	flags := []string{"--coordinator", w.gtc.Addr}
	for name, addr := range w.clusters {
		flags = append(flags, "--cluster", name+"="+addr)
	}
	return flags
}
