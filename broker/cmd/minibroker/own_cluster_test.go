package main

import (
	"bytes"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// gtc.clusters names the others; the cluster of a node with both roles takes
// part as it is.
func TestTheNodesOwnClusterTakesPartWithoutBeingNamed(t *testing.T) {
	eu := embeddedCluster(t, optedIn, "cluster.id=cluster-eu")
	node := serve(t, t.TempDir(),
		"--override", "process.roles=broker,gtc", "--override", "cluster.id=cluster-own", "--override", optedIn,
		"--override", "global.transaction.state.log.num.partitions=2",
		"--override", "gtc.clusters=eu", "--override", "gtc.cluster.eu.bootstrap.servers="+eu.addr)
	clusters := map[string]participantCluster{"own": {addr: node.addr, id: "cluster-own"}, "eu": eu}
	topic := newTopic(t, clusters)
	o := client.Options{GlobalTransactionalID: "id", Coordinator: []string{node.addr}, Clusters: map[string]client.Cluster{}}
	for alias, c := range clusters {
		o.Clusters[alias] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.addr)}}
	}
	cl, err := client.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cl.Close(t.Context()) }()
	txn := write(t, cl, topic, "both", "own", "eu")
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, c := range clusters {
		if got := visibleOn(t, c, topic); !slices.Equal(got, []string{"both"}) {
			t.Errorf("%s shows %v", name, got)
		}
	}
}

// The log asks its brokers how long they remember a producer. The node's own never
// forgets one, and says so: a warning at every start would be read once.
func TestTheLogOnTheNodesOwnBrokerWarnsOfNothing(t *testing.T) {
	cfg := testConfig(t, "process.roles=broker,gtc", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs="+t.TempDir(),
		"global.transaction.state.log.num.partitions=1")
	ln, node, err := listenOne(t.Context(), cfg.NodeID, cfg.Listeners[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	embedded, err := broker.OpenEmbedded(cfg, node, nil, quiet())
	if err != nil {
		t.Fatal(err)
	}
	defer embedded.Close()
	var out bytes.Buffer
	log, err := openLog(t.Context(), broker.Options{Config: cfg, Node: node, Embedded: embedded, Log: zerolog.New(&out).Level(zerolog.WarnLevel)})
	if err != nil {
		t.Fatal(err)
	}
	log.Close()
	if out.Len() > 0 {
		t.Errorf("warned of: %s", out.String())
	}
}
