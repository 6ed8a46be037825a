//go:build kafka

package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
)

// V44Unstable offers InitProducerId v6 and refuses Enable2Pc.
var v44Unstable = cluster.Profile{Version: "4.4.0", Config: []string{
	"transaction.max.timeout.ms=2147483647", "unstable.api.versions.enable=true",
}}

// realCluster is a participant on Apache Kafka with a topic of its own.
func realCluster(t *testing.T, name, kafka string, p cluster.Profile, transactionV1 bool) (participantCluster, string) {
	t.Helper()
	c := cluster.Up(t, kafka, p)
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(c.Bootstrap))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	topic := fmt.Sprintf("client-%s-%d", name, time.Now().UnixNano())
	if _, err := adm.CreateTopic(deadline(t, patience), 1, 1, nil, topic); err != nil {
		t.Fatal(err)
	}
	return participantCluster{name: name, addr: c.Bootstrap, id: c.ID, transactionV1: transactionV1, endTxns: new(atomic.Int64)}, topic
}

// counted counts the EndTxn that a client writes to its connections.
func counted(conf Cluster, endTxns *atomic.Int64) Cluster {
	conf.Dialer = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return countingConn{c, endTxns}, err
	}
	return conf
}

type countingConn struct {
	net.Conn
	endTxns *atomic.Int64
}

func (c countingConn) Write(p []byte) (int, error) { // a whole frame, as kgo writes it
	if key, _, _, err := peekRequest(p[4:]); err == nil && key == keyEndTxn {
		c.endTxns.Add(1)
	}
	return c.Conn.Write(p)
}

func TestKafka(t *testing.T) {
	for _, c := range []struct {
		name          string
		profile       cluster.Profile
		transactionV1 bool
		mode          TwoPhaseCommit
	}{
		{"v44", cluster.V44, false, TwoPhaseCommitAuto},
		{"v44-2pc", cluster.V44TwoPC, false, TwoPhaseCommitOn},
		{"v44-tv1", cluster.V44TV1, true, TwoPhaseCommitAuto},
		{"v391", cluster.V391, true, TwoPhaseCommitOff},
		{"v44-unstable", v44Unstable, false, TwoPhaseCommitAuto},
	} {
		t.Run(c.name, func(t *testing.T) {
			us, usTopic := realCluster(t, "us", "client-"+c.name, c.profile, c.transactionV1)
			eu := newKfake(t, "eu")
			k := kafkaEnv{newFakeCoordinator(t, us, eu), us, eu, usTopic, c.mode}
			k.transactions(t)
		})
	}
}

type kafkaEnv struct {
	*fakeCoordinator
	us, eu  participantCluster
	usTopic string
	mode    TwoPhaseCommit
}

func (k kafkaEnv) options(id string) Options {
	us := Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(k.us.addr)}, ID: k.us.id, TwoPhaseCommit: k.mode}
	return Options{
		GlobalTransactionalID: id,
		Coordinator:           []string{k.addr},
		Clusters: map[string]Cluster{
			"us": counted(us, k.us.endTxns),
			"eu": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(k.eu.addr)}},
		},
	}
}

func (k kafkaEnv) transactions(t *testing.T) {
	t.Helper()
	id := k.usTopic
	cl := open(t, k.options(id))
	var want []string
	fill := func(txn *Txn, v string) {
		txn.Produce(t.Context(), "us", &kgo.Record{Topic: k.usTopic, Value: []byte(v)}, nil)
		produce(t, txn, "eu", v)
	}
	for i := range 3 {
		txn := begin(t, cl)
		v := fmt.Sprint(i)
		want = append(want, v)
		fill(txn, v)
		if i == 0 {
			k.noTimeout(t, txn, id)
		}
		commit(t, txn)
	}
	if got := k.us.endTxns.Load(); got != 0 {
		t.Errorf("the client sent %d EndTxn, want none", got)
	}

	txn := begin(t, cl)
	fill(txn, "aborted")
	flush(t, txn) // a record that has not left needs no EndTxn
	if r, err := txn.Abort(deadline(t, patience)); err != nil || !r.Complete() {
		t.Fatalf("Abort = %+v, %v", r, err)
	}
	sent := k.us.endTxns.Load() // more than one when the cluster was still busy with the end before
	if sent == 0 {
		t.Error("the client sent no EndTxn for its own abort")
	}
	txn = begin(t, cl)
	fill(txn, "with a record too large")
	txn.Produce(t.Context(), "us", &kgo.Record{Topic: k.usTopic, Value: make([]byte, 3<<20)}, nil)
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*AbortedError)) || !errors.Is(err, kerr.MessageTooLarge) {
		t.Fatalf("Commit = %v, want an AbortedError because of MESSAGE_TOO_LARGE", err)
	}
	txn = begin(t, cl)
	fill(txn, "last")
	want = append(want, "last")
	commit(t, txn)

	// The same id, taken over by another client.
	txn = begin(t, cl)
	fill(txn, "left open")
	flush(t, txn)
	second := open(t, k.options(id))
	if _, err := txn.Commit(deadline(t, patience)); !errors.As(err, new(*FencedError)) {
		t.Fatalf("Commit of the first client = %v, want a FencedError", err)
	}
	txn = begin(t, second)
	fill(txn, "second client")
	want = append(want, "second client")
	commit(t, txn)

	if got := visibleIn(t, k.us.addr, k.usTopic); !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
	if got := visible(t, k.eu.addr); !slices.Equal(got, want) {
		t.Errorf("eu shows %q, want %q", got, want)
	}
	if got := readIndependently(t, k.us.addr, k.usTopic, 3); !slices.Equal(got, want[:3]) {
		t.Errorf("kafka-go reads %q first, want %q", got, want[:3])
	}
}

