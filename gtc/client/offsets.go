package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CommitOffsets adds offsets of a consumer group to the transaction, on the
// cluster that the group is of: the offsets next to be read, by topic and
// partition. They become the group's when the transaction commits, and nothing
// of them stays when it aborts. Until then a fetch of stable offsets
// (KIP-447, all current consumers) waits.
//
// A cluster may take part with offsets alone. Offsets of one partition that are
// given twice: the later ones count. An error makes Commit abort the
// transaction on every cluster, as a failed record does; it is
//
//   - *WrongClusterError when the group's cluster is not among Options.Clusters,
//   - *StaleGroupError when the group has moved on: the member was replaced, or
//     its generation has passed, so somebody else may have the partitions,
//   - *OffsetsError for what else is wrong with the offsets,
//   - ErrTxnOld when they are the first of the transaction and come too late,
//   - ErrTxnEnded after Commit or Abort was called.
//
// What may pass (a coordinator that moves or loads, markers of the transaction
// before that are being written, a topic whose metadata is on its way) is tried
// again until ctx ends, and no longer than the transaction timeout.
func (t *Txn) CommitOffsets(ctx context.Context, g Group, offsets map[string]map[int32]kgo.EpochOffset) error {
	if len(offsets) == 0 {
		return nil
	}
	i, err := t.enterGroup(g)
	switch {
	case errors.Is(err, ErrTxnEnded): // it came after Commit, which is not about it
		return err
	case err != nil:
		t.fail(err)
		return err
	}
	defer t.calls.Done()
	ctx, cancel := context.WithTimeout(ctx, time.Duration(t.session.timeoutMillis)*time.Millisecond)
	defer cancel()
	p := t.session.participants[i]
	if p.stale.Load() {
		if err := t.prepared(ctx, p, func(context.Context) error { return nil }); err != nil {
			err = &OffsetsError{Cluster: p.name, Group: g.id, Err: err}
			t.fail(err)
			return err
		}
	}
	if err := p.commitOffsets(ctx, g, offsets, t.session.coord.backoffMin); err != nil {
		t.fail(err)
		return err
	}
	t.written[i].group(g.id, offsets)
	return nil
}

// enterGroup admits one CommitOffsets call, and says which participant it is for.
func (t *Txn) enterGroup(g Group) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.open(); err != nil {
		return 0, err
	}
	for i, p := range t.session.participants {
		if p.clusterID == g.clusterID {
			t.admit(i)
			return i, nil
		}
	}
	return 0, &WrongClusterError{Group: g.id, ClusterID: g.clusterID}
}

// commitOffsets sends the offsets to the group's coordinator, as a part of the
// transaction under the participant's producer id and epoch. Below
// transaction.version 2 a copy that is still under way would be a part of the
// next transaction under the same epoch, and take the group back.
func (p *participant) commitOffsets(ctx context.Context, g Group, offsets offsetMap, backoff time.Duration) error {
	req := p.offsetsRequest(g, offsets)
	var last error // that tells more than that the time is over
	for pauseFor := backoff; ; pauseFor = min(2*pauseFor, longestBackoff) {
		err := p.commitOffsetsOnce(ctx, req)
		if last == nil || ctx.Err() == nil {
			last = err
		}
		switch {
		case err == nil:
			p.offsets.Store(true)
			return nil
		case stale(err):
			return &StaleGroupError{Cluster: p.name, Group: g.id, Err: err}
		case !offsetsAgain(err):
			return &OffsetsError{Cluster: p.name, Group: g.id, Err: err}
		}
		if ended := pause(ctx, pauseFor); ended != nil {
			p.unsure.Store(true)
			return &OffsetsError{Cluster: p.name, Group: g.id, Err: fmt.Errorf("%w (before that: %w)", ended, last)}
		}
	}
}

func (p *participant) commitOffsetsOnce(ctx context.Context, req *kmsg.TxnOffsetCommitRequest) error {
	if !p.implicit {
		if err := p.addOffsets(ctx, req.Group); err != nil {
			return err
		}
	}
	before := p.writes.offsets.Load()
	resp, err := req.RequestWith(ctx, p.raw)
	if copies := p.writes.offsets.Load() - before; !p.implicit && (copies > 1 || err != nil && copies > 0) {
		p.unsure.Store(true)
	}
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		for _, part := range t.Partitions {
			if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
				return fmt.Errorf("%s-%d: %w", t.Topic, part.Partition, err)
			}
		}
	}
	return nil
}

