package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Group is a consumer group of one cluster, as one of its members sees it at
// one moment. It is made from a client of that cluster and carries the
// cluster's id, so that offsets read on one cluster cannot be committed to
// another: Kafka's sendOffsetsToTransaction stores them at the producer's
// cluster, whichever cluster they are of, and reports success.
type Group struct {
	clusterID  string
	id         string
	memberID   string
	instanceID *string
	generation int32
}

// String names the group and its cluster.
func (g Group) String() string { return fmt.Sprintf("group %q of cluster id %s", g.id, g.clusterID) }

// ErrNotMember is GroupOf's answer for a client that consumes in a group and is
// not, or not now, a member of it. Offsets committed without a generation are
// not fenced: the member that has the partitions now may commit them too.
var ErrNotMember = errors.New("client: the consumer is not a member of its group now: poll first")

// noGeneration is the generation of who is no member (TxnOffsetCommitRequest.json).
const noGeneration = -1

// GroupOf is the group that cl consumes in, with the member id and generation
// of now: the generation of the classic protocol, the member epoch of KIP-848.
// Kafka refuses offsets of a member that has been replaced since.
//
// It asks the cluster for its id if cl does not know it. ErrNotMember: cl has
// not joined the group, or has lost its place in it.
func GroupOf(ctx context.Context, cl *kgo.Client) (Group, error) {
	id, _ := cl.OptValue(kgo.ConsumerGroup).(string)
	if id == "" {
		return Group{}, errors.New("client: GroupOf a client that does not consume in a group (kgo.ConsumerGroup)")
	}
	g := Group{id: id}
	// A first generation is 1 in both protocols; 0 is a member that joins, -1
	// one that leaves.
	if g.memberID, g.generation = cl.GroupMetadata(); g.memberID == "" || g.generation < 1 {
		return Group{}, ErrNotMember
	}
	if v := cl.OptValues(kgo.InstanceID); len(v) == 2 && v[1] == true {
		instance, _ := v[0].(string)
		g.instanceID = &instance
	}
	var err error
	g.clusterID, err = clusterIDOf(ctx, cl)
	return g, err
}

// StandaloneGroup is a group that has no members now: partitions are assigned by
// hand, or the offsets are kept for somebody else. They are committed without
// member id and generation, so nothing but the transactional id fences them:
// Kafka accepts them in a transaction also while the group has members.
func StandaloneGroup(ctx context.Context, cl *kgo.Client, group string) (Group, error) {
	if group == "" {
		return Group{}, errors.New("client: StandaloneGroup without a name")
	}
	clusterID, err := clusterIDOf(ctx, cl)
	return Group{clusterID: clusterID, id: group, generation: noGeneration}, err
}

// clusterIDOf asks the cluster, unless cl has been told before.
func clusterIDOf(ctx context.Context, cl *kgo.Client) (string, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none, where nil means all
	resp, err := cl.RequestCachedMetadata(ctx, req, 0)
	if err == nil && resp.ClusterID == nil {
		resp, err = req.RequestWith(ctx, cl)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("ask for the cluster id: %w", err)
	case resp.ClusterID == nil || *resp.ClusterID == "":
		return "", errors.New("it has no cluster id")
	}
	return *resp.ClusterID, nil
}
