package broker_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func join(protocols ...string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.ProtocolType, req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 3, "g", "consumer", 6000, 100
	for _, name := range protocols {
		p := kmsg.NewJoinGroupRequestProtocol()
		p.Name = name
		req.Protocols = append(req.Protocols, p)
	}
	return req
}

// kfake counts protocols by name, and ended the process when a name was counted
// twice for one member, or none at all.
func TestGroupProtocolsThatKfakeFallsOver(t *testing.T) {
	n := startNode(t, nil)
	// The first one makes the group's protocol type known without a member.
	pending := join("range")
	pending.Version = 5
	if r := ask[*kmsg.JoinGroupResponse](t, n.dial(t), pending); r.ErrorCode != kerr.MemberIDRequired.Code {
		t.Fatalf("%+v", r)
	}
	if r := ask[*kmsg.JoinGroupResponse](t, n.dial(t), join()); r.ErrorCode != kerr.InconsistentGroupProtocol.Code {
		t.Errorf("no protocol: %+v", r)
	}
	if r := ask[*kmsg.JoinGroupResponse](t, n.dial(t), join("range", "range", "sticky", "range")); r.ErrorCode != 0 || *r.Protocol != "range" {
		t.Errorf("a protocol three times: %+v", r)
	}
	n.serves(t)
}

// kfake keeps quotas as JSON, and the node ended because it could not write.
func TestAQuotaIsAFiniteNumber(t *testing.T) {
	n := startConfigured(t, onDisk(t, t.TempDir()))
	var req kmsg.AlterClientQuotasRequest
	req.Version = 1
	want := []int16{0, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code, kerr.InvalidRequest.Code, 0}
	for i, value := range []float64{1024, math.Inf(1), math.Inf(-1), math.NaN(), 0.5} {
		req.Entries = append(req.Entries, kmsg.AlterClientQuotasRequestEntry{
			Entity: []kmsg.AlterClientQuotasRequestEntryEntity{{Type: "user", Name: kmsg.StringPtr(fmt.Sprint("u", i))}},
			Ops:    []kmsg.AlterClientQuotasRequestEntryOp{{Key: "producer_byte_rate", Value: value}},
		})
	}
	resp := ask[*kmsg.AlterClientQuotasResponse](t, n.dial(t), &req)
	for i, e := range resp.Entries {
		if e.ErrorCode != want[i] || len(e.Entity) != 1 || *e.Entity[0].Name != fmt.Sprint("u", i) {
			t.Errorf("%v: %+v, want code %d", req.Entries[i].Ops[0].Value, e, want[i])
		}
	}
	n.serves(t)
}

// A leader's answer carries what all members have brought. Whoever brings too
// much is no member, and a group is none of that.
func TestAMemberThatBringsTooMuchIsRefused(t *testing.T) {
	n := startNode(t, nil)
	for _, version := range served(t, n.dial(t))[int16(kmsg.JoinGroup)] {
		for size, want := range map[int]int16{100_000: 0, 140_000: kerr.GroupMaxSizeReached.Code} {
			req := join("range", "sticky")
			req.Version, req.Group = version, fmt.Sprint(version, "-", size)
			for i := range req.Protocols {
				req.Protocols[i].Metadata = make([]byte, size/2)
			}
			c := n.dial(t)
			r := ask[*kmsg.JoinGroupResponse](t, c, req)
			if r.ErrorCode == kerr.MemberIDRequired.Code {
				req.MemberID = r.MemberID
				r = ask[*kmsg.JoinGroupResponse](t, c, req)
			}
			if r.ErrorCode != want {
				t.Errorf("v%d, %d bytes: %v, want %v", version, size, kerr.ErrorForCode(r.ErrorCode), kerr.ErrorForCode(want))
			}
			if want == 0 && (len(r.Members) != 1 || len(r.Members[0].ProtocolMetadata) != size/2) {
				t.Errorf("v%d: the leader does not get what it brought", version)
			}
		}
	}
}

func TestAGroupHasRoomForSoManyMembers(t *testing.T) {
	n := startNode(t, []string{"group.max.size=2"})
	refused := kerr.GroupMaxSizeReached.Code
	for i, want := range []int16{kerr.MemberIDRequired.Code, kerr.MemberIDRequired.Code, refused} {
		req := join("range")
		req.Version = 5
		if code := ask[*kmsg.JoinGroupResponse](t, n.dial(t), req).ErrorCode; code != want {
			t.Errorf("member %d of a classic group: %v, want %v", i+1, kerr.ErrorForCode(code), kerr.ErrorForCode(want))
		}
	}
	for i, want := range []int16{0, 0, refused} {
		req := kmsg.NewPtrConsumerGroupHeartbeatRequest()
		req.Version, req.Group, req.MemberID, req.RebalanceTimeoutMillis = 1, "new", fmt.Sprint("member-", i), 1000
		req.SubscribedTopicNames, req.Topics = []string{"t"}, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
		if code := ask[*kmsg.ConsumerGroupHeartbeatResponse](t, n.dial(t), req).ErrorCode; code != want {
			t.Errorf("member %d of a consumer group: %v, want %v", i+1, kerr.ErrorForCode(code), kerr.ErrorForCode(want))
		}
	}
}

// A producer of kgo sends this after two topics were deleted under it.
func TestProduceToTopicsThatAreNotThere(t *testing.T) {
	n := startNode(t, nil)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks = 13, -1
	for i := range byte(3) {
		topic := kmsg.NewProduceRequestTopic()
		topic.TopicID = [16]byte{i + 1}
		for partition := range int32(3) {
			topic.Partitions = append(topic.Partitions, kmsg.ProduceRequestTopicPartition{Partition: partition, Records: batchOf(-1)})
		}
		req.Topics = append(req.Topics, topic)
	}
	r := ask[*kmsg.ProduceResponse](t, n.dial(t), req)
	got := map[string]bool{}
	for _, topic := range r.Topics {
		for _, p := range topic.Partitions {
			got[fmt.Sprintf("%d-%d %v", topic.TopicID[0], p.Partition, kerr.ErrorForCode(p.ErrorCode) == kerr.UnknownTopicID)] = true //nolint:errorlint // the very value
		}
	}
	for i := 1; i <= 3; i++ {
		for partition := range 3 {
			if !got[fmt.Sprintf("%d-%d true", i, partition)] {
				t.Errorf("topic %d, partition %d is not answered UNKNOWN_TOPIC_ID: %v", i, partition, got)
			}
		}
	}
	n.serves(t)
}
