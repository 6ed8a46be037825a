package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// WaitVisible waits, beyond Wait, until every cluster has written the markers of
// the transaction: a read_committed reader that starts then finds its records
// on all of them, or on none, and so does a fetch of group offsets.
//
// The two differ because a cluster acknowledges the end of a transaction when
// the outcome is durable at its transaction coordinator, and writes the markers
// into the partitions after that: usually milliseconds later, but not before
// each partition has a leader. Complete, in Result and from Wait, says the
// first. WaitVisible asks each cluster (DescribeTransactions) until the
// transaction is complete there too.
//
// Call it before the next Begin. Its errors are Wait's; a *PendingError names
// the clusters on which it is not visible when ctx ends.
func (t *Txn) WaitVisible(ctx context.Context) (Result, error) {
	if err := t.lock.acquire(ctx); err != nil {
		return t.notTurn(err, Result.clusters)
	}
	defer t.lock.release()
	if err := t.wait(ctx); err != nil {
		return t.result, err
	}
	if !t.result.Complete() { // its own abort, which a cluster could not be told
		return t.result, &PendingError{Outcome: t.result.Outcome, Clusters: t.result.Pending(), Err: errors.New(t.result.message())}
	}
	parts := t.parts()
	errs := allErrors(parts, func(p *participant) error { return p.untilVisible(ctx, t.session.coord) })
	pending := &PendingError{Outcome: t.result.Outcome}
	for i, err := range errs {
		if err != nil {
			pending.Clusters, pending.Err = append(pending.Clusters, parts[i].name), err
		}
	}
	if pending.Err != nil {
		return t.result, pending
	}
	return t.result, nil
}

// untilVisible asks the cluster until its markers are written.
func (p *participant) untilVisible(ctx context.Context, c *coordinator) error {
	for backoff := c.backoffMin; ; backoff = min(2*backoff, c.backoffMax) {
		state, err := p.state(ctx, c.askTimeout)
		if err == nil && state == "" {
			return nil
		}
		if ended := pause(ctx, backoff); ended != nil {
			if err == nil {
				err = fmt.Errorf("it is still %s there", state)
			}
			return fmt.Errorf("%w: %w", err, ended)
		}
	}
}

func (p *participant) describe(ctx context.Context) (*kmsg.DescribeTransactionsResponse, error) {
	node, err := p.coordinator(ctx, p.kgo)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{p.id}
	resp, err := p.kgo.Broker(int(node)).Request(ctx, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.DescribeTransactionsResponse), nil
}

// state is that of the participant's transaction as long as it is not complete,
// and empty then.
func (p *participant) state(ctx context.Context, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	resp, err := p.describe(ctx)
	if err != nil {
		return "", err
	}
	if len(resp.TransactionStates) != 1 {
		return "", fmt.Errorf("an answer of %d transactions to a question for one", len(resp.TransactionStates))
	}
	s := resp.TransactionStates[0]
	switch err := kerr.ErrorForCode(s.ErrorCode); {
	case errors.Is(err, kerr.TransactionalIDNotFound):
		return "", nil // expired there, and an id expires only when nothing of it is unfinished
	case err != nil:
		return "", err
	}
	switch s.State {
	case "PrepareCommit", "PrepareAbort", "PrepareEpochFence":
		return s.State, nil
	case "Ongoing":
		// A look at a coordinator that has just been deposed. Of a later
		// transaction Kafka writes nothing before the markers of this one.
		if s.ProducerID == p.producerID && s.ProducerEpoch == p.producerEpoch ||
			s.ProducerID == p.endedID && s.ProducerEpoch == p.endedEpoch {
			return s.State, nil
		}
	}
	return "", nil
}
