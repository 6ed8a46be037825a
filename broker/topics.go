package broker

import (
	"regexp"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// maxPartitionsPerRequest is Kafka's limit for one CreateTopics or
// CreatePartitions (MAX_PARTITIONS_PER_BATCH of KRaft's
// ReplicationControlManager). kfake has none, and a request for 2147483647
// partitions would take all memory.
const maxPartitionsPerRequest = 10_000

// topicName is Kafka's rule. kfake takes any name, and one that is longer than
// a file name may be cannot be kept.
var topicName = regexp.MustCompile(`^[a-zA-Z0-9._-]{1,249}$`)

func validTopic(name string) bool {
	return topicName.MatchString(name) && name != "." && name != ".."
}

// routeMetadata creates topics before kfake is asked for them. kfake would
// create them too, but only in memory: after a crash the records that it had
// acknowledged would belong to no topic.
func (f *Front) routeMetadata(body *kmsg.MetadataRequest) plan {
	if f.opts.Embedded == nil {
		return answerWith(f.metadata(body))
	}
	// Versions without the flag always create.
	if !f.opts.Config.AutoCreateTopics || body.Version >= 4 && !body.AllowAutoTopicCreation {
		return plan{}
	}
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Version = 5
	for _, t := range body.Topics {
		if t.Topic == nil || !validTopic(*t.Topic) || *t.Topic == txnlog.Topic || f.opts.Embedded.hasTopic(*t.Topic) ||
			slices.ContainsFunc(create.Topics, func(c kmsg.CreateTopicsRequestTopic) bool { return c.Topic == *t.Topic }) {
			continue
		}
		c := kmsg.NewCreateTopicsRequestTopic()
		c.Topic, c.NumPartitions, c.ReplicationFactor = *t.Topic, -1, -1
		create.Topics = append(create.Topics, c)
		if len(create.Topics)*int(f.opts.Config.NumPartitions) >= maxPartitionsPerRequest {
			break
		}
	}
	if len(create.Topics) == 0 {
		return plan{}
	}
	return plan{before: []kmsg.Request{create}}
}

const tooManyPartitions = "Excessively large number of partitions per request."

// guardCreateTopics refuses what Kafka refuses and kfake does not, and the node's
// own topics.
func (f *Front) guardCreateTopics(body *kmsg.CreateTopicsRequest) refusal {
	partitions := 0
	for _, t := range body.Topics {
		n := max(len(t.ReplicaAssignment), int(t.NumPartitions))
		if t.NumPartitions < 0 && len(t.ReplicaAssignment) == 0 {
			n = int(f.opts.Config.NumPartitions)
		}
		partitions += n
	}
	return takeOut(&body.Topics, func(t kmsg.CreateTopicsRequestTopic) (kmsg.CreateTopicsResponseTopic, bool) {
		r, message := kmsg.NewCreateTopicsResponseTopic(), ""
		r.Topic = t.Topic
		switch {
		case !validTopic(t.Topic):
			r.ErrorCode, message = kerr.InvalidTopicException.Code, "a topic's name has 1 to 249 letters, digits, ., _ and -, and is not . or .."
		case f.internalTopic(t.Topic):
			r.ErrorCode, message = kerr.InvalidTopicException.Code, nodesOwn
		case partitions > maxPartitionsPerRequest:
			r.ErrorCode, message = kerr.PolicyViolation.Code, tooManyPartitions
		default:
			r.ErrorCode, message = f.refuseSettings(kmsg.ConfigResourceTypeTopic, t.Topic, func(yield func(string, *string) bool) {
				for _, c := range t.Configs {
					if !yield(c.Name, c.Value) {
						return
					}
				}
			})
		}
		r.ErrorMessage = &message
		return r, r.ErrorCode != 0
	}, func(r *kmsg.CreateTopicsResponse) *[]kmsg.CreateTopicsResponseTopic { return &r.Topics })
}

// guardCreatePartitions does the same for more partitions.
func (f *Front) guardCreatePartitions(body *kmsg.CreatePartitionsRequest) refusal {
	partitions := 0
	for _, t := range body.Topics {
		partitions += int(max(t.Count, 0))
	}
	return takeOut(&body.Topics, func(t kmsg.CreatePartitionsRequestTopic) (kmsg.CreatePartitionsResponseTopic, bool) {
		r, message := kmsg.NewCreatePartitionsResponseTopic(), ""
		r.Topic = t.Topic
		switch {
		case f.internalTopic(t.Topic):
			r.ErrorCode, message = kerr.InvalidTopicException.Code, nodesOwn
		case partitions > maxPartitionsPerRequest:
			r.ErrorCode, message = kerr.PolicyViolation.Code, tooManyPartitions
		default:
			return r, false
		}
		r.ErrorMessage = &message
		return r, true
	}, func(r *kmsg.CreatePartitionsResponse) *[]kmsg.CreatePartitionsResponseTopic { return &r.Topics })
}
