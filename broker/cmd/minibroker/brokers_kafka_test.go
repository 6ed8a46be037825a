//go:build kafka

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// brokerPair is a cluster of two brokers, of which the second, which is not the
// controller, can be killed. The transaction coordinators' log is on both.
//
// It is of Kafka 4.0, because 4.4.0 keeps no marker for a partition without a
// leader: it takes such a partition for deleted, leaves its marker out, and calls
// the transaction complete (KAFKA-20734).
type brokerPair struct {
	participantCluster
	adm    *kadm.Client
	second *cluster.Cluster
}

// The brokers' node ids.
const (
	firstBroker  = 1
	secondBroker = 2
)

func newBrokerPair(t *testing.T) *brokerPair {
	t.Helper()
	p := cluster.V400
	p.Config = append(slices.Clone(p.Config), "transaction.state.log.replication.factor=2",
		"broker.session.timeout.ms=5000", "broker.heartbeat.interval.ms=500")
	b := &brokerPair{participantCluster: kafkaCluster(t, "pair", p)}
	p.Join = "pair"
	b.second = cluster.Up(t, "pair-2", p)
	b.adm = kadm.NewClient(kgoClient(t, b.addr))
	until(t, func() error { // it may just have been killed by another test
		brokers, err := b.adm.ListBrokers(t.Context())
		if err == nil && len(brokers) != 2 {
			err = fmt.Errorf("%d brokers, want 2", len(brokers))
		}
		return err
	})
	return b
}

func (b *brokerPair) coordinator(t *testing.T, id string) (int32, error) {
	t.Helper()
	found := b.adm.FindTxnCoordinators(t.Context(), id)
	return found[id].NodeID, found.Error()
}

// idAt is a transactional id that a broker coordinates. Where partitions have
// gone when a broker was killed they come home by an election.
func (b *brokerPair) idAt(t *testing.T, broker int32) (id string) {
	t.Helper()
	until(t, func() error {
		_, err := b.adm.ElectLeaders(t.Context(), kadm.ElectPreferredReplica, nil)
		for i := 0; i < 20 && err == nil; i++ { // as many as there are partitions, four times
			var at int32
			id = fmt.Sprintf("%s-%d", uniqueID(t), i)
			if at, err = b.coordinator(t, id); err == nil && at == broker {
				return nil
			}
		}
		return fmt.Errorf("broker %d coordinates no transactional id: %w", broker, err)
	})
	return id
}

// createAt creates a topic of two partitions, both on one broker alone.
func (b *brokerPair) createAt(t *testing.T, topic string, broker int32) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = 10_000
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, -1, -1
	for p := range int32(2) {
		a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
		a.Partition, a.Replicas = p, []int32{broker}
		rt.ReplicaAssignment = append(rt.ReplicaAssignment, a)
	}
	req.Topics = append(req.Topics, rt)
	until(t, func() error { // a broker that is late for its controller takes no partition
		resp, err := req.RequestWith(t.Context(), kgoClient(t, b.addr))
		if err == nil {
			err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
		}
		return err
	})
}

// withEmbedded is the pair as us beside an embedded cluster as eu, and a topic
// on both, in us on one broker alone.
func (b *brokerPair) withEmbedded(t *testing.T, broker int32) (clusters map[string]participantCluster, topic string) {
	t.Helper()
	eu := embeddedCluster(t, optedIn, "cluster.id=cluster-eu")
	topic = newTopic(t, map[string]participantCluster{"eu": eu})
	b.createAt(t, topic, broker)
	return map[string]participantCluster{"us": b.participantCluster, "eu": eu}, topic
}

// groupAt is a name for a group that a broker coordinates.
func (b *brokerPair) groupAt(t *testing.T, broker int32) (group string) {
	t.Helper()
	until(t, func() error {
		var err error
		for i := 0; i < 20 && err == nil; i++ {
			group = fmt.Sprintf("g-%s-%d", uniqueID(t), i)
			found := b.adm.FindGroupCoordinators(t.Context(), group)
			if err = found.Error(); err == nil && found[group].NodeID == broker {
				return nil
			}
		}
		return fmt.Errorf("broker %d coordinates no group: %w", broker, err)
	})
	return group
}

