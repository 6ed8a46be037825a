package participant

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// view is what the transaction coordinator of the cluster says about one
// transactional id.
type view struct {
	state         string // Kafka's TransactionState, "" when there is no such id
	producerID    int64
	producerEpoch int16
	timeoutMillis int32
	// startMillis is when the transaction began, on the clock of the
	// transaction coordinator; -1 before the first. 3.9.1 leaves the value of
	// the last transaction there when the id is initialised anew (Empty).
	startMillis int64
	topics      []kmsg.DescribeTransactionsResponseTransactionStateTopic
}

// The states of Kafka's TransactionState that matter here. PrepareEpochFence is
// never stored, and a Dead id is answered as not found.
const (
	stateEmpty          = "Empty"
	stateOngoing        = "Ongoing"
	statePrepareCommit  = "PrepareCommit"
	statePrepareAbort   = "PrepareAbort"
	stateCompleteCommit = "CompleteCommit"
	stateCompleteAbort  = "CompleteAbort"
)

func (v view) String() string {
	if v.state == "" {
		return "no such transactional id"
	}
	return fmt.Sprintf("%s at producer id %d, epoch %d", v.state, v.producerID, v.producerEpoch)
}

// described answers one look at one id.
type described struct {
	view  view
	err   error
	given bool // false in the zero value: the answer left the id out
}

// describe looks at the id, together with whoever else looks at ids of the
// same transaction coordinator.
func (s *session) describe(ctx context.Context, id string) (view, brokerInfo, error) {
	node, err := s.coordinator(ctx, id)
	if err != nil {
		return view{}, brokerInfo{}, err
	}
	info, err := s.verify(ctx, node)
	if err != nil {
		s.moved(id)
		return view{}, brokerInfo{}, err
	}
	got, err := s.peer(node).describing.do(ctx, id)
	switch {
	case err != nil:
		err = fmt.Errorf("DescribeTransactions: %w", err)
	case got.err != nil:
		err = fmt.Errorf("DescribeTransactions: %w", got.err)
	case !got.given:
		err = errors.New("DescribeTransactions: the answer leaves the transactional id out")
	}
	if err != nil {
		s.moved(id)
	}
	return got.view, info, err
}

// describeAt looks at ids of one transaction coordinator.
func (s *session) describeAt(ctx context.Context, node int32, ids []string) map[string]described {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	resp, err := ask[*kmsg.DescribeTransactionsResponse](ctx, s, node, req)
	out := make(map[string]described, len(ids))
	if err != nil {
		for _, id := range ids {
			out[id] = described{err: err, given: true}
		}
		return out
	}
	s.c.note(nil)
	for _, t := range resp.TransactionStates {
		d := described{given: true}
		switch e := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(e, kerr.TransactionalIDNotFound):
			d.view = view{producerID: -1, producerEpoch: -1, startMillis: -1}
		case e != nil:
			d.err = e
		default:
			d.view = view{t.State, t.ProducerID, t.ProducerEpoch, t.TimeoutMillis, t.StartTimestamp, t.Topics}
		}
		out[t.TransactionalID] = d
	}
	return out
}
