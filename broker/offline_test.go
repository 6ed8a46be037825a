package broker_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/internal/batchtest"
)

func TestADamagedPartitionIsOfflineAndTheOthersAreServed(t *testing.T) {
	dir := t.TempDir()
	n := startNode(t, []string{"log.dirs=" + dir})
	createTopic(t, n.client(t), "t") // of two partitions
	c, good := n.dial(t), batchtest.Plain(3).Raw()
	for range 3 {
		if resp := ask[*kmsg.ProduceResponse](t, c, produceRequest(12, -1, to{"t", 0, good}, to{"t", 1, good})); resp.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatal(resp.Topics)
		}
	}
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: "t", Partition: 0, At: 7, LeaderEpoch: -1})
	if err := kadm.NewClient(n.client(t)).CommitAllOffsets(t.Context(), "g", offsets); err != nil {
		t.Fatal(err)
	}
	n.stop()
	segment := filepath.Join(dir, "partitions", "t-0", "0.dat")
	raw, err := os.ReadFile(segment)
	if err != nil {
		t.Fatal(err)
	}
	raw[100] ^= 1
	if err = os.WriteFile(segment, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	records := int64(9)
	for range 2 { // it stays so
		n = startNode(t, []string{"log.dirs=" + dir})
		n.isOffline(t)
		if _, end := n.dial(t).fetchedFrom("t", 1); end != records+3 {
			t.Errorf("partition 1 ends at %d, want %d", end, records+3)
		}
		records += 3
		n.stop()
	}
	n = startNode(t, []string{"log.dirs=" + dir})
	adm := kadm.NewClient(n.client(t))
	if _, err = adm.DeleteTopic(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	createTopic(t, n.client(t), "t")
	if got := n.dial(t).put("t", good); got.ErrorCode != 0 || got.BaseOffset != 0 {
		t.Errorf("a new topic of the same name: %v, offset %d", kerr.ErrorForCode(got.ErrorCode), got.BaseOffset)
	}
}

// isOffline checks every way to partition 0 of t, and adds a batch to partition 1.
func (n *node) isOffline(t *testing.T) {
	t.Helper()
	c, adm := n.dial(t), kadm.NewClient(n.client(t))
	for _, p := range ask[*kmsg.MetadataResponse](t, c, metadataOf(12, false, "t")).Topics[0].Partitions {
		if want := map[int32]int16{0: kerr.LeaderNotAvailable.Code, 1: 0}[p.Partition]; p.ErrorCode != want {
			t.Errorf("Metadata of partition %d: %v", p.Partition, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	good := batchtest.Plain(3).Raw()
	for _, p := range ask[*kmsg.ProduceResponse](t, c, produceRequest(12, -1, to{"t", 0, good}, to{"t", 1, good})).Topics[0].Partitions {
		if want := map[int32]int16{0: kerr.KafkaStorageError.Code, 1: 0}[p.Partition]; p.ErrorCode != want {
			t.Errorf("Produce to partition %d: %v", p.Partition, kerr.ErrorForCode(p.ErrorCode))
		}
	}
	fetch := kmsg.NewPtrFetchRequest()
	fetch.Version = 12
	ft, fp := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	fp.PartitionMaxBytes = 1 << 20
	ft.Topic, ft.Partitions = "t", append(ft.Partitions, fp)
	fetch.Topics = append(fetch.Topics, ft)
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.Version = 7
	lt, lp := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	lp.Timestamp = -1
	lt.Topic, lt.Partitions = "t", append(lt.Partitions, lp)
	offsets.Topics = append(offsets.Topics, lt)
	epochs := kmsg.NewPtrOffsetForLeaderEpochRequest()
	epochs.Version = 3
	et, ep := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
	et.Topic, et.Partitions = "t", append(et.Partitions, ep)
	epochs.Topics = append(epochs.Topics, et)
	drop := kmsg.NewPtrDeleteRecordsRequest()
	drop.Version = 2
	dt, dp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
	dp.Offset = -1
	dt.Topic, dt.Partitions = "t", append(dt.Partitions, dp)
	drop.Topics = append(drop.Topics, dt)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version, init.TransactionalID, init.TransactionTimeoutMillis = 4, kmsg.StringPtr("x"), 60_000
	x := ask[*kmsg.InitProducerIDResponse](t, c, init)
	add := kmsg.NewPtrAddPartitionsToTxnRequest()
	add.Version, add.TransactionalID, add.ProducerID, add.ProducerEpoch = 3, "x", x.ProducerID, x.ProducerEpoch
	at := kmsg.NewAddPartitionsToTxnRequestTopic()
	at.Topic, at.Partitions = "t", []int32{0, 1}
	add.Topics = append(add.Topics, at)
	added := ask[*kmsg.AddPartitionsToTxnResponse](t, c, add).Topics[0].Partitions
	if len(added) != 2 || added[1].ErrorCode != kerr.OperationNotAttempted.Code {
		t.Errorf("AddPartitionsToTxn: %+v", added)
	}
	for name, code := range map[string]int16{
		"Fetch":                ask[*kmsg.FetchResponse](t, c, fetch).Topics[0].Partitions[0].ErrorCode,
		"ListOffsets":          ask[*kmsg.ListOffsetsResponse](t, c, offsets).Topics[0].Partitions[0].ErrorCode,
		"OffsetForLeaderEpoch": ask[*kmsg.OffsetForLeaderEpochResponse](t, c, epochs).Topics[0].Partitions[0].ErrorCode,
		"DeleteRecords":        ask[*kmsg.DeleteRecordsResponse](t, c, drop).Topics[0].Partitions[0].ErrorCode,
		"AddPartitionsToTxn":   added[0].ErrorCode,
	} {
		if code != kerr.KafkaStorageError.Code {
			t.Errorf("%s: %v", name, kerr.ErrorForCode(code))
		}
	}
	committed, err := adm.FetchOffsets(t.Context(), "g")
	if err = errors.Join(err, committed.Error()); err != nil {
		t.Fatal(err)
	}
	if o, ok := committed.Lookup("t", 0); !ok || o.At != 7 {
		t.Errorf("the group's offset is %+v", o)
	}
}
