package participant

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/verdict"
)

// described answers one look at one id.
type described struct {
	view  verdict.View
	err   error
	given bool // false in the zero value: the answer left the id out
}

// describe looks at the id, together with whoever else looks at ids of the
// same transaction coordinator.
func (s *session) describe(ctx context.Context, id string) (verdict.View, brokerInfo, error) {
	node, err := s.coordinator(ctx, id)
	if err != nil {
		return verdict.View{}, brokerInfo{}, err
	}
	return s.describeBy(ctx, node, id)
}

// describeBy looks at the id by one broker.
func (s *session) describeBy(ctx context.Context, node int32, id string) (verdict.View, brokerInfo, error) {
	info, err := s.verify(ctx, node)
	if err != nil {
		s.moved(id)
		return verdict.View{}, brokerInfo{}, err
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
		s.c.retention.wrote(t.Topics)
		d := described{given: true}
		switch e := kerr.ErrorForCode(t.ErrorCode); {
		case errors.Is(e, kerr.TransactionalIDNotFound):
			d.view = verdict.View{ProducerID: -1, ProducerEpoch: -1, StartMillis: -1}
		case e != nil:
			d.err = e
		default:
			d.view = viewOf(t)
		}
		out[t.TransactionalID] = d
	}
	return out
}

// viewOf also chooses the partition whose control markers are read if the outcome
// must be proved later: a user topic when there is one, because __consumer_offsets
// takes a permission of its own and is the busiest.
func viewOf(t kmsg.DescribeTransactionsResponseTransactionState) verdict.View {
	v := verdict.View{
		State: verdict.State(t.State), ProducerID: t.ProducerID, ProducerEpoch: t.ProducerEpoch,
		TimeoutMillis: t.TimeoutMillis, StartMillis: t.StartTimestamp,
	}
	for _, topic := range t.Topics {
		better := v.AuditTopic == "" || strings.HasPrefix(v.AuditTopic, "__") && !strings.HasPrefix(topic.Topic, "__")
		if len(topic.Partitions) > 0 && better {
			v.AuditTopic, v.AuditPartition = topic.Topic, topic.Partitions[0]
		}
	}
	return v
}
