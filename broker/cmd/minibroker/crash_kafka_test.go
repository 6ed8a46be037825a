//go:build kafka

package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

// onKafka are the kills that differ most in what the participants have seen of
// the transaction: nothing, a look, an end of one of the two, an end of both.
var onKafka = []string{
	"commit/vote-after-1", "commit/append-prepare-commit-before-1", "commit/append-prepare-commit-after-1",
	"commit/end-txn-before-2", "commit/end-txn-after-1", "commit/reply-before-2",
	"vote refused/append-prepare-abort-after-1", "vote refused/end-txn-after-1",
	"abort asked/end-txn-before-2",
	"one phase/end-txn-after-1", "one phase/append-lazy-before-1",
	"timeout/append-prepare-abort-before-1", "timeout/end-txn-before-2",
}

func TestAKillLeavesOneOutcomeOnKafka(t *testing.T) {
	clusters := map[string]participantCluster{
		"us": kafkaCluster(t, "v44", cluster.V44), "eu": kafkaCluster(t, "v44b", cluster.V44),
	}
	left := slices.Clone(onKafka)
	for _, c := range crashes() {
		i := slices.Index(left, c.String())
		if i < 0 {
			continue
		}
		left = slices.Delete(left, i, i+1)
		t.Run(c.String(), func(t *testing.T) { runCrash(t, clusters, c) })
	}
	if len(left) > 0 {
		t.Errorf("not in the table: %v", left)
	}
}

// On transaction.version 1 the end of a transaction is forced before it is told
// (C-END-16): killed on either side of that record, the id goes on.
func TestAKillAroundAForcedEndLeavesOneOutcomeOnKafka(t *testing.T) {
	clusters := map[string]participantCluster{
		"us": kafkaCluster(t, "v44tv1", cluster.V44TV1), "eu": kafkaCluster(t, "v44b", cluster.V44),
	}
	for _, at := range points("append-complete:1", "end-txn:2") {
		c := crash{commitOverTwo, at}
		t.Run(c.String(), func(t *testing.T) { runCrash(t, clusters, c) })
	}
}

func TestACommitIsVisibleWhenWaitVisibleReturnsOnKafka(t *testing.T) {
	eu := kafkaCluster(t, "v44b", cluster.V44)
	for name, p := range map[string]cluster.Profile{"v44": cluster.V44, "v44tv1": cluster.V44TV1} {
		t.Run(name, func(t *testing.T) {
			visibleWhenToldSo(t, map[string]participantCluster{"us": kafkaCluster(t, name, p), "eu": eu})
		})
	}
}

func TestAParticipantWithNothingButGroupOffsetsIsCommittedOnKafka(t *testing.T) {
	v := offsetsOnly(t, map[string]participantCluster{"us": kafkaCluster(t, "v44", cluster.V44), "eu": kafkaCluster(t, "v44b", cluster.V44)})
	// The embedded broker leaves no trace of them from such a client.
	if out, code := v.run(t, "--all-topics"); code != 0 || strings.Count(out, "agrees") != 2 || !strings.Contains(out, " __consumer_offsets-") {
		t.Errorf("exit code %d, want 0, and group offsets that agree:\n%s", code, out)
	}
}