// addOffsets makes the group's partition of __consumer_offsets a part of the
// transaction. From transaction.version 2 on TxnOffsetCommit v5 does it.
func (p *participant) addOffsets(ctx context.Context, group string) error {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID = p.id
	req.ProducerID, req.ProducerEpoch = p.producerID, p.producerEpoch
	req.Group = group
	resp, err := req.RequestWith(ctx, p.raw)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.ErrorCode)
}

func (p *participant) offsetsRequest(g Group, offsets offsetMap) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID = p.id
	req.ProducerID, req.ProducerEpoch = p.producerID, p.producerEpoch
	req.Group, req.MemberID, req.InstanceID, req.Generation = g.id, g.memberID, g.instanceID, g.generation
	for topic, partitions := range offsets {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic = topic
		for partition, o := range partitions {
			part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset, part.LeaderEpoch = partition, o.Offset, o.Epoch
			t.Partitions = append(t.Partitions, part)
		}
		req.Topics = append(req.Topics, t)
	}
	return req
}

// stale reports that the group has moved on without this member.
func stale(err error) bool {
	for _, moved := range []error{
		kerr.IllegalGeneration, kerr.UnknownMemberID, kerr.FencedInstanceID,
		kerr.StaleMemberEpoch, kerr.FencedMemberEpoch, kerr.RebalanceInProgress, kerr.GroupIDNotFound,
	} {
		if errors.Is(err, moved) {
			return true
		}
	}
	return false
}

// offsetsAgain reports whether the same offsets may be accepted later. What is
// no error code is the network's.
func offsetsAgain(err error) bool {
	if _, ok := errors.AsType[*kerr.Error](err); !ok {
		return !isClosed(err)
	}
	for _, passing := range []error{
		kerr.CoordinatorNotAvailable, kerr.CoordinatorLoadInProgress, kerr.NotCoordinator,
		kerr.ConcurrentTransactions, kerr.UnknownTopicOrPartition, kerr.RequestTimedOut,
	} {
		if errors.Is(err, passing) {
			return true
		}
	}
	return false
}

// committed are the stable offsets of a group: those that no open transaction
// may still change (KIP-447). Partitions without one are left out. It asks until
// ctx ends.
func (p *participant) committed(ctx context.Context, group string, of offsetMap) (offsetMap, error) {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.RequireStable = true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	for topic, partitions := range of {
		t := kmsg.NewOffsetFetchRequestGroupTopic()
		t.Topic = topic
		t.Partitions = slices.Sorted(maps.Keys(partitions))
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	for backoff := shortestBackoff; ; backoff = min(2*backoff, longestBackoff) {
		committed, err := p.committedOnce(ctx, req)
		if err == nil {
			return committed, nil
		}
		if !errors.Is(err, kerr.UnstableOffsetCommit) && !offsetsAgain(err) {
			return nil, &OffsetsError{Cluster: p.name, Group: group, Err: err}
		}
		if ended := pause(ctx, backoff); ended != nil {
			return nil, &OffsetsError{Cluster: p.name, Group: group, Err: fmt.Errorf("%w (before that: %w)", ended, err)}
		}
	}
}

func (p *participant) committedOnce(ctx context.Context, req *kmsg.OffsetFetchRequest) (offsetMap, error) {
	resp, err := req.RequestWith(ctx, p.raw)
	if err != nil {
		return nil, err
	}
	committed := offsetMap{}
	for _, g := range resp.Groups {
		if err := kerr.ErrorForCode(g.ErrorCode); err != nil {
			return nil, err
		}
		for _, t := range g.Topics {
			committed[t.Topic] = map[int32]kgo.EpochOffset{}
			for _, part := range t.Partitions {
				if err := kerr.ErrorForCode(part.ErrorCode); err != nil {
					return nil, fmt.Errorf("%s-%d: %w", t.Topic, part.Partition, err)
				}
				if part.Offset >= 0 {
					committed[t.Topic][part.Partition] = kgo.EpochOffset{Epoch: part.LeaderEpoch, Offset: part.Offset}
				}
			}
		}
	}
	return committed, nil
}
