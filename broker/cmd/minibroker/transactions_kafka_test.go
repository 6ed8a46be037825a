//go:build kafka

package main

import (
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

func kafkaCluster(t *testing.T, name string, p cluster.Profile) participantCluster {
	t.Helper()
	c := cluster.Up(t, name, p)
	return participantCluster{addr: c.Bootstrap, id: c.ID}
}

func TestThreeGlobalTransactionsInARowOnKafka(t *testing.T) {
	other := kafkaCluster(t, "v44b", cluster.V44)
	for _, c := range []struct {
		name    string
		profile cluster.Profile
	}{
		{"v44", cluster.V44},
		{"v44tv1", cluster.V44TV1},
		{"v391", cluster.V391},
	} {
		t.Run(c.name, func(t *testing.T) {
			commitAbortCommit(t, map[string]participantCluster{"us": kafkaCluster(t, c.name, c.profile), "eu": other})
		})
	}
}
