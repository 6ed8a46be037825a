//go:build kafka

package main

import (
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

func TestAnOperatorSeesWhatPartitionsReallyShowOnKafka(t *testing.T) {
	eu := kafkaCluster(t, "v44b", cluster.V44)
	for _, c := range []struct {
		name    string
		profile cluster.Profile
		named   bool
	}{{"v44", cluster.V44, true}, {"v44tv1", cluster.V44TV1, false}} {
		t.Run(c.name, func(t *testing.T) {
			verifies(t, map[string]participantCluster{"us": kafkaCluster(t, c.name, c.profile), "eu": eu}, c.named)
		})
	}
}
