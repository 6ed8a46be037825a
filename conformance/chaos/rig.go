package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
)

// Times of the coordinator and of the clusters, short like those of the load.
const (
	scanInterval   = 500 * time.Millisecond
	retryMax       = 500 * time.Millisecond
	requestTimeout = 2 * time.Second
	// brokerSession outlasts every pause (see schedule). A broker that wakes up
	// after its session has, for some ten milliseconds between being fenced and
	// unfenced, no leader for any of its partitions; what is ended then is lost
	// by Kafka itself: 4.4.0 takes such partitions for deleted, leaves out their
	// markers, and calls the transaction complete (KAFKA-20734; found here, in 2
	// of 60 such rounds on a busy machine).
	brokerSession = 8 * time.Second
	// nodeSession is within reach of a pause, so that another node takes over
	// from one that wakes up again.
	nodeSession = 1500 * time.Millisecond
)

// rig is everything that runs: the clusters, the coordinator, the clients, and
// the links between them.
//
//	clients ── client-us ──► us ◄── gtc-us ── coordinator
//	        ── client-eu ──► eu ◄── gtc-eu ──
//	        ── client-gtc ──► coordinator ── gtc-home ──► home (two nodes only)
//
// A broker tells those who ask where to find it. So each cluster has one
// listener for each link, which advertises the proxy's address, and a third one
// that nobody spoils: for its own markers, and for those who judge.
type rig struct {
	o       Options
	dir     string
	rng     *rand.Rand
	links   *links
	byName  map[string]*link
	us, eu  *cluster.Cluster
	home    *cluster.Cluster // nil with one node
	nodes   []*node.Node
	workers []*worker
	// Those who judge, and act; from the driver.
	reader   *reader
	operator *operator
}

// newRig starts everything but the clients' load.
func newRig(ctx context.Context, o Options, dir string) (*rig, error) {
	r := &rig{o: o, dir: dir, rng: rand.New(rand.NewPCG(o.Seed, 1)), links: newLinks(), byName: map[string]*link{}}
	err := r.start(ctx)
	if err != nil {
		return nil, errors.Join(err, r.stop())
	}
	return r, nil
}

func (r *rig) start(ctx context.Context) error {
	var clusters map[string]string
	var err error
	if r.us, clusters, err = r.cluster(ctx, "chaos-us", "client-us", "gtc-us"); err != nil {
		return err
	}
	us := clusters
	if r.eu, clusters, err = r.cluster(ctx, "chaos-eu", "client-eu", "gtc-eu"); err != nil {
		return err
	}
	eu := clusters
	home := ""
	if r.o.Nodes > 1 {
		if r.home, clusters, err = r.cluster(ctx, "chaos-home", "gtc-home"); err != nil {
			return err
		}
		home = clusters["gtc-home"]
	}
	for _, c := range []*cluster.Cluster{r.us, r.eu} {
		if err = createTopics(ctx, c.Bootstrap); err != nil {
			return fmt.Errorf("chaos: topics on %s: %w", c.Name, err)
		}
	}
	coordinator, err := r.coordinator(ctx, us["gtc-us"], eu["gtc-eu"], home)
	if err != nil {
		return err
	}
	for i := range r.o.Clients {
		w := &worker{dir: r.dir, options: LoadOptions{
			ID: fmt.Sprintf("c%d", i+1), Seed: r.o.Seed, Coordinator: coordinator,
			Clusters: map[string]string{"us": us["client-us"], "eu": eu["client-eu"]},
		}}
		r.workers = append(r.workers, w)
		if err := w.start(ctx); err != nil {
			return err
		}
	}
	return nil
}

