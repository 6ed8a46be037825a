package broker

import (
	"math"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// noTimeout is the transaction timeout that means none. A broker that supports
// two-phase commit stores it and never ages such a transaction out (Kafka
// 4.4.0); kfake does so after the 24.8 days that the number says.
const noTimeout = math.MaxInt32

// routeInitProducerID is Kafka's InitProducerId up to version 5. kfake may
// allow longer timeouts than this node's configuration, for the sake of
// version 6, so the limit is drawn here.
func (f *Front) routeInitProducerID(body *kmsg.InitProducerIDRequest) plan {
	refusal := f.refuseInit(body.TransactionalID, body.TransactionTimeoutMillis, body.ProducerID, body.ProducerEpoch)
	if refusal == nil {
		return plan{}
	}
	resp := body.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = refusal.Code, -1, -1
	return answerWith(resp)
}

// routeInitProducerIDV6 turns version 6 into version 5 and the answer back. The
// order of the checks is that of Kafka 4.4's TransactionCoordinator.
func (f *Front) routeInitProducerIDV6(req *request, body *wire.InitProducerIDRequestV6) plan {
	v5 := kmsg.NewPtrInitProducerIDRequest()
	v5.Version = wire.InitProducerIDVersion - 1
	v5.TransactionalID = body.TransactionalID
	v5.TransactionTimeoutMillis = body.TransactionTimeoutMillis
	v5.ProducerID, v5.ProducerEpoch = body.ProducerID, body.ProducerEpoch
	if body.Enable2PC {
		v5.TransactionTimeoutMillis = noTimeout
	}
	if refusal := f.refuseInitV6(body); refusal != nil {
		resp := wire.NewPtrInitProducerIDResponseV6()
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = refusal.Code, -1, -1
		return answerWith(resp)
	}
	return plan{
		sent: v5,
		raw:  req.withBody(v5),
		edit: editAs(func(r *kmsg.InitProducerIDResponse) kmsg.Response {
			resp := wire.NewPtrInitProducerIDResponseV6()
			resp.ThrottleMillis, resp.ErrorCode = r.ThrottleMillis, r.ErrorCode
			resp.ProducerID, resp.ProducerEpoch = r.ProducerID, r.ProducerEpoch
			return resp
		}),
	}
}

func (f *Front) refuseInitV6(body *wire.InitProducerIDRequestV6) *kerr.Error {
	timeout := body.TransactionTimeoutMillis
	if named(body.TransactionalID) {
		switch {
		case halfProducer(body.ProducerID, body.ProducerEpoch):
			return kerr.InvalidRequest
		case body.Enable2PC && !f.opts.Config.TwoPhaseCommit:
			return kerr.TransactionalIDAuthorizationFailed
		case body.KeepPreparedTxn:
			return kerr.UnsupportedVersion
		case body.Enable2PC:
			timeout = 1 // what the request says does not matter
		}
	}
	return f.refuseInit(body.TransactionalID, timeout, body.ProducerID, body.ProducerEpoch)
}

// refuseInit gives the error of an InitProducerId that kfake must not see,
// because it would answer otherwise than Kafka.
func (f *Front) refuseInit(id *string, timeoutMillis int32, producerID int64, epoch int16) *kerr.Error {
	switch {
	case halfProducer(producerID, epoch):
		return kerr.InvalidRequest
	case named(id) && (timeoutMillis <= 0 || timeoutMillis > f.opts.Config.TransactionMaxTimeoutMillis):
		return kerr.InvalidTransactionTimeout
	}
	return nil
}

// named says that there is a transactional id; an empty one is left for kfake
// to refuse.
func named(id *string) bool { return id != nil && *id != "" }

// halfProducer says that one of producer id and epoch is there and the other is
// not. kfake takes that for a new producer.
func halfProducer(producerID int64, epoch int16) bool {
	return (producerID == -1) != (epoch == -1)
}

// showOffsets lists the topic of the group offsets in a transaction that has
// nothing else, as Kafka does: whoever looks must be able to tell it from an
// empty one. kfake keeps staged offsets apart from partitions and leaves them
// out; it has no access control here that would hide the others.
func showOffsets(resp *kmsg.DescribeTransactionsResponse) kmsg.Response {
	for i := range resp.TransactionStates {
		if s := &resp.TransactionStates[i]; s.State == "Ongoing" && len(s.Topics) == 0 {
			offsets := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			offsets.Topic, offsets.Partitions = "__consumer_offsets", []int32{0}
			s.Topics = append(s.Topics, offsets)
		}
	}
	return resp
}
