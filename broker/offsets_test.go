package broker_test

import (
	"fmt"
	"testing"

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