// cluster starts a fresh cluster with one proxied listener for each link and
// returns the links' addresses.
func (r *rig) cluster(ctx context.Context, name string, linkNames ...string) (*cluster.Cluster, map[string]string, error) {
	free, err := ports(ctx, r.rng.IntN, 2*len(linkNames))
	if err != nil {
		return nil, nil, err
	}
	listeners, advertised := "PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller.port}", "PLAINTEXT://127.0.0.1:{port}"
	protocols := "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
	addrs := map[string]string{}
	for i, l := range linkNames {
		server, proxy := local(free[2*i]), local(free[2*i+1])
		listeners += fmt.Sprintf(",LINK%d://%s", i, server)
		advertised += fmt.Sprintf(",LINK%d://%s", i, proxy)
		protocols += fmt.Sprintf(",LINK%d:PLAINTEXT", i)
		if r.byName[l], err = r.links.add(l, proxy, server); err != nil {
			return nil, nil, err
		}
		addrs[l] = proxy
	}
	p := cluster.V44
	p.Config = append(p.Config[:len(p.Config):len(p.Config)],
		"listeners="+listeners, "advertised.listeners="+advertised, "listener.security.protocol.map="+protocols,
		"inter.broker.listener.name=PLAINTEXT", "group.min.session.timeout.ms=500",
		fmt.Sprintf("broker.session.timeout.ms=%d", brokerSession.Milliseconds()),
		fmt.Sprintf("broker.heartbeat.interval.ms=%d", (brokerSession/4).Milliseconds()))
	// What an earlier run left behind has other ports and an old history.
	_ = (&cluster.Cluster{Name: name}).Down(ctx)
	c, err := cluster.Ensure(ctx, name, p)
	return c, addrs, err
}

// coordinator starts the nodes and returns the addresses that clients use.
func (r *rig) coordinator(ctx context.Context, us, eu, home string) ([]string, error) {
	free, err := ports(ctx, r.rng.IntN, 2*r.o.Nodes)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for i := range r.o.Nodes {
		name, server, proxy := fmt.Sprintf("gtc-%d", i), local(free[2*i]), local(free[2*i+1])
		l, err := r.links.add(fmt.Sprintf("client-gtc-%d", i), proxy, server)
		if err != nil {
			return nil, err
		}
		r.byName[l.name] = l
		properties := []string{
			fmt.Sprintf("node.id=%d", i),
			"listeners=PLAINTEXT://" + server, "advertised.listeners=PLAINTEXT://" + proxy,
			"gtc.clusters=us,eu", "gtc.cluster.us.bootstrap.servers=" + us, "gtc.cluster.eu.bootstrap.servers=" + eu,
			fmt.Sprintf("global.transaction.scan.interval.ms=%d", scanInterval.Milliseconds()),
			fmt.Sprintf("global.transaction.retry.backoff.max.ms=%d", retryMax.Milliseconds()),
			fmt.Sprintf("global.transaction.participant.request.timeout.ms=%d", requestTimeout.Milliseconds()),
		}
		if home == "" {
			properties = append(properties, "process.roles=broker,gtc", "log.dirs="+filepath.Join(r.dir, name))
		} else {
			properties = append(properties, "process.roles=gtc", "gtc.home.bootstrap.servers="+home,
				fmt.Sprintf("global.transaction.coordinator.session.timeout.ms=%d", nodeSession.Milliseconds()),
				"global.transaction.state.log.replication.factor=1", "global.transaction.state.log.min.isr=1")
		}
		n, err := node.New(r.o.Minibroker, r.dir, name, server, properties)
		if err != nil {
			return nil, err
		}
		if err = n.Start(ctx); err != nil {
			return nil, err
		}
		r.nodes = append(r.nodes, n)
		addrs = append(addrs, proxy)
	}
	return addrs, nil
}

// stop ends everything that was started.
func (r *rig) stop() error {
	for _, w := range r.workers {
		if w.Process != nil {
			w.Stop()
			w.read.Wait()
		}
	}
	for _, n := range r.nodes {
		n.Stop()
	}
	r.links.stop()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, c := range []*cluster.Cluster{r.us, r.eu, r.home} {
		if c != nil {
			errs = append(errs, c.Down(ctx))
		}
	}
	return errors.Join(errs...)
}

// participants are the clusters by the names that the load uses.
func (r *rig) participants() map[string]*cluster.Cluster {
	return map[string]*cluster.Cluster{"us": r.us, "eu": r.eu}
}
