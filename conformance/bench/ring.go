package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Pace is how fast one client commits, one transaction after another.
type Pace struct {
	Ring      int
	PerSecond float64
	Median    time.Duration // from Begin to the end of Commit
}

// Ring measures a client with one id and one with a ring of ids, in turns, so
// that what else the machine does concerns both. Each transaction writes one
// record to each of two clusters and is committed before the next one begins.
func Ring(ctx context.Context, o Options, ring, transactions int) (one, many Pace, err error) {
	r := &ringRun{dir: filepath.Join(o.Dir, "ring")}
	defer r.stop()
	if err = r.start(ctx, o); err != nil {
		return one, many, err
	}
	samples := map[int][]time.Duration{}
	clients := map[int]*client.Client{}
	for _, n := range []int{1, ring} {
		if clients[n], err = r.open(ctx, n); err != nil {
			return one, many, err
		}
	}
	defer func() {
		for _, cl := range clients {
			_ = cl.Close(ctx) // nothing is open
		}
	}()
	const turns = 4
	for turn := range 1 + turns { // the first one warms the clusters up
		for n, cl := range clients {
			for range max(1, transactions/turns) {
				took, err := commitOne(ctx, cl)
				if err != nil {
					return one, many, err
				}
				if turn > 0 {
					samples[n] = append(samples[n], took)
				}
			}
		}
	}
	return pace(1, samples[1]), pace(ring, samples[ring]), nil
}

func pace(ring int, took []time.Duration) Pace {
	var sum time.Duration
	for _, d := range took {
		sum += d
	}
	slices.Sort(took)
	return Pace{Ring: ring, PerSecond: float64(len(took)) / sum.Seconds(), Median: took[len(took)/2]}
}

func commitOne(ctx context.Context, cl *client.Client) (time.Duration, error) {
	began := time.Now()
	txn, err := cl.Begin(ctx)
	if err != nil {
		return 0, err
	}
	for _, name := range []string{"us", "eu"} {
		txn.Produce(ctx, name, &kgo.Record{Topic: topic, Value: []byte("ring")}, nil)
	}
	_, err = txn.Commit(ctx)
	return time.Since(began), err
}

type ringRun struct {
	dir   string
	kafka []*cluster.Cluster
	nodes []*node.Node
	addrs map[string]string
	gtc   string
}

func (r *ringRun) start(ctx context.Context, o Options) error {
	if err := mkdir(r.dir); err != nil {
		return err
	}
	free, err := ports(ctx, 3)
	if err != nil {
		return err
	}
	r.addrs = map[string]string{}
	properties := []string{"process.roles=broker,gtc", "gtc.clusters=us,eu"}
	for i, name := range []string{"us", "eu"} {
		if err := r.participant(ctx, o, name, free[i]); err != nil {
			return err
		}
		properties = append(properties, "gtc.cluster."+name+".bootstrap.servers="+r.addrs[name])
	}
	r.gtc = free[2]
	return r.node(ctx, o, "gtc", r.gtc, properties...)
}

func (r *ringRun) participant(ctx context.Context, o Options, name, addr string) error {
	r.addrs[name] = addr
	if o.Kafka {
		c, err := cluster.Ensure(ctx, "bench-ring-"+name, cluster.V44)
		if err != nil {
			return err
		}
		r.kafka = append(r.kafka, c)
		r.addrs[name] = c.Bootstrap
	} else if err := r.node(ctx, o, name, addr, "process.roles=broker", "transaction.max.timeout.ms=2147483647"); err != nil {
		return err
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.addrs[name]))
	if err != nil {
		return err
	}
	defer cl.Close()
	_, err = kadm.NewClient(cl).CreateTopic(ctx, 1, 1, nil, topic)
	return err
}

func (r *ringRun) node(ctx context.Context, o Options, name, addr string, properties ...string) error {
	n, err := node.New(o.Minibroker, r.dir, name, addr,
		append(properties, "listeners=PLAINTEXT://"+addr, "log.dirs="+filepath.Join(r.dir, name)))
	if err == nil {
		err = n.Start(ctx)
	}
	if err == nil {
		r.nodes = append(r.nodes, n)
	}
	return err
}

func (r *ringRun) open(ctx context.Context, ring int) (*client.Client, error) {
	o := client.Options{
		GlobalTransactionalID: fmt.Sprintf("bench-of-%d", ring), Ring: ring,
		Coordinator: strings.Fields(r.gtc), Clusters: map[string]client.Cluster{},
	}
	for name, addr := range r.addrs {
		o.Clusters[name] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(addr)}}
	}
	return client.Open(ctx, o)
}

func (r *ringRun) stop() {
	for _, n := range r.nodes {
		n.Stop()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, c := range r.kafka {
		_ = c.Down(ctx)
	}
}
