package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// partitions of the topic on each cluster.
const partitions = 8

// pair is two clusters and a coordinator in front of them, with its log where
// it belongs: on one of them if they are Kafka, and otherwise on its own disk.
type pair struct {
	dir   string
	kafka []*cluster.Cluster
	nodes []*node.Node
	addrs map[string]string // of the clusters, by alias
	gtc   string
}

func newPair(ctx context.Context, o Options, name string) (*pair, error) {
	p := &pair{dir: filepath.Join(o.Dir, name), addrs: map[string]string{}}
	if err := p.start(ctx, o); err != nil {
		p.stop()
		return nil, err
	}
	return p, nil
}

func (p *pair) start(ctx context.Context, o Options) error {
	if err := mkdir(p.dir); err != nil {
		return err
	}
	free, err := ports(ctx, 1+len(aliases))
	if err != nil {
		return err
	}
	properties := []string{"gtc.clusters=us,eu"}
	for i, name := range aliases {
		if err := p.participant(ctx, o, name, free[1+i]); err != nil {
			return err
		}
		properties = append(properties, "gtc.cluster."+name+".bootstrap.servers="+p.addrs[name])
	}
	if o.Kafka {
		properties = append(properties, "process.roles=gtc", "gtc.home.bootstrap.servers="+p.addrs["us"],
			"global.transaction.state.log.replication.factor=1", "global.transaction.state.log.min.isr=1")
	} else {
		properties = append(properties, "process.roles=broker,gtc", "log.dirs="+filepath.Join(p.dir, "gtc"))
	}
	p.gtc = free[0]
	return p.node(ctx, o, "gtc", p.gtc, properties...)
}

func (p *pair) participant(ctx context.Context, o Options, name, addr string) error {
	p.addrs[name] = addr
	if o.Kafka {
		c, err := cluster.Ensure(ctx, "bench-pair-"+name, cluster.V44)
		if err != nil {
			return err
		}
		p.kafka = append(p.kafka, c)
		p.addrs[name] = c.Bootstrap
	} else if err := p.node(ctx, o, name, addr, "process.roles=broker", "transaction.max.timeout.ms=2147483647", "log.dirs="+filepath.Join(p.dir, name)); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(p.addrs[name]))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, partitions, 1, nil, topic)
	return err
}

func (p *pair) node(ctx context.Context, o Options, name, addr string, properties ...string) error {
	n, err := node.New(o.Minibroker, p.dir, name, addr,
		append(properties, "listeners=PLAINTEXT://"+addr))
	if err == nil {
		err = n.Start(ctx)
	}
	if err == nil {
		p.nodes = append(p.nodes, n)
	}
	return err
}

// open is a client of global transactions with so many ids.
func (p *pair) open(ctx context.Context, id string, ring int) (*client.Client, error) {
	o := client.Options{GlobalTransactionalID: id, Ring: ring, Coordinator: []string{p.gtc}, Clusters: map[string]client.Cluster{}}
	for name, addr := range p.addrs {
		o.Clusters[name] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(addr)}}
	}
	cl, err := client.Open(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("bench: open %s: %w", id, err)
	}
	return cl, nil
}

func (p *pair) stop() {
	for _, n := range p.nodes {
		n.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range p.kafka {
		_ = c.Down(ctx)
	}
}

func record() *kgo.Record { return &kgo.Record{Topic: topic, Value: make([]byte, 100)} }
