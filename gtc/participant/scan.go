package participant

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
	"github.com/kafka-gtc/kafka-gtc/wire/plain"
)

const transactionStateTopic = "__transaction_state"

// Scan lists the open (Ongoing) transactions of ids that known accepts. Those
// whose end is being carried out are not open: they need nothing from us.
//
// The error says that the list is incomplete and why. What is listed is true
// nevertheless; what is missing may still be open ("cannot read" is not "not
// there"): a broker that failed, a partition of __transaction_state without a
// leader, or one that changed its leader while the brokers were asked, one
// after the other, so that neither the old leader nor the new one listed it.
func (c *Clusters) Scan(ctx context.Context, clusterID string, known func(id string) bool) ([]gtc.OpenTransaction, error) {
	cl, err := c.lookup(ctx, clusterID)
	if err != nil {
		return nil, err
	}
	s, err := cl.session(ctx)
	if err != nil {
		return nil, fmt.Errorf("cluster %q: %w", cl.cfg.Alias, err)
	}
	open, err := s.scan(ctx, known)
	if err != nil {
		return open, fmt.Errorf("cluster %q: %w", cl.cfg.Alias, err)
	}
	return open, nil
}

func (s *session) scan(ctx context.Context, known func(id string) bool) ([]gtc.OpenTransaction, error) {
	before, err := s.leaders(ctx)
	if err != nil {
		return nil, err
	}
	listed := make([][]string, len(before.nodes))
	unlisted := make([]error, len(before.nodes))
	inParallel(len(before.nodes), func(i int) { listed[i], unlisted[i] = s.list(ctx, before.nodes[i]) })
	listers := make(map[string][]int32) // kfake lists every id at every broker
	for i, ids := range listed {
		for _, id := range ids {
			if known(id) {
				listers[id] = append(listers[id], before.nodes[i])
			}
		}
	}
	// Who lists an id coordinates it. A look at the broker that did before,
	// and does not know yet that it no longer does, would miss what is open.
	ids := slices.Sorted(maps.Keys(listers))
	for _, id := range ids {
		s.coordinatedBy(id, listers[id])
	}
	var open []gtc.OpenTransaction
	failed := errors.Join(unlisted...)
	for some := range slices.Chunk(ids, gatherLimit) {
		looks, errs := s.lookAt(ctx, some)
		open, failed = append(open, looks...), errors.Join(failed, errors.Join(errs...))
	}
	after, err := s.leaders(ctx)
	if err == nil && !maps.Equal(before.leaders, after.leaders) {
		err = fmt.Errorf("leaders of %s changed during the scan", transactionStateTopic)
	}
	return open, errors.Join(failed, err)
}

// leadership is who leads which partition of __transaction_state.
type leadership struct {
	nodes   []int32
	leaders map[int32]leaderEpoch
}

type leaderEpoch struct{ leader, epoch int32 }

func (s *session) leaders(ctx context.Context) (leadership, error) {
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(transactionStateTopic)
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, s.cl)
	s.c.note(err)
	if err != nil {
		return leadership{}, fmt.Errorf("asking for the leaders of %s: %w", transactionStateTopic, err)
	}
	l := leadership{leaders: make(map[int32]leaderEpoch)}
	for _, b := range resp.Brokers {
		l.nodes = append(l.nodes, b.NodeID)
	}
	for _, t := range resp.Topics {
		switch err := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(err, kerr.UnknownTopicOrPartition):
			// No transaction was ever begun there (or the broker is not
			// Apache Kafka and keeps them elsewhere): the brokers are all.
			return l, nil
		case errors.Is(err, kerr.TopicAuthorizationFailed):
			return l, fmt.Errorf("%s: %w; grant the coordinator's principal DESCRIBE on it, without which a scan cannot know that it is complete", transactionStateTopic, err)
		case err != nil:
			return l, fmt.Errorf("%s: %w", transactionStateTopic, err)
		}
		for _, p := range t.Partitions {
			if p.Leader < 0 {
				return l, fmt.Errorf("%s-%d has no leader", transactionStateTopic, p.Partition)
			}
			l.leaders[p.Partition] = leaderEpoch{p.Leader, p.LeaderEpoch}
		}
	}
	return l, nil
}

// list is the ids of the open transactions that one broker coordinates.
func (s *session) list(ctx context.Context, node int32) ([]string, error) {
	if _, err := s.verify(ctx, node); err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters = []string{string(verdict.Ongoing)}
	resp, err := ask[*kmsg.ListTransactionsResponse](ctx, s, node, req)
	if err != nil {
		return nil, err
	}
	if err = kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, fmt.Errorf("broker %d, ListTransactions: %w", node, err)
	}
	if len(resp.UnknownStateFilters) > 0 {
		return nil, fmt.Errorf("broker %d does not know the transaction states %v", node, resp.UnknownStateFilters)
	}
	ids := make([]string, 0, len(resp.TransactionStates))
	for _, t := range resp.TransactionStates {
		ids = append(ids, t.TransactionalID)
	}
	return ids, nil
}

// lookAt describes ids that were open when they were listed. One that has ended
// since is left out; one that could not be asked is an error.
func (s *session) lookAt(ctx context.Context, ids []string) ([]gtc.OpenTransaction, []error) {
	looks := make([]gtc.OpenTransaction, len(ids))
	errs := make([]error, len(ids))
	inParallel(len(ids), func(i int) {
		seen, info, err := s.describe(ctx, ids[i])
		switch {
		case err != nil:
			errs[i] = fmt.Errorf("transactional id %s: %w", plain.Quote(ids[i]), err)
		case seen.State == verdict.Ongoing && seen.TimeoutMillis == verdict.Unlimited:
			// With a timeout it is an ordinary producer's that has the same name.
			looks[i] = openOf(ids[i], seen, info)
		}
	})
	return slices.DeleteFunc(looks, func(o gtc.OpenTransaction) bool { return o.ID == "" }), errs
}

func openOf(id string, v verdict.View, info brokerInfo) gtc.OpenTransaction {
	return gtc.OpenTransaction{
		ID: id, ProducerID: v.ProducerID, ProducerEpoch: v.ProducerEpoch, EndTxnVersion: info.endTxnVersion(),
		StartMillis: v.StartMillis, AuditTopic: v.AuditTopic, AuditPartition: v.AuditPartition,
	}
}
