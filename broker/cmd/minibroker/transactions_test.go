package main

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// twoEmbedded are two independent clusters in this process.
func twoEmbedded(t *testing.T) map[string]participantCluster {
	t.Helper()
	return map[string]participantCluster{
		"us": embeddedCluster(t, optedIn, "cluster.id=cluster-us"),
		"eu": embeddedCluster(t, optedIn, "cluster.id=cluster-eu"),
	}
}

func uniqueID(t *testing.T) string {
	t.Helper()
	return "id-" + strconv.FormatInt(time.Now().UnixNano(), 36)
}

// commitAbortCommit runs three transactions in a row on one id and reads every
// cluster back after each.
func commitAbortCommit(t *testing.T, clusters map[string]participantCluster) {
	t.Helper()
	rig := newCoordinator(t, clusters)
	topic, id := newTopic(t, clusters), uniqueID(t)
	cl := openClient(t, rig, id, clusters)
	var want []string
	for i, commit := range []bool{true, false, true, true} {
		value := "v" + strconv.Itoa(i)
		txn := write(t, cl, topic, value, "us", "eu")
		var result client.Result
		var err error
		if commit {
			want = append(want, value)
			result, err = txn.Commit(t.Context())
		} else {
			result, err = txn.Abort(t.Context())
		}
		if err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
		if committed := result.Outcome == client.OutcomeCommitted; committed != commit {
			t.Errorf("transaction %d: outcome %v", i, result.Outcome)
		}
		for name, c := range clusters {
			if got := visibleOn(t, c, topic); !slices.Equal(got, want) {
				t.Errorf("transaction %d: %s shows %v, want %v", i, name, got, want)
			}
		}
	}
	for name, c := range clusters {
		if open := openTransactions(t, c, id); len(open) > 0 {
			t.Errorf("%s has %v open", name, open)
		}
	}
}

func TestThreeGlobalTransactionsInARowOnOneID(t *testing.T) { commitAbortCommit(t, twoEmbedded(t)) }

// cost runs f and returns what it cost the coordinator.
func (r *coordinatorRig) cost(f func()) (requests int, appends, records int64) {
	reqs, stats := r.requests.total(), r.log.Stats()
	f()
	now := r.log.Stats()
	return r.requests.total() - reqs, now.Appends - stats.Appends, now.Records - stats.Records
}

func TestCommitOverTwoClustersCostsOneRequestAndOneForcedAppend(t *testing.T) {
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters)
	topic := newTopic(t, clusters)
	cl := openClient(t, rig, uniqueID(t), clusters)
	for i := range 3 {
		txn := write(t, cl, topic, "v"+strconv.Itoa(i), "us", "eu")
		requests, appends, _ := rig.cost(func() {
			if _, err := txn.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if requests != 1 || appends != 1 {
			t.Errorf("commit %d cost %d requests and %d forced appends, want 1 and 1", i, requests, appends)
		}
	}
}

func TestAbortBeforeCommitWasAskedCostsNothing(t *testing.T) {
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters)
	topic := newTopic(t, clusters)
	cl := openClient(t, rig, uniqueID(t), clusters)
	requests, appends, _ := rig.cost(func() {
		txn := write(t, cl, topic, "never", "us", "eu")
		if _, err := txn.Abort(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if requests != 0 || appends != 0 {
		t.Errorf("an abort cost %d requests and %d appends, want none", requests, appends)
	}
	for name, c := range clusters {
		if got := visibleOn(t, c, topic); len(got) != 0 {
			t.Errorf("%s shows %v after an abort", name, got)
		}
	}
}

func TestOneParticipantCostsNoDecisionRecord(t *testing.T) {
	clusters := twoEmbedded(t)
	rig := newCoordinator(t, clusters)
	topic := newTopic(t, clusters)
	cl := openClient(t, rig, uniqueID(t), clusters)
	txn := write(t, cl, topic, "alone", "us")
	requests, appends, _ := rig.cost(func() {
		if _, err := txn.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	if requests != 1 || appends != 0 {
		t.Errorf("a one-phase commit cost %d requests and %d appends before its answer, want 1 and 0", requests, appends)
	}
	if got := visibleOn(t, clusters["us"], topic); !slices.Equal(got, []string{"alone"}) {
		t.Errorf("us shows %v", got)
	}
	if got := visibleOn(t, clusters["eu"], topic); len(got) != 0 {
		t.Errorf("eu shows %v", got)
	}
}
