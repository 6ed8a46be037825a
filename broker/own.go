package broker

import (
	"cmp"
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

// nodesOwn is what is said of the node's own topics.
const nodesOwn = "the topic is this node's own: clients may read it and change nothing of it"

// internalID is internalTopic of a topic's id.
func (f *Front) internalID(id [16]byte) bool { return f.internalTopic(f.topicOf(id)) }

// topicOf is the name of a topic; empty: there is none of the id.
func (f *Front) topicOf(id [16]byte) string {
	name, known := f.topics.get(id)
	if known {
		return name
	}
	info := f.opts.Embedded.cluster.TopicIDInfo(id)
	if info == nil {
		return ""
	}
	f.topics.put(id, info.Topic)
	return info.Topic
}

// claims says that a transactional id is one of the coordinator's.
func (f *Front) claims(id string) bool { return f.ownsLog() && strings.HasPrefix(id, claimPrefix) }

var claimed = kerr.TransactionalIDAuthorizationFailed

func (f *Front) guardInit(body kmsg.Request) refusal {
	switch b := body.(type) {
	case *kmsg.InitProducerIDRequest:
		if named(b.TransactionalID) && f.claims(*b.TransactionalID) {
			resp := b.ResponseKind().(*kmsg.InitProducerIDResponse)
			resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = claimed.Code, -1, -1
			return refuseWhole(resp)
		}
	case *wire.InitProducerIDRequestV6:
		if named(b.TransactionalID) && f.claims(*b.TransactionalID) {
			return refuseWhole(refusedV6(claimed))
		}
	}
	return refusal{}
}

// guardProducer is for requests of a transaction that name no topic to write to.
// Offsets that are staged for an internal topic change nothing of it.
func (f *Front) guardProducer(body kmsg.Request) refusal {
	if id, _, ok := producerOf(body); ok && f.claims(id) {
		return refuseWhole(refuseTransaction(body, claimed))
	}
	return refusal{}
}

// guardAddPartitions refuses all when it refuses one, as Kafka does. From version
// 4 on the request is one between brokers, and this node has no other.
func (f *Front) guardAddPartitions(body *kmsg.AddPartitionsToTxnRequest) refusal {
	if body.Version >= 4 {
		resp := body.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return refuseWhole(resp)
	}
	if r := f.guardProducer(body); r.whole != nil {
		return r
	}
	resp := refuseTransaction(body, kerr.OperationNotAttempted).(*kmsg.AddPartitionsToTxnResponse)
	refused := false
	for _, t := range resp.Topics {
		for i := range t.Partitions {
			p := &t.Partitions[i]
			switch {
			case f.internalTopic(t.Topic):
				p.ErrorCode, refused = kerr.InvalidTopicException.Code, true
			case f.opts.Embedded.offline.has(t.Topic, p.Partition):
				// kfake would put the marker into files of its own.
				p.ErrorCode, refused = kerr.KafkaStorageError.Code, true
			}
		}
	}
	if !refused {
		return refusal{}
	}
	return refuseWhole(resp)
}

func (f *Front) guardProduce(body *kmsg.ProduceRequest) refusal {
	if named(body.TransactionID) && f.claims(*body.TransactionID) {
		if body.Acks == 0 {
			return refuseWhole(nil) // Kafka, too, ends the connection
		}
		return refuseWhole(refuseTransaction(body, claimed))
	}
	r := takeOut(&body.Topics, func(t kmsg.ProduceRequestTopic) (kmsg.ProduceResponseTopic, bool) {
		if body.Version >= 13 && !f.internalID(t.TopicID) || body.Version < 13 && !f.internalTopic(t.Topic) {
			return kmsg.ProduceResponseTopic{}, false
		}
		return refusedTopic(t, kerr.InvalidTopicException), true
	}, func(r *kmsg.ProduceResponse) *[]kmsg.ProduceResponseTopic { return &r.Topics })
	if r.merge != nil && body.Acks == 0 {
		return refuseWhole(nil)
	}
	return r
}

func (f *Front) guardDeleteRecords(body *kmsg.DeleteRecordsRequest) refusal {
	return takeOut(&body.Topics, func(t kmsg.DeleteRecordsRequestTopic) (kmsg.DeleteRecordsResponseTopic, bool) {
		r := kmsg.NewDeleteRecordsResponseTopic()
		r.Topic = t.Topic
		for _, p := range t.Partitions {
			a := kmsg.NewDeleteRecordsResponseTopicPartition()
			a.Partition, a.LowWatermark, a.ErrorCode = p.Partition, -1, kerr.InvalidTopicException.Code
			r.Partitions = append(r.Partitions, a)
		}
		return r, f.internalTopic(t.Topic)
	}, func(r *kmsg.DeleteRecordsResponse) *[]kmsg.DeleteRecordsResponseTopic { return &r.Topics })
}

func (f *Front) guardDeleteTopics(body *kmsg.DeleteTopicsRequest) refusal {
	answers := func(r *kmsg.DeleteTopicsResponse) *[]kmsg.DeleteTopicsResponseTopic { return &r.Topics }
	refused := func(name *string, id [16]byte) kmsg.DeleteTopicsResponseTopic {
		r := kmsg.NewDeleteTopicsResponseTopic()
		r.Topic, r.TopicID, r.ErrorCode, r.ErrorMessage = name, id, kerr.InvalidTopicException.Code, kmsg.StringPtr(nodesOwn)
		return r
	}
	if body.Version < 6 {
		return takeOut(&body.TopicNames, func(name string) (kmsg.DeleteTopicsResponseTopic, bool) {
			return refused(&name, [16]byte{}), f.internalTopic(name)
		}, answers)
	}
	return takeOut(&body.Topics, func(t kmsg.DeleteTopicsRequestTopic) (kmsg.DeleteTopicsResponseTopic, bool) {
		return refused(t.Topic, t.TopicID), t.Topic != nil && f.internalTopic(*t.Topic) || t.Topic == nil && f.internalID(t.TopicID)
	}, answers)
}

// guardMarkers refuses a marker that goes to an internal topic, to all of its
// topics: half of it would be worse than none. It refuses one, too, that goes twice
// to the same place (see once).
func (f *Front) guardMarkers(body *kmsg.WriteTxnMarkersRequest) refusal {
	type place struct {
		producer  int64
		epoch     int16
		topic     string
		partition int32
	}
	seen := make(once[place])
	return takeOut(&body.Markers, func(m kmsg.WriteTxnMarkersRequestMarker) (kmsg.WriteTxnMarkersResponseMarker, bool) {
		code := int16(0)
		for _, t := range m.Topics {
			if f.internalTopic(t.Topic) {
				code = kerr.InvalidTopicException.Code
			}
			for _, p := range t.Partitions {
				if seen.again(place{m.ProducerID, m.ProducerEpoch, t.Topic, p}) {
					code = cmp.Or(code, kerr.InvalidRequest.Code)
				}
			}
		}
		r := kmsg.NewWriteTxnMarkersResponseMarker()
		r.ProducerID = m.ProducerID
		for _, t := range m.Topics {
			a := kmsg.NewWriteTxnMarkersResponseMarkerTopic()
			a.Topic = t.Topic
			for _, p := range t.Partitions {
				ap := kmsg.NewWriteTxnMarkersResponseMarkerTopicPartition()
				ap.Partition, ap.ErrorCode = p, code
				a.Partitions = append(a.Partitions, ap)
			}
			r.Topics = append(r.Topics, a)
		}
		return r, code != 0
	}, func(r *kmsg.WriteTxnMarkersResponse) *[]kmsg.WriteTxnMarkersResponseMarker { return &r.Markers })
}
