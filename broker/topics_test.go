package broker_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func metadataOf(version int16, allow bool, topics ...string) *kmsg.MetadataRequest {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.AllowAutoTopicCreation = version, allow
	for _, name := range topics {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	return req
}

func TestMetadataCreatesTopicsWhenItMay(t *testing.T) {
	for name, c := range map[string]struct {
		overrides []string
		version   int16
		allow     bool
		want      int16
	}{
		"allowed":             {version: 12, allow: true},
		"version without say": {version: 3},
		"client does not ask": {version: 12, want: kerr.UnknownTopicOrPartition.Code},
		"turned off":          {overrides: []string{"auto.create.topics.enable=false"}, version: 12, allow: true, want: kerr.UnknownTopicOrPartition.Code},
	} {
		t.Run(name, func(t *testing.T) {
			conn := startNode(t, append([]string{"num.partitions=3"}, c.overrides...)).dial(t)
			resp := ask[*kmsg.MetadataResponse](t, conn, metadataOf(c.version, c.allow, "t", "t"))
			if len(resp.Topics) != 1 || resp.Topics[0].ErrorCode != c.want || c.want == 0 && len(resp.Topics[0].Partitions) != 3 {
				t.Errorf("%+v, want error %d", resp.Topics, c.want)
			}
			ask[*kmsg.MetadataResponse](t, conn, metadataOf(c.version, c.allow, "t"))
		})
	}
}

func TestMetadataDoesNotCreateWhatKafkaWouldNot(t *testing.T) {
	conn := startNode(t, nil).dial(t)
	for _, name := range []string{"", ".", "..", "a/b", "a b", strings.Repeat("x", 250), "__global_transaction_state"} {
		if resp := ask[*kmsg.MetadataResponse](t, conn, metadataOf(12, true, name)); resp.Topics[0].ErrorCode == 0 {
			t.Errorf("%.20q was created", name)
		}
	}
}

func TestCreateTopicsRefusesNamesAndSizes(t *testing.T) {
	n := startNode(t, nil)
	adm := kadm.NewClient(n.client(t))
	got, err := adm.CreateTopics(t.Context(), 1, 1, nil, "good", "b/ad", strings.Repeat("x", 250), "..", strings.Repeat("y", 249))
	if err != nil {
		t.Fatal(err)
	}
	for name, r := range got {
		want := error(nil)
		if name != "good" && name[0] != 'y' {
			want = kerr.InvalidTopicException
		}
		if !errors.Is(r.Err, want) {
			t.Errorf("%.20q: %v, want %v", name, r.Err, want)
		}
	}
	if len(got) != 5 {
		t.Errorf("%d answers for 5 topics", len(got))
	}
	for _, partitions := range []int32{10_001, math.MaxInt32} {
		if _, err = adm.CreateTopic(t.Context(), partitions, 1, nil, "huge"); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("%d partitions: %v", partitions, err)
		}
		rs, updateErr := adm.UpdatePartitions(t.Context(), int(partitions), "good")
		if updateErr != nil || !errors.Is(rs["good"].Err, kerr.PolicyViolation) {
			t.Errorf("%d partitions: %v %v", partitions, rs, updateErr)
		}
	}
	topics, err := adm.ListTopics(t.Context())
	if names := topics.Names(); err != nil || !slices.Equal(names, []string{"good", strings.Repeat("y", 249)}) {
		t.Errorf("topics %.40q %v", names, err)
	}
}