func flush(t *testing.T, txn *Txn) {
	t.Helper()
	if err := txn.flush(t.Context(), func(cl *kgo.Client) error { return cl.Flush(t.Context()) }); err != nil {
		t.Fatal(err)
	}
}

// noTimeout asks the cluster itself how long the open transaction may last.
func (k kafkaEnv) noTimeout(t *testing.T, txn *Txn, id string) {
	t.Helper()
	flush(t, txn)
	adm, err := kadm.NewOptClient(kgo.SeedBrokers(k.us.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer adm.Close()
	described, err := adm.DescribeTransactions(deadline(t, patience), id)
	if err != nil {
		t.Fatal(err)
	}
	if d := described[id]; d.Err != nil || d.State != "Ongoing" || d.TimeoutMillis != 2147483647 {
		t.Errorf("the cluster describes %+v, want Ongoing without timeout", d)
	}
}

func TestKafkaThatHasNotOptedIn(t *testing.T) {
	us, usTopic := realCluster(t, "us", "client-v44-plain", cluster.V44Plain, false)
	eu := newKfake(t, "eu")
	k := kafkaEnv{newFakeCoordinator(t, us, eu), us, eu, usTopic, TwoPhaseCommitAuto}
	for _, k.mode = range []TwoPhaseCommit{TwoPhaseCommitAuto, TwoPhaseCommitOn, TwoPhaseCommitOff} {
		var not *NotEnabledError
		if err := openFails(t, k.options(usTopic)); !errors.As(err, &not) || not.Cluster != "us" {
			t.Errorf("mode %d: Open = %v, want a NotEnabledError for us", k.mode, err)
		}
	}
}

// Case 14: the broker is killed and comes back between the decision and the
// next transaction; the producer goes on.
func TestKafkaKilledBetweenTransactions(t *testing.T) {
	const name = "client-v44-killed"
	us, usTopic := realCluster(t, "us", name, cluster.V44, false)
	eu := newKfake(t, "eu")
	k := kafkaEnv{newFakeCoordinator(t, us, eu), us, eu, usTopic, TwoPhaseCommitAuto}
	cl := open(t, k.options(usTopic))
	var want []string
	c := cluster.Up(t, name, cluster.V44)
	for i := range 3 {
		if i > 0 {
			if err := c.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		txn, err := cl.Begin(deadline(t, patience))
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprint(i))
		txn.Produce(t.Context(), "us", &kgo.Record{Topic: usTopic, Value: []byte(want[i])}, nil)
		produce(t, txn, "eu", want[i])
		if _, err := txn.Commit(deadline(t, patience)); err != nil {
			t.Fatal(err)
		}
	}
	if got := visibleIn(t, k.us.addr, usTopic); !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
	if err := c.Down(context.Background()); err != nil {
		t.Error(err)
	}
}

// Kafka 4.4 offers InitProducerId v6 and answers KeepPreparedTxn with
// UNSUPPORTED_VERSION and no effect; the client then initialises as ever.
func TestKafkaDoesNotKeepPreparedTransactions(t *testing.T) {
	us, usTopic := realCluster(t, "us", "client-v44-2pc", cluster.V44TwoPC, false)
	k := kafkaEnv{newFakeCoordinator(t, us), us, us, usTopic, TwoPhaseCommitOn}
	o := k.options(usTopic)
	delete(o.Clusters, "eu")
	write := func(v string) *Txn {
		txn := begin(t, open(t, o))
		if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: usTopic, Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		return txn
	}
	earlier := write("a")
	p, err := newParticipant("us", usTopic, Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(us.addr)}, TwoPhaseCommit: TwoPhaseCommitOn})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	if err = p.openRaw(t.Context()); err != nil {
		t.Fatal(err)
	}
	if node, found := p.keeper(deadline(t, patience)); found != nil || node == nil {
		t.Errorf("keeper = %v, want a broker that offers version 6", found)
	}
	if err = p.initialiseKeeping(deadline(t, patience), asked{granted, granted}); !errors.Is(err, errNotKept) {
		t.Errorf("initialiseKeeping = %v, want errNotKept", err)
	}
	resp, err := p.describe(deadline(t, patience))
	if err != nil {
		t.Fatal(err)
	}
	theirs := earlier.session.participant("us")
	if s := resp.TransactionStates[0]; s.State != "Ongoing" || s.ProducerID != theirs.producerID || s.ProducerEpoch != theirs.producerEpoch {
		t.Errorf("the transaction is %s of %d epoch %d, want Ongoing of %d epoch %d", s.State, s.ProducerID, s.ProducerEpoch, theirs.producerID, theirs.producerEpoch)
	}
	if _, err := write("b").Commit(deadline(t, patience)); err != nil {
		t.Fatal(err)
	}
	if got, want := visibleIn(t, us.addr, usTopic), []string{"b"}; !slices.Equal(got, want) {
		t.Errorf("us shows %q, want %q", got, want)
	}
}
