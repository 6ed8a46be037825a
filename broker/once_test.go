package broker_test

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// kfake forces what it keeps for each element by itself, in the loop that serves
// everybody, so an element that comes again is refused and the first is served.
func TestAnElementIsKeptOnceInARequest(t *testing.T) {
	n := startNode(t, nil)
	cl := n.client(t)
	createTopic(t, cl, "t")
	if err := kadm.NewClient(cl).CommitAllOffsets(t.Context(), "g", kadm.OffsetsFromRecords(kgo.Record{Topic: "t", Offset: 41})); err != nil {
		t.Fatal(err)
	}
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "g", -1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{
		{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}, {Offset: 2}}},
		{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 3}}},
	}
	remove := kmsg.NewPtrOffsetDeleteRequest()
	remove.Group = "g"
	remove.Topics = []kmsg.OffsetDeleteRequestTopic{
		{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}, {}}},
		{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{}}},
	}
	set := kmsg.NewPtrIncrementalAlterConfigsRequest()
	of := kmsg.IncrementalAlterConfigsRequestResource{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t",
		Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: kmsg.StringPtr("1000000")}},
	}
	set.Resources = append(set.Resources, of, of, of)
	setAll := kmsg.NewPtrAlterConfigsRequest()
	all := kmsg.AlterConfigsRequestResource{
		ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t",
		Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: kmsg.StringPtr("1000000")}},
	}
	setAll.Resources = append(setAll.Resources, all, all, all)
	c := n.dial(t)
	var got [4][]int16
	for _, topic := range ask[*kmsg.OffsetCommitResponse](t, c, commit).Topics {
		for _, p := range topic.Partitions {
			got[0] = append(got[0], p.ErrorCode)
		}
	}
	offsets, err := kadm.NewClient(cl).FetchOffsets(t.Context(), "g")
	if o, _ := offsets.Lookup("t", 0); err != nil || o.At != 1 {
		t.Errorf("the group stands at %d, %v; want 1", o.At, err)
	}
	for _, topic := range ask[*kmsg.OffsetDeleteResponse](t, c, remove).Topics {
		for _, p := range topic.Partitions {
			got[1] = append(got[1], p.ErrorCode)
		}
	}
	for _, r := range ask[*kmsg.IncrementalAlterConfigsResponse](t, c, set).Resources {
		got[2] = append(got[2], r.ErrorCode)
	}
	for _, r := range ask[*kmsg.AlterConfigsResponse](t, c, setAll).Resources {
		got[3] = append(got[3], r.ErrorCode)
	}
	again := kerr.InvalidRequest.Code
	for i, what := range []string{"OffsetCommit", "OffsetDelete", "IncrementalAlterConfigs", "AlterConfigs"} {
		slices.Sort(got[i])
		if !slices.Equal(got[i], []int16{0, again, again}) {
			t.Errorf("%s: %v, want one 0 and two of %d", what, got[i], again)
		}
	}
}
