package main

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// verifier runs "verify" over an id's transactions.
type verifier struct {
	bin, addr, id, topic string
	clusters             map[string]participantCluster
	cl                   *client.Client
}

func newVerifier(t *testing.T, clusters map[string]participantCluster) *verifier {
	t.Helper()
	rig := newCoordinator(t, clusters)
	v := &verifier{bin: operatorsTool(t), addr: rig.addr, id: uniqueID(t), topic: newTopic(t, clusters), clusters: clusters}
	v.cl = openClient(t, rig, v.id, clusters)
	return v
}

func (v *verifier) run(t *testing.T, args ...string) (out string, code int) {
	t.Helper()
	args = append([]string{"verify", v.id}, args...)
	for name, c := range v.clusters {
		args = append(args, "--participant", name+"="+c.addr)
	}
	return operatorCode(t, v.bin, v.addr, args...)
}

// says wants an exit code, and a line of the table that has all of the words, for
// each list of words.
func (v *verifier) says(t *testing.T, want int, lines ...[]string) {
	t.Helper()
	out, code := v.run(t, "--topic", v.topic)
	if code != want {
		t.Errorf("exit code %d, want %d:\n%s", code, want, out)
	}
	for _, words := range lines {
		if !slices.ContainsFunc(strings.Split(out, "\n"), func(line string) bool {
			return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
		}) {
			t.Errorf("no line has %q:\n%s", words, out)
		}
	}
	if n := strings.Count(out, "CONTRADICTS"); (n > 0) != (want == 1) || n > 1 {
		t.Errorf("%d contradictions:\n%s", n, out)
	}
}

func (v *verifier) admin(t *testing.T, cluster string) *kadm.Client {
	t.Helper()
	return kadm.NewClient(kgoClient(t, v.clusters[cluster].addr))
}

// write writes three records in one batch on us, into partition 0 of the topic, and
// one on eu.
func (v *verifier) write(t *testing.T) *client.Txn {
	t.Helper()
	txn, err := v.cl.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key := []byte("x") // one partition for all
	for range 3 {
		txn.Produce(t.Context(), "us", &kgo.Record{Topic: v.topic, Key: key, Value: []byte("a")}, nil)
	}
	if err := txn.ProduceSync(t.Context(), "eu", &kgo.Record{Topic: v.topic, Key: key, Value: []byte("b")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	if err := txn.ProduceSync(t.Context(), "us", &kgo.Record{Topic: v.topic, Key: key, Value: []byte("c")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	return txn
}

// commit waits until it can be seen. What contradicts it is what the test is about.
func (v *verifier) commit(t *testing.T, txn *client.Txn) {
	t.Helper()
	if _, err := txn.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = txn.WaitVisible(t.Context())
}

// refuse has the coordinator decide abort: an outsider's InitProducerId has ended
// the transaction on us.
func (v *verifier) refuse(t *testing.T, txn *client.Txn) {
	t.Helper()
	outsider := kgoClient(t, v.clusters["us"].addr, kgo.TransactionalID(v.id))
	if _, _, err := outsider.ProducerID(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := txn.Commit(t.Context()); !errors.As(err, new(*client.AbortedError)) {
		t.Fatalf("Commit = %v, want an AbortedError", err)
	}
}

// open is where us has the transaction open, which has just been written.
func (v *verifier) open(t *testing.T) kadm.DescribedProducer {
	t.Helper()
	topics, err := v.admin(t, "us").DescribeProducers(t.Context(), kadm.TopicsSet{v.topic: {0: {}, 1: {}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range topics.SortedProducers() {
		if p.CurrentTxnStartOffset >= 0 {
			return p
		}
	}
	t.Fatal("us has nothing open")
	return kadm.DescribedProducer{}
}

func (v *verifier) abortByHand(t *testing.T, p kadm.DescribedProducer) {
	t.Helper()
	markers, err := v.admin(t, "us").WriteTxnMarkers(t.Context(), kadm.TxnMarkers{
		ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, CoordinatorEpoch: max(p.CoordinatorEpoch, 0), Topics: kadm.TopicsSet{p.Topic: {p.Partition: {}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	markers.Each(func(m kadm.TxnMarkersResponse) {
		m.Topics.EachPartition(func(p kadm.TxnMarkersPartitionResponse) {
			if p.Err != nil {
				t.Fatal(p.Err)
			}
		})
	})
}

func (v *verifier) deleteRecords(t *testing.T, p kadm.DescribedProducer, at int64) {
	t.Helper()
	deleted, err := v.admin(t, "us").DeleteRecords(t.Context(), kadm.Offsets{p.Topic: {p.Partition: {Topic: p.Topic, Partition: p.Partition, At: at}}})
	if err == nil {
		err = deleted.Error()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// verifies runs transactions that outsiders have been at, and verify names what
// they did, and only that. named: the epoch names a transaction.
func verifies(t *testing.T, clusters map[string]participantCluster, named bool) {
	t.Helper()
	v := newVerifier(t, clusters)
	eu := []string{"eu (" + clusters["eu"].id, "agrees", "1 record at offset ", "commit marker"}

	v.commit(t, v.write(t))
	v.says(t, 0, []string{v.id, "CompleteCommit"}, []string{"us (" + clusters["us"].id, "agrees", "4 records at offsets 0 to 3, commit marker at offset 4"}, eu)
	v.refuse(t, v.write(t))
	v.says(t, 0, []string{"CompleteAbort"}, []string{"us (", "agrees", "4 records at offsets 5 to 8, abort marker at offset 9"})
	if out, code := v.run(t, "--all-topics", "--json"); code != 0 || strings.Count(out, `"Verdict":"agrees"`) != 2 || !allJSON(out) {
		t.Errorf("exit code %d:\n%s", code, out)
	}

	txn := v.write(t)
	v.abortByHand(t, v.open(t))
	v.commit(t, txn)
	v.says(t, 1, []string{"CompleteCommit"}, []string{"us (", "CONTRADICTS", "4 records at offsets 10 to 13, abort marker at offset 14", "commit was decided"}, eu)

	txn = v.write(t)
	open := v.open(t)
	v.commit(t, txn)
	v.deleteRecords(t, open, open.CurrentTxnStartOffset+2) // within the first batch
	if named {
		v.says(t, 1, []string{"us (", "CONTRADICTS", "2 records at offsets ", "its beginning is gone (records: 2): the log begins at offset "}, eu)
	}
	v.deleteRecords(t, open, open.CurrentTxnStartOffset+4)
	v.says(t, 1, []string{"us (", "CONTRADICTS", "no record, commit marker at offset ", "its records are gone: the log begins at offset "}, eu)

	v.commit(t, v.write(t))
	v.says(t, 0, []string{"us (", "agrees", "4 records"}, eu)
	us := v.admin(t, "us")
	if _, err := us.DeleteTopic(t.Context(), v.topic); err != nil {
		t.Fatal(err)
	}
	until(t, func() error { _, err := us.CreateTopic(t.Context(), 2, 1, nil, v.topic); return err })
	v.says(t, 1, []string{"us (", "CONTRADICTS", "no partition shows anything of it"}, eu)

	all := v.clusters
	v.clusters = map[string]participantCluster{"eu": all["eu"]}
	v.says(t, 2, []string{clusters["us"].id, "not read", "no --participant leads to this cluster"}, eu)
}

func allJSON(out string) bool {
	for line := range strings.Lines(out) {
		if !json.Valid([]byte(line)) {
			return false
		}
	}
	return true
}

func TestAnOperatorSeesWhatPartitionsReallyShow(t *testing.T) { verifies(t, twoEmbedded(t), true) }
