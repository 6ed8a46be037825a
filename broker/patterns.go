package broker

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire/pattern"
)

// routeListTransactions matches the ids here, on the goroutine of the client's
// own answers. kfake would compile the pattern, however large, and match it on
// the one loop that serves everybody; and it takes an id that matches in part.
// Its answer has ids that the client may describe and no others.
func (f *Front) routeListTransactions(c *conn, req *request) plan {
	body := req.body.(*kmsg.ListTransactionsRequest)
	if body.TransactionalIDPattern == nil || *body.TransactionalIDPattern == "" {
		return plan{}
	}
	match, err := pattern.Compile(*body.TransactionalIDPattern)
	if err != nil {
		resp := body.ResponseKind().(*kmsg.ListTransactionsResponse)
		resp.ErrorCode = kerr.InvalidRegularExpression.Code
		return answerWith(resp)
	}
	body.TransactionalIDPattern = nil
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.ListTransactionsResponse) kmsg.Response {
			var err error
			id := func(s kmsg.ListTransactionsResponseTransactionState) string { return s.TransactionalID }
			if resp.TransactionStates, err = pattern.Filter(c.ctx, match, resp.TransactionStates, id); err != nil {
				resp.ErrorCode = kerr.RequestTimedOut.Code
			}
			return resp
		}),
	}
}

// routeConsumerGroupHeartbeat keeps a regular expression above the bounds from
// kfake, which gets one in its place that it refuses: after the client's rights,
// as Kafka does.
func (f *Front) routeConsumerGroupHeartbeat(_ *conn, req *request) plan {
	body := req.body.(*kmsg.ConsumerGroupHeartbeatRequest)
	if body.SubscribedTopicRegex == nil {
		return plan{}
	}
	_, bad := pattern.Compile(*body.SubscribedTopicRegex)
	if bad == nil {
		return plan{}
	}
	body.SubscribedTopicRegex = kmsg.StringPtr("(")
	return plan{
		sent: body,
		raw:  req.withBody(body),
		edit: editAs(func(resp *kmsg.ConsumerGroupHeartbeatResponse) kmsg.Response {
			if errors.Is(kerr.ErrorForCode(resp.ErrorCode), kerr.InvalidRequest) {
				resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRegularExpression.Code, kmsg.StringPtr(bad.Error())
			}
			return resp
		}),
	}
}
