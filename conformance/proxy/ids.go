package proxy

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// IDs are the transactional and global transactional ids that the exchange
// names, in its request or, where that asks for all, in its answer.
func (x *Exchange) IDs() []string {
	var ids []string
	one := func(id *string) {
		if id != nil {
			ids = append(ids, *id)
		}
	}
	switch req := x.Request.(type) {
	case *kmsg.InitProducerIDRequest:
		one(req.TransactionalID)
	case *wire.InitProducerIDRequestV6:
		one(req.TransactionalID)
	case *kmsg.AddPartitionsToTxnRequest:
		one(&req.TransactionalID)
	case *kmsg.AddOffsetsToTxnRequest:
		one(&req.TransactionalID)
	case *kmsg.TxnOffsetCommitRequest:
		one(&req.TransactionalID)
	case *kmsg.EndTxnRequest:
		one(&req.TransactionalID)
	case *kmsg.DescribeTransactionsRequest:
		ids = req.TransactionalIDs
	case *wire.InitGlobalTxnRequest:
		one(&req.GlobalTransactionalID)
	case *wire.EndGlobalTxnRequest:
		one(&req.GlobalTransactionalID)
	case *wire.ResolveGlobalTransactionRequest:
		one(&req.GlobalTransactionalID)
	case *wire.DescribeGlobalTransactionsRequest:
		ids = req.GlobalTransactionalIDs
	case *wire.FindCoordinatorRequest:
		ids = req.CoordinatorKeys
	case *kmsg.ListTransactionsRequest:
		if resp, ok := x.Response.(*kmsg.ListTransactionsResponse); ok {
			for i := range resp.TransactionStates {
				ids = append(ids, resp.TransactionStates[i].TransactionalID)
			}
		}
	}
	return ids
}

// Names says that one of the exchange's ids passes.
func (x *Exchange) Names(pass func(id string) bool) bool { return slices.ContainsFunc(x.IDs(), pass) }
