package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// ringID is the name of one id of a ring. The first is that of a client without
// a ring, so that a ring and a client without one fence each other. The others
// are told apart from what applications call their instances ("payments-7").
func ringID(id string, i int) string {
	if i == 0 {
		return id
	}
	return fmt.Sprintf("%s.ring-%d", id, i)
}

// openRing takes all ids of the ring over, and fences those that an earlier
// client had beyond it.
//
// The first id decides between two clients that open at once with rings of
// different length: it is taken first, and asked about once more at the end.
// Counter-example without that question: the shorter ring takes the first id
// and looks what lies beyond its own; then the longer one takes the ids there,
// and both commit, each under ids that the other one does not have.
func openRing(ctx context.Context, o Options) (slots []*slot, err error) {
	defer func() {
		if err != nil {
			closeAll(slots)
		}
	}()
	for i := range max(1, o.Ring) {
		s, newErr := newSession(o, ringID(o.GlobalTransactionalID, i))
		if newErr != nil {
			return slots, newErr
		}
		slots = append(slots, &slot{session: s})
	}
	first := slots[0].session
	first.announce()
	if err = first.open(ctx); err != nil {
		return slots, err
	}
	err = inParallel(slots[1:], func(s *slot) error { return s.session.open(ctx) })
	if err != nil {
		return slots, err
	}
	if err = fenceBeyond(ctx, o, first.coord); err != nil {
		return slots, err
	}
	if len(slots) > 1 {
		err = first.initGlobalTxn(ctx)
	}
	return slots, err
}

func closeAll(slots []*slot) {
	for _, s := range slots {
		s.session.close()
	}
	if len(slots) > 0 {
		slots[0].session.withdraw()
	}
}

// fenceBeyond fences what an earlier client with a longer ring has beyond this
// one: it could go on with those ids.
func fenceBeyond(ctx context.Context, o Options, c *coordinator) error {
	var ids []string
	for i := max(1, o.Ring); i < maxRing; i++ {
		ids = append(ids, ringID(o.GlobalTransactionalID, i))
	}
	if len(ids) == 0 {
		return nil
	}
	known, err := c.known(ctx, ids)
	if err != nil {
		return err
	}
	return inParallel(known, func(id string) error {
		s, err := newSession(o, id)
		if err != nil {
			return err
		}
		defer s.close()
		return s.open(ctx)
	})
}

// known are those of the ids that the coordinator knows.
func (c *coordinator) known(ctx context.Context, ids []string) ([]string, error) {
	var known []string
	err := c.retry(ctx, func(ctx context.Context) error {
		known = nil
		nodes, err := c.find(ctx, ids...)
		if errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			return nil // whoever may not ask about them was not their client
		}
		if err != nil {
			return err
		}
		at := map[string][]string{}
		for id, address := range nodes {
			at[address] = append(at[address], id)
		}
		for address, ids := range at {
			found, err := c.knownAt(ctx, address, ids)
			if err != nil {
				return err
			}
			known = append(known, found...)
		}
		return nil
	})
	return known, err
}

func (c *coordinator) knownAt(ctx context.Context, address string, ids []string) ([]string, error) {
	node, err := c.dial(address)
	if err != nil {
		return nil, err
	}
	defer node.Close()
	ctx, cancel := context.WithTimeout(ctx, c.askTimeout+answerGrace)
	defer cancel()
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = ids
	resp, err := req.RequestWith(ctx, node.SeedBrokers()[0])
	if err != nil {
		return nil, err
	}
	if len(resp.GlobalTransactions) != len(ids) {
		return nil, &coordinatorError{code: kerr.UnknownServerError, message: fmt.Sprintf(
			"an answer about %d ids to a question about %d", len(resp.GlobalTransactions), len(ids))}
	}
	var known []string
	for _, g := range resp.GlobalTransactions {
		switch err := answerError(g.ErrorCode, g.ErrorMessage); {
		case err == nil:
			known = append(known, g.GlobalTransactionalID)
		case errors.Is(err, kerr.TransactionalIDNotFound), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		default:
			return nil, err
		}
	}
	return known, nil
}
