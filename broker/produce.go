package broker

import (
	"errors"
	"runtime"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/batch"
)

// routeProduce keeps batches from kfake that it would store and not read again,
// and producers that are not who they say.
func (f *Front) routeProduce(c *conn, req *request) plan {
	body := req.body.(*kmsg.ProduceRequest)
	refused := f.takeOutBatches(c, body)
	if refused != nil && body.Acks == 0 {
		return answerWith(nil) // Kafka, too, ends the connection
	}
	if refused != nil && len(body.Topics) == 0 {
		resp := body.ResponseKind().(*kmsg.ProduceResponse)
		resp.Topics = refused
		return answerWith(resp)
	}
	p := f.routeProducer(body)
	if refused == nil {
		return p
	}
	return p.merged(req, func(resp kmsg.Response) { addTopics(resp.(*kmsg.ProduceResponse), refused) })
}

// takeOutBatches takes the partitions out of a Produce whose records must not be
// stored, and gives their answers. Before it looks at what a client has sent for
// a topic it asks whether that client may write there.
//
// A partition that comes again is refused, too (see once). Kafka stores only the
// last of its batches.
func (f *Front) takeOutBatches(c *conn, body *kmsg.ProduceRequest) (refused []kmsg.ProduceResponseTopic) {
	type place struct {
		topic     string
		id        [16]byte
		partition int32
	}
	seen := make(once[place])
	for i := range body.Topics {
		t := &body.Topics[i]
		if !f.mayWrite(c, body.Version, t) {
			refused = append(refused, refusedTopic(*t, kerr.TopicAuthorizationFailed))
			t.Partitions = nil
			continue
		}
		answers := kmsg.NewProduceResponseTopic()
		answers.Topic, answers.TopicID = t.Topic, t.TopicID
		t.Partitions = slices.DeleteFunc(t.Partitions, func(p kmsg.ProduceRequestTopicPartition) bool {
			err := errTwice
			if !seen.again(place{t.Topic, t.TopicID, p.Partition}) {
				err = f.checkBatch(c, p.Records, body.Version)
			}
			if err == nil {
				return false
			}
			answers.Partitions = append(answers.Partitions, refusedBatch(p.Partition, body.Version, err))
			return true
		})
		if answers.Partitions != nil {
			refused = append(refused, answers)
		}
	}
	if refused != nil {
		body.Topics = slices.DeleteFunc(body.Topics, func(t kmsg.ProduceRequestTopic) bool { return len(t.Partitions) == 0 })
	}
	return refused
}

var errTwice error = &batch.Error{Kafka: kerr.InvalidRequest, Reason: "the request names the partition twice"}

// mayWrite says that a client may write to a topic. One that is not there is
// kfake's to refuse.
func (f *Front) mayWrite(c *conn, version int16, t *kmsg.ProduceRequestTopic) bool {
	if f.opts.ACLs == nil || c.trusted {
		return true
	}
	name := t.Topic
	if version >= 13 { // by id
		name = f.topicOf(t.TopicID)
	}
	return name == "" || f.may(c.who, kmsg.ACLOperationWrite, topic, name)
}

// checkBatch looks into one batch. What is compressed waits for its turn, so that
// opening it never takes all processors, nor the memory of many at a time.
func (f *Front) checkBatch(c *conn, records []byte, version int16) error {
	if batch.Compressed(records) {
		opening := f.opts.Embedded.opening
		select {
		case opening <- struct{}{}:
			defer func() { <-opening }()
		case <-c.ctx.Done():
			return c.ctx.Err()
		}
	}
	return batch.Check(records, version)
}

// newOpening has a place for each batch that may be opened at a time.
func newOpening() chan struct{} { return make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)) }

func refusedBatch(partition int32, version int16, err error) kmsg.ProduceResponseTopicPartition {
	p := kmsg.NewProduceResponseTopicPartition()
	p.Partition, p.BaseOffset, p.ErrorCode = partition, -1, kerr.UnknownServerError.Code
	if why, ok := errors.AsType[*batch.Error](err); ok {
		p.ErrorCode = why.Kafka.Code
		if version >= 8 {
			p.ErrorMessage = &why.Reason
		}
	}
	return p
}

// addTopics puts the answers for partitions beside those for others of the same
// topic.
func addTopics(resp *kmsg.ProduceResponse, more []kmsg.ProduceResponseTopic) {
	for _, t := range more {
		at := slices.IndexFunc(resp.Topics, func(r kmsg.ProduceResponseTopic) bool { return r.Topic == t.Topic && r.TopicID == t.TopicID })
		if at < 0 {
			resp.Topics = append(resp.Topics, t)
		} else {
			resp.Topics[at].Partitions = append(resp.Topics[at].Partitions, t.Partitions...)
		}
	}
}

// produced counts the topics and partitions that a Produce names, before any
// memory is taken for them and until they are more than enough. Six bytes of the
// request name a partition, and a hundred hold it.
func produced(version int16, body []byte, enough int) int {
	r := kbin.Reader{Src: body}
	array, name, records := r.ArrayLen, func() { _ = r.String() }, func() { r.NullableBytes() }
	tags := func() {}
	if version >= 9 {
		array, name, records = r.CompactArrayLen, func() { r.CompactString() }, func() { r.CompactNullableBytes() }
		tags = func() { kmsg.SkipTags(&r) }
		r.CompactNullableString()
	} else {
		r.NullableString()
	}
	if version >= 13 {
		name = func() { r.Uuid() }
	}
	r.Int16() // acks
	r.Int32() // timeout
	n := 0
	for topics := array(); topics > 0 && r.Ok() && n <= enough; topics-- {
		n++
		name()
		for partitions := array(); partitions > 0 && r.Ok() && n <= enough; partitions-- {
			n++
			r.Int32()
			records()
			tags()
		}
		tags()
	}
	return n
}
