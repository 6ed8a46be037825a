package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
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
// Then it looks at each partition that was written to, read uncommitted from the
// transaction's first record there to its marker, and at the group offsets:
// a transaction that is committed can have been aborted in a partition by an
// operator's tool, or its records be deleted, and no cluster says so. Topics that
// the principal may not READ are left out, unless Options.VerifyCommits is set.
//
// Call it before the next Begin. Its errors are Wait's; a *PendingError names
// the clusters on which it is not visible when ctx ends, and a
// *ContradictionError the partitions that show something else.
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
	if !t.shown {
		if err := t.look(ctx); err != nil {
			return t.result, err
		}
	}
	return t.result, t.contradicted
}

// look waits for the markers and compares what is there with the outcome.
func (t *Txn) look(ctx context.Context) error {
	var mu sync.Mutex
	all := &ContradictionError{Result: t.result}
	pending := &PendingError{Outcome: t.result.Outcome}
	errs := allErrors(t.session.participants, func(p *participant) error {
		i := slices.Index(t.session.participants, p)
		if !t.touched[i].Load() {
			return nil
		}
		found, err := p.untilVisible(ctx, t.session.coord, func(ctx context.Context) ([]Contradiction, error) {
			return t.written[i].contradictions(ctx, p, t.result.Outcome, t.session.verifyCommits)
		})
		mu.Lock()
		defer mu.Unlock()
		all.Found = append(all.Found, found...)
		return err
	})
	for i, err := range errs {
		if err != nil {
			pending.Clusters, pending.Err = append(pending.Clusters, t.session.participants[i].name), err
		}
	}
	slices.SortStableFunc(all.Found, func(a, b Contradiction) int { return strings.Compare(a.Cluster, b.Cluster) })
	switch {
	case len(all.Found) > 0: // also while another cluster cannot be asked
		t.contradicted = all
	case pending.Err != nil:
		return pending
	}
	t.shown = true
	return nil
}

// untilVisible asks the cluster until its markers are written, and then looks.
func (p *participant) untilVisible(ctx context.Context, c *coordinator, look func(context.Context) ([]Contradiction, error)) ([]Contradiction, error) {
	for backoff := c.backoffMin; ; backoff = min(2*backoff, c.backoffMax) {
		state, err := p.state(ctx, c.askTimeout)
		if err == nil && state != "" {
			err = fmt.Errorf("it is still %s there", state)
		}
		var found []Contradiction
		if err == nil {
			found, err = look(ctx)
		}
		if err == nil || len(found) > 0 {
			return found, nil
		}
		if ended := pause(ctx, backoff); ended != nil {
			return nil, fmt.Errorf("%w: %w", err, ended)
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
