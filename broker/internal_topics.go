package broker

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// claimPrefix begins the transactional ids by which the coordinator claims the
// partitions of its log (KIP.md, Security).
const claimPrefix = "__gtc-"

// ownsLog says that the coordinator's log is on the embedded broker, and is
// written past the front. A broker without the role may be the home cluster of
// other nodes, whose log comes as ordinary requests.
func (f *Front) ownsLog() bool { return f.opts.Config.Roles.Broker && f.opts.Config.Roles.GTC }

// internalTopic says that clients do not write to a topic, as in Kafka
// (Topic.isInternal). A forged decision in the log would be carried out.
func (f *Front) internalTopic(name string) bool {
	return name == offsetsTopic || name == "__transaction_state" || name == txnlog.Topic && f.ownsLog()
}

// internalID is internalTopic of a topic's id, which is a topic's for good.
func (f *Front) internalID(id [16]byte) bool {
	if known, ok := f.internalIDs.Load(id); ok {
		return known.(bool)
	}
	info := f.opts.Embedded.cluster.TopicIDInfo(id)
	if info == nil {
		return false
	}
	internal := f.internalTopic(info.Topic)
	f.internalIDs.Store(id, internal)
	return internal
}

// denyInternal keeps clients from what is the node's own.
func (f *Front) denyInternal(req *request) (plan, bool) {
	switch body := req.body.(type) {
	case *kmsg.ProduceRequest:
		return f.denyInternalTopics(req, body)
	case *kmsg.InitProducerIDRequest:
		if f.claims(body.TransactionalID) {
			resp := body.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = kerr.TransactionalIDAuthorizationFailed.Code, -1, -1
			return answerWith(resp), true
		}
	case *wire.InitProducerIDRequestV6:
		if f.claims(body.TransactionalID) {
			return answerWith(refusedV6(kerr.TransactionalIDAuthorizationFailed)), true
		}
	}
	return plan{}, false
}

func (f *Front) claims(id *string) bool {
	return f.ownsLog() && id != nil && strings.HasPrefix(*id, claimPrefix)
}

// denyInternalTopics answers for the internal topics of a Produce and lets the
// others through.
func (f *Front) denyInternalTopics(req *request, body *kmsg.ProduceRequest) (plan, bool) {
	internal := func(t kmsg.ProduceRequestTopic) bool {
		if body.Version >= 13 { // by id
			return f.internalID(t.TopicID)
		}
		return f.internalTopic(t.Topic)
	}
	if f.opts.Embedded == nil || !slices.ContainsFunc(body.Topics, internal) {
		return plan{}, false
	}
	refused, rest := *body, *body
	refused.Topics, rest.Topics = nil, nil
	for _, t := range body.Topics {
		if internal(t) {
			refused.Topics = append(refused.Topics, t)
		} else {
			rest.Topics = append(rest.Topics, t)
		}
	}
	if body.Acks == 0 {
		return answerWith(nil), true // Kafka, too, ends the connection
	}
	denied := refuseTransaction(&refused, kerr.InvalidTopicException).(*kmsg.ProduceResponse)
	p := f.routeProduce(&rest)
	switch {
	case len(rest.Topics) == 0:
		return answerWith(denied), true
	case p.handle != nil: // it is the producer that is refused
		return f.routeProduce(body), true
	}
	p.sent, p.raw = &rest, req.withBody(&rest)
	p.edit = editAs(func(resp *kmsg.ProduceResponse) kmsg.Response {
		resp.Topics = append(resp.Topics, denied.Topics...)
		return resp
	})
	return p, true
}
