package main

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

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
