package broker_test

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// A forged decision in the coordinator's log would be carried out, and who may
// claim a partition of it can fence the coordinator.
func TestClientsDoNotWriteToInternalTopics(t *testing.T) {
	for name, c := range map[string]struct {
		roles string
		log   int16 // the code for a record to the log's topic
	}{
		"coordinator": {"broker,gtc", kerr.InvalidTopicException.Code},
		// It may be the home cluster of others.
		"broker": {"broker", 0},
	} {
		t.Run(name, func(t *testing.T) {
			var opts []nodeOption
			if c.roles != "broker" {
				opts = append(opts, withCoordinator(echo))
			}
			n := startNode(t, []string{"process.roles=" + c.roles}, opts...)
			cl, err := kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.Dialer(n.embedded.Dial)) // in the node's own name
			if err != nil {
				t.Fatal(err)
			}
			defer cl.Close()
			if _, err = kadm.NewClient(cl).CreateTopics(t.Context(), 1, 1, nil, txnlog.Topic, "orders"); err != nil {
				t.Fatal(err)
			}
			topics, err := kadm.NewClient(cl).ListTopics(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, version := range []int16{9, 13} {
				req := kmsg.NewPtrProduceRequest()
				req.Version, req.Acks, req.TimeoutMillis = version, -1, 10_000
				for _, topic := range []string{txnlog.Topic, "orders"} {
					rt := kmsg.NewProduceRequestTopic()
					rt.Topic, rt.TopicID = topic, topics[topic].ID
					rp := kmsg.NewProduceRequestTopicPartition()
					rp.Records = batch(func(*kmsg.RecordBatch) {})
					rt.Partitions = append(rt.Partitions, rp)
					req.Topics = append(req.Topics, rt)
				}
				codes := map[string]int16{}
				for _, rt := range ask[*kmsg.ProduceResponse](t, n.dial(t), req).Topics {
					for name, d := range topics {
						if rt.Topic == name || version >= 13 && rt.TopicID == d.ID {
							codes[name] = rt.Partitions[0].ErrorCode
						}
					}
				}
				if len(codes) != 2 || codes[txnlog.Topic] != c.log || codes["orders"] != 0 {
					t.Errorf("Produce v%d: %v", version, codes)
				}
			}
			init := kmsg.NewPtrInitProducerIDRequest()
			init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = kmsg.StringPtr("__gtc-0"), 1000, -1, -1
			want := int16(0)
			if c.log != 0 {
				want = kerr.TransactionalIDAuthorizationFailed.Code
			}
			if code := ask[*kmsg.InitProducerIDResponse](t, n.dial(t), init).ErrorCode; code != want {
				t.Errorf("InitProducerId of a claim: %v", kerr.ErrorForCode(code))
			}
		})
	}
}

// kfake writes and forces a marker as often as it is named, in the loop that
// serves everybody.
func TestAMarkerGoesToAPartitionOnce(t *testing.T) {
	n := startNode(t, nil)
	createTopic(t, n.client(t), "t")
	marker := func(producer int64, epoch int16, partitions ...int32) kmsg.WriteTxnMarkersRequestMarker {
		return kmsg.WriteTxnMarkersRequestMarker{
			ProducerID: producer, ProducerEpoch: epoch, Topics: []kmsg.WriteTxnMarkersRequestMarkerTopic{{Topic: "t", Partitions: partitions}},
		}
	}
	req := kmsg.NewPtrWriteTxnMarkersRequest()
	req.Version = 1
	req.Markers = []kmsg.WriteTxnMarkersRequestMarker{marker(7, 0, 0), marker(7, 1, 0), marker(8, 0, 0), marker(7, 0, 0), marker(9, 0, 0, 0)}
	want := []int16{0, 0, 0, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code}
	for i, m := range ask[*kmsg.WriteTxnMarkersResponse](t, n.dial(t), req).Markers {
		if code := m.Topics[0].Partitions[0].ErrorCode; m.ProducerID != req.Markers[i].ProducerID || code != want[i] {
			t.Errorf("marker %d of producer %d: code %d, want %d", i, m.ProducerID, code, want[i])
		}
	}
	if _, end := n.dial(t).fetched("t"); end != 3 {
		t.Errorf("t has %d markers, want 3", end)
	}
}
