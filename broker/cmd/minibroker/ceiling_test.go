package main

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
)

// Case 4: the producer epochs of one participant run out while global
// transactions go on, through client, coordinator and cluster. Nobody notices:
// the reply carries the new producer id, and the next transaction commits.
func TestTransactionsGoOnWhenProducerEpochsRunOut(t *testing.T) {
	clusters := asClusters(newScripted(t, "us", 2), newScripted(t, "eu", 2)) // kfake itself: the front believes no epoch
	rig, topic, id := newCoordinator(t, clusters), newTopic(t, clusters), uniqueID(t)
	const last = 32766 // the highest epoch that a producer is given
	used := useUpEpochs(t, clusters["us"], id, last-4)
	cl := openClient(t, rig, id, clusters)
	var want []string
	seen := map[int64][]int16{}
	for i := range 8 {
		value := fmt.Sprint("v", i)
		txn := write(t, cl, topic, value, "us", "eu")
		p := openProducer(t, clusters["us"], id)
		seen[p.ProducerID] = append(seen[p.ProducerID], p.ProducerEpoch)
		if r, err := txn.Commit(t.Context()); err != nil || r.Outcome != client.OutcomeCommitted || !r.Complete() {
			t.Fatalf("transaction %d: %+v, %v", i, r, err)
		}
		want = append(want, value)
		for name, c := range clusters {
			if got := visibleOn(t, c, topic); !slices.Equal(got, want) {
				t.Fatalf("transaction %d: %s shows %v, want %v", i, name, got, want)
			}
		}
	}
	if len(seen) != 2 || seen[used][len(seen[used])-1] != last {
		t.Errorf("producer ids and epochs %v: the epochs of %d did not run out", seen, used)
	}
}

// useUpEpochs initialises the producer of id and takes it to an epoch, by a batch
// that says so, which kfake believes. (Ending empty transactions does the same
// in thirty thousand requests.)
func useUpEpochs(t *testing.T, c participantCluster, id string, epoch int16) (producerID int64) {
	t.Helper()
	cl := kgoClient(t, c.addr, kgo.MaxVersions(kversion.V3_7_0())) // versions that name the topic, and not its id
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &id, math.MaxInt32
	p, err := init.RequestWith(t.Context(), cl)
	if err != nil || p.ErrorCode != 0 {
		t.Fatalf("InitProducerId: %+v, %v", p, err)
	}
	topic := newTopic(t, map[string]participantCluster{"": c})
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis = -1, 10_000
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Records = batchOfOne(p.ProducerID, epoch)
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic, rt.Partitions = topic, append(rt.Partitions, rp)
	produce.Topics = append(produce.Topics, rt)
	resp, err := produce.RequestWith(t.Context(), cl)
	if err != nil || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		t.Fatalf("Produce: %+v, %v", resp, err)
	}
	return p.ProducerID
}

// batchOfOne is a record batch with one empty record.
func batchOfOne(producerID int64, epoch int16) []byte {
	record := []byte{12, 0, 0, 0, 1, 1, 0} // its length 6; attributes, deltas, null key and value, no headers
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, ProducerID: producerID, ProducerEpoch: epoch, NumRecords: 1, Records: record,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// openProducer is the producer of what is open on a cluster under id.
func openProducer(t *testing.T, c participantCluster, id string) kmsg.DescribeTransactionsResponseTransactionState {
	t.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := req.RequestWith(t.Context(), kgoClient(t, c.addr))
	if err != nil || len(resp.TransactionStates) != 1 || resp.TransactionStates[0].ErrorCode != 0 {
		t.Fatalf("DescribeTransactions: %+v, %v", resp, err)
	}
	return resp.TransactionStates[0]
}
