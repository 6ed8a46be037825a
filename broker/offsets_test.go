package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A transaction of offsets alone leaves its end in the log, where whoever asks
// later, a coordinator that was killed in between, finds how it ended. Offsets
// in several requests leave one record, and the data directory opens again.
func TestATransactionOfOffsetsLeavesAMarker(t *testing.T) {
	dir := t.TempDir()
	n := startConfigured(t, onDisk(t, dir, twoPhase...))
	createTopic(t, n.client(t), "t")
	p, _ := n.initialise(t, "tid", false)
	var want []string
	for i, commit := range []bool{true, false, true} {
		for offset := range int64(2) {
			req := kmsg.NewPtrTxnOffsetCommitRequest()
			req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 5, p.id, p.pid, p.epoch
			req.Group, req.Generation = "g", -1
			req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{{Offset: offset}}}}
			if c := ask[*kmsg.TxnOffsetCommitResponse](t, p.raw, req).Topics[0].Partitions[0].ErrorCode; c != 0 {
				t.Fatal(kerr.ErrorForCode(c))
			}
		}
		r, err := p.end(t, 5, commit)
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, fmt.Sprintf("record of epoch %d", p.epoch), fmt.Sprintf("marker of epoch %d, commit %t", p.epoch, commit))
		p.epoch = r.ProducerEpoch
		if i == 1 {
			n.stop()
			n = startConfigured(t, onDisk(t, dir, twoPhase...))
			p.raw = n.dial(t)
		}
	}
	cl := n.client(t, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"__consumer_offsets": {0: kgo.NewOffset().AtStart()}}), kgo.KeepControlRecords())
	var got []string
	for len(got) < len(want) {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatalf("%v; %q", err, got)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if r.Attrs.IsControl() {
				got = append(got, fmt.Sprintf("marker of epoch %d, commit %t", r.ProducerEpoch, r.Key[3] == 1))
			} else {
				got = append(got, fmt.Sprintf("record of epoch %d", r.ProducerEpoch))
			}
		})
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%d: %s, want %s", i, got[i], want[i])
		}
	}
}

// Kafka's limit, which counts as Java does: what is refused is not committed, and
// the rest is, in every version.
func TestOffsetsWithTooMuchMetadataAreRefused(t *testing.T) {
	n := startNode(t, twoPhase)
	adm := kadm.NewClient(n.client(t))
	if _, err := adm.CreateTopics(t.Context(), 4, 1, nil, "t", "u"); err != nil {
		t.Fatal(err)
	}
	topics, err := adm.ListTopics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	metadata := map[string][]string{
		"t": {strings.Repeat("m", 4096), strings.Repeat("m", 4097), strings.Repeat("😀", 2048), strings.Repeat("😀", 2048) + "m"},
		"u": {strings.Repeat("m", 30_000)},
	}
	check := func(got []string, key kmsg.Key, version int16, group string) {
		t.Helper()
		slices.Sort(got)
		if want := "t-0=0 t-1=12 t-2=0 t-3=12 u-0=12"; strings.Join(got, " ") != want { // 12 is OFFSET_METADATA_TOO_LARGE
			t.Errorf("%s v%d: %q, want %q", key.Name(), version, got, want)
		}
		offsets, err := adm.FetchOffsets(t.Context(), group)
		if err != nil {
			t.Fatal(err)
		}
		var kept []string
		for _, o := range offsets.Sorted() {
			kept = append(kept, fmt.Sprintf("%s-%d at %d", o.Topic, o.Partition, o.At))
		}
		if want := []string{"t-0 at 0", "t-2 at 2"}; !slices.Equal(kept, want) {
			t.Errorf("%s v%d: committed are %q, want %q", key.Name(), version, kept, want)
		}
	}
	result := func(topic string, id [16]byte, partition int32, code int16) string {
		for name, d := range topics {
			if id == d.ID {
				topic = name
			}
		}
		return fmt.Sprintf("%s-%d=%d", topic, partition, code)
	}

	c := n.dial(t)
	versions := served(t, c)
	for _, version := range versions[int16(kmsg.OffsetCommit)] {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group, req.Generation = version, fmt.Sprint("g", version), -1
		for topic, all := range metadata {
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = topic, topics[topic].ID
			for i := range all {
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset, rp.Metadata = int32(i), int64(i), &all[i]
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		var got []string
		for _, rt := range ask[*kmsg.OffsetCommitResponse](t, c, req).Topics {
			for _, p := range rt.Partitions {
				got = append(got, result(rt.Topic, rt.TopicID, p.Partition, p.ErrorCode))
			}
		}
		check(got, kmsg.OffsetCommit, version, req.Group)
	}

	p, _ := n.initialise(t, "tid", false)
	for _, version := range versions[int16(kmsg.TxnOffsetCommit)] {
		add := kmsg.NewPtrAddOffsetsToTxnRequest()
		add.TransactionalID, add.ProducerID, add.ProducerEpoch, add.Group = p.id, p.pid, p.epoch, fmt.Sprint("txn", version)
		if code := ask[*kmsg.AddOffsetsToTxnResponse](t, p.raw, add).ErrorCode; code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = version, p.id, p.pid, p.epoch
		req.Group, req.Generation = add.Group, -1
		for topic, all := range metadata {
			rt := kmsg.NewTxnOffsetCommitRequestTopic()
			rt.Topic, rt.TopicID = topic, topics[topic].ID
			for i := range all {
				rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset, rp.Metadata = int32(i), int64(i), &all[i]
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		var got []string
		for _, rt := range ask[*kmsg.TxnOffsetCommitResponse](t, p.raw, req).Topics {
			for _, q := range rt.Partitions {
				got = append(got, result(rt.Topic, rt.TopicID, q.Partition, q.ErrorCode))
			}
		}
		r, err := p.end(t, 5, true)
		if err != nil {
			t.Fatal(err)
		}
		p.epoch = r.ProducerEpoch
		check(got, kmsg.TxnOffsetCommit, version, req.Group)
	}
}