// Case 35: us has accepted the commit, which is what complete means, and cannot
// write its markers, because the broker that leads the partitions is dead.
// WaitVisible says so, and when it has returned, record and offset are there.
func TestWaitVisibleWaitsForPartitionsWithoutALeaderOnKafka(t *testing.T) {
	b := newBrokerPair(t)
	clusters, topic := b.withEmbedded(t, secondBroker)
	cl := openClient(t, newCoordinator(t, clusters), b.idAt(t, firstBroker), clusters)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	us := kgoClient(t, b.addr)
	name := b.groupAt(t, secondBroker)
	group, err := client.StandaloneGroup(ctx, us, name)
	if err != nil {
		t.Fatal(err)
	}
	txn := write(t, cl, topic, "v", "us", "eu")
	if err := txn.CommitOffsets(ctx, group, map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: 42}}}); err != nil {
		t.Fatal(err)
	}
	if err := b.second.Kill(ctx); err != nil {
		t.Fatal(err)
	}
	if r, err := txn.Commit(ctx); err != nil || r.Outcome != client.OutcomeCommitted || !r.Complete() {
		t.Fatalf("%+v, %v, want committed and complete", r, err)
	}
	var pending *client.PendingError
	for limit := 2 * time.Second; ; limit *= 2 { // in which eu answers
		short, cancelShort := context.WithTimeout(ctx, limit)
		r, err := txn.WaitVisible(short)
		cancelShort()
		if errors.As(err, &pending) && slices.Equal(pending.Clusters, []string{"us"}) && pending.Outcome == client.OutcomeCommitted {
			break
		}
		if err == nil || ctx.Err() != nil {
			t.Fatalf("WaitVisible while the markers cannot be written: %+v, %v, want a PendingError for us", r, err)
		}
	}
	if err := b.second.Start(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.WaitVisible(ctx); err != nil {
		t.Fatal(err)
	}
	for name, c := range clusters {
		if got, open := visibleNow(t, c, topic); open || !slices.Equal(got, []string{"v"}) {
			t.Errorf("%s shows %v (open %v), want v", name, got, open)
		}
	}
	if got := committedOffset(t, b.participantCluster, name, topic); got != 42 {
		t.Errorf("the group stands at %d, want 42", got)
	}
}

// Case 30: the broker that coordinates us's transaction is killed when the
// commit is decided, and never comes back. The same process, which has asked
// that broker before, finds the one that coordinates now and ends the
// transaction there, and the id goes on.
func TestACommitFollowsTheTransactionCoordinatorToAnotherBrokerOnKafka(t *testing.T) {
	b := newBrokerPair(t)
	clusters, topic := b.withEmbedded(t, firstBroker)
	id := b.idAt(t, secondBroker)
	var armed atomic.Bool
	rig := newCoordinatorWith(t, clusters, func(o *service.Options) {
		o.Fault = func(point string) {
			if point == "append-prepare-commit/after" && armed.CompareAndSwap(true, false) {
				if err := b.second.Kill(context.Background()); err != nil {
					t.Error(err)
				}
			}
		}
	})
	cl := openClient(t, rig, id, clusters)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	var want []string
	for i := range 3 {
		value := fmt.Sprint("v", i)
		want = append(want, value)
		txn := write(t, cl, topic, value, "us", "eu")
		armed.Store(i == 1)
		if r, err := txn.Commit(ctx); err != nil || r.Outcome != client.OutcomeCommitted {
			t.Fatalf("transaction %d: %+v, %v", i, r, err)
		}
		if r, err := txn.WaitVisible(ctx); err != nil || !r.Complete() {
			t.Fatalf("transaction %d: %+v, %v", i, r, err)
		}
		for name, c := range clusters {
			if got, open := visibleNow(t, c, topic); open || !slices.Equal(got, want) {
				t.Errorf("transaction %d: %s shows %v (open %v), want %v", i, name, got, open, want)
			}
		}
	}
	if at, err := b.coordinator(t, id); err != nil || at != firstBroker {
		t.Errorf("the id is coordinated by broker %d (%v), so nothing has moved", at, err)
	}
}
