//go:build kafka

package main

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Two nodes keep their log on a real cluster, and two real clusters take part
// (the home cluster is one of them). The node that coordinates an id is killed
// between the decision and the first EndTxn; the other one takes over when its
// session has timed out, carries the decision out, and the client hears of it by
// itself and goes on.
func TestAKilledCoordinatorIsReplacedOnKafka(t *testing.T) {
	// A name of its own: the log's topic and the group belong to one GTC.
	home := kafkaCluster(t, "gtc-home", cluster.V44)
	clusters := map[string]participantCluster{"us": home, "eu": kafkaCluster(t, "v44b", cluster.V44)}
	topic := newTopic(t, clusters)
	one := startNode(t, 1, home.addr, clusters, "--crash-at", "append-prepare-commit/after:3")
	two := startNode(t, 2, home.addr, clusters)
	// A run before this one may have been killed with its session open.
	within(t, patience, func() error { return shares(one, two) })
	id := one.idOf(t)
	cl := openOver(t, []*gtcNode{one, two}, id, clusters, func(*client.Options) {})

	var want []string
	for i := range 5 {
		value := "v" + strconv.Itoa(i)
		want = append(want, value)
		outcome := commitLater(write(t, cl, topic, value, "us", "eu"))
		if i == 2 { // the third decision of node 1
			<-one.done
			killed := time.Now()
			within(t, patience, func() error { _, err := two.stateOf(id); return err })
			took := time.Since(killed)
			told := <-outcome
			// How long it takes, no busy machine can promise: scripts/bench measures.
			t.Logf("session timeout %v: taken over after %v; the client was told %v after %v", groupSession, took, told.result.Outcome, told.at.Sub(killed))
			outcome = known(told)
		}
		if told := <-outcome; told.err != nil || told.result.Outcome != client.OutcomeCommitted {
			t.Fatalf("transaction %d: %+v, %v", i, told.result, told.err)
		}
		for name, c := range clusters {
			if got := visibleOn(t, c, topic); !slices.Equal(got, want) {
				t.Errorf("after transaction %d %s shows %v, want %v", i, name, got, want)
			}
		}
	}
	for name, c := range clusters {
		if open := openTransactions(t, c, id); len(open) > 0 {
			t.Errorf("%s has %v open", name, open)
		}
	}

	// Node 1 comes back and gets its share again, while node 2 goes on.
	one = startNode(t, 1, home.addr, clusters)
	within(t, patience, func() error { return shares(one, two) })
	if fenced := two.scrape(t)["gtc_log_fenced_total"]; fenced != 0 {
		t.Errorf("node 2 was fenced %v times", fenced)
	}
	if told := <-commitLater(write(t, cl, topic, "last", "us", "eu")); told.err != nil || told.result.Outcome != client.OutcomeCommitted {
		t.Errorf("after node 1 has come back: %+v, %v", told.result, told.err)
	}
}

// known gives an outcome that is known already.
func known(told committed) <-chan committed {
	done := make(chan committed, 1)
	done <- told
	return done
}
