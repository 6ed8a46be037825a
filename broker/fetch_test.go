package broker_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// A fetch that is cut short must still say what was aborted.
func TestAReadCommittedFetchCutShortNamesTheAbortedTransactions(t *testing.T) {
	addr := startNode(t, []string{"auto.create.topics.enable=true", "num.partitions=1"}).addr
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.TransactionalID("aborter"), kgo.AllowAutoTopicCreation(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	if err = cl.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	for range 5 { // five batches
		if err = cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: make([]byte, 100)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	if err = cl.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes, req.IsolationLevel, req.SessionEpoch, req.MinBytes = 1, 1, -1, 1
	topic := kmsg.NewFetchRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewFetchRequestTopicPartition()
	p.PartitionMaxBytes = 1 << 20
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	v12 := wire.Versions()
	v12.SetMaxKeyVersion(int16(kmsg.Fetch), 12) // by topic name
	pinned, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.MaxVersions(v12))
	if err != nil {
		t.Fatal(err)
	}
	defer pinned.Close()
	resp, err := pinned.SeedBrokers()[0].Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0]
	if len(got.RecordBatches) == 0 || len(got.AbortedTransactions) != 1 {
		t.Errorf("%d bytes and %d aborted transactions, want some and 1", len(got.RecordBatches), len(got.AbortedTransactions))
	}
	// The limit still holds: one batch, not five.
	batch := kmsg.RecordBatch{}
	if err := batch.ReadFrom(got.RecordBatches); err != nil {
		t.Fatal(err)
	}
	if whole := int(batch.Length) + 12; whole != len(got.RecordBatches) {
		t.Errorf("%d bytes for a limit of 1, want the one batch of %d", len(got.RecordBatches), whole)
	}
}

// Whatever a client asks for, an answer is not larger than Kafka's default.
func TestAFetchIsBounded(t *testing.T) {
	n := startNode(t, nil)
	cl := n.client(t)
	createTopic(t, cl, "t")
	big := n.client(t, kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.ProducerBatchMaxBytes(1<<20))
	rs := make([]*kgo.Record, 70)
	for i := range rs {
		rs[i] = &kgo.Record{Topic: "t", Value: make([]byte, 1<<20-1000)}
	}
	if err := big.ProduceSync(t.Context(), rs...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	for _, isolation := range []int8{0, 1} {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.MaxBytes, req.IsolationLevel, req.MaxWaitMillis = 12, 1<<31-1, isolation, 100
		for partition := range int32(2) {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition, p.PartitionMaxBytes = partition, 1<<31-1
			req.Topics = append(req.Topics, kmsg.FetchRequestTopic{Topic: "t", Partitions: []kmsg.FetchRequestTopicPartition{p}})
		}
		size := 0
		for _, topic := range ask[*kmsg.FetchResponse](t, n.dial(t), req).Topics {
			for _, p := range topic.Partitions {
				size += len(p.RecordBatches)
			}
		}
		if size < 10<<20 || size > 57<<20 {
			t.Errorf("isolation level %d: %d bytes", isolation, size)
		}
	}
}
