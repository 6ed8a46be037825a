package broker

import (
	"context"
	"errors"
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
func (f *Front) routeInitProducerID(_ *conn, req *request) plan {
	if v6, ok := req.body.(*wire.InitProducerIDRequestV6); ok {
		return f.routeInitProducerIDV6(req, v6)
	}
	body := req.body.(*kmsg.InitProducerIDRequest)
	refusal := f.refuseInit(body.TransactionalID, body.TransactionTimeoutMillis, body.ProducerID, body.ProducerEpoch)
	sent := *body
	if refusal == nil {
		refusal = f.expected(&sent)
	}
	if refusal != nil {
		resp := body.ResponseKind().(*kmsg.InitProducerIDResponse)
		resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = refusal.Code, -1, -1
		return answerWith(resp)
	}
	return plan{sent: &sent, raw: req.withBody(&sent), edit: editAs(func(r *kmsg.InitProducerIDResponse) kmsg.Response {
		return f.initialised(body.TransactionalID, r)
	})}
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
	refusal := f.refuseInitV6(body)
	if refusal == nil && named(body.TransactionalID) && body.KeepPreparedTxn {
		return handledBy(func(ctx context.Context) kmsg.Response { return f.keepPrepared(ctx, v5) })
	}
	if refusal == nil {
		refusal = f.expected(v5)
	}
	if refusal != nil {
		return answerWith(refusedV6(refusal))
	}
	return plan{
		sent: v5,
		raw:  req.withBody(v5),
		edit: editAs(func(r *kmsg.InitProducerIDResponse) kmsg.Response {
			return asV6(f.initialised(body.TransactionalID, r))
		}),
	}
}

func asV6(r *kmsg.InitProducerIDResponse) *wire.InitProducerIDResponseV6 {
	resp := wire.NewPtrInitProducerIDResponseV6()
	resp.ThrottleMillis, resp.ErrorCode = r.ThrottleMillis, r.ErrorCode
	resp.ProducerID, resp.ProducerEpoch = r.ProducerID, r.ProducerEpoch
	return resp
}

func refusedV6(err *kerr.Error) *wire.InitProducerIDResponseV6 {
	resp := wire.NewPtrInitProducerIDResponseV6()
	resp.ErrorCode, resp.ProducerID, resp.ProducerEpoch = err.Code, -1, -1
	return resp
}

// keepPrepared is InitProducerId with KeepPreparedTxn. What the journal of the
// embedded broker has to see of it passes by the journal here.
func (f *Front) keepPrepared(ctx context.Context, v5 *kmsg.InitProducerIDRequest) kmsg.Response {
	p, id := f.opts.Embedded.producers, *v5.TransactionalID
	p.keeping.Lock()
	defer p.keeping.Unlock()
	kept, err := p.keep(ctx, id, pair{v5.ProducerID, v5.ProducerEpoch})
	if err != nil {
		return refusedV6(kerr.TypedErrorForCode(errorCode(err)))
	}
	if kept != nil {
		if err = p.put(id, kept); err != nil {
			f.opts.Fatal(err)
			return nil
		}
		resp := wire.NewPtrInitProducerIDResponseV6()
		resp.ProducerID, resp.ProducerEpoch = kept.NextProducerID, kept.NextProducerEpoch
		resp.OngoingTxnProducerID, resp.OngoingTxnProducerEpoch = kept.ProducerID, kept.ProducerEpoch
		return resp
	}
	if refusal := f.expected(v5); refusal != nil {
		return refusedV6(refusal)
	}
	r, err := f.askJournalled(ctx, v5)
	if err != nil {
		return nil
	}
	return asV6(f.initialised(&id, r.(*kmsg.InitProducerIDResponse)))
}

// askJournalled sends a request of transactions to kfake for a handler.
func (f *Front) askJournalled(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if f.opts.Journal == nil {
		return f.opts.Embedded.ask(ctx, req)
	}
	if err := f.opts.Journal.Request(req); err != nil {
		f.opts.Fatal(err)
		return nil, err
	}
	resp, err := f.opts.Embedded.ask(ctx, req)
	if err != nil {
		return nil, errors.Join(err, f.record(req, nil))
	}
	return resp, f.record(req, resp)
}

// initialised notes the producer that an InitProducerId has given out.
func (f *Front) initialised(id *string, r *kmsg.InitProducerIDResponse) *kmsg.InitProducerIDResponse {
	if r.ErrorCode != 0 {
		return r
	}
	p := f.opts.Embedded.producers
	if !named(id) {
		p.plain.put(r.ProducerID, struct{}{})
		return r
	}
	p.learn(*id, pair{r.ProducerID, r.ProducerEpoch})
	if err := p.put(*id, nil); err != nil {
		f.opts.Fatal(err)
		r.ErrorCode, r.ProducerID, r.ProducerEpoch = kerr.KafkaStorageError.Code, -1, -1
	}
	return r
}

// expected checks an InitProducerId against the producer that its transactional
// id has now, and puts what kfake calls that producer into it. kfake bumps the
// epoch of any producer that is named, whatever its transactional id.
func (f *Front) expected(req *kmsg.InitProducerIDRequest) *kerr.Error {
	if !named(req.TransactionalID) {
		return nil
	}
	p, id := f.opts.Embedded.producers, *req.TransactionalID
	now, err := f.opts.Embedded.transaction(f.ctx, id)
	at := pair{req.ProducerID, req.ProducerEpoch}
	k, kept := p.keptBy(id, at)
	switch {
	case err != nil:
		return kerr.CoordinatorNotAvailable
	case now.known && req.TransactionTimeoutMillis == noTimeout && now.timeoutMillis != noTimeout:
		// kfake keeps the timeout that an id came with first, and would abort a
		// transaction that was promised not to time out.
		return kerr.InvalidTransactionTimeout
	case at.id < 0:
		return nil
	case !now.known:
		req.ProducerID, req.ProducerEpoch = -1, -1 // as in Kafka: the id has expired
	case kept && now.pair == pair{k.ProducerID, k.ProducerEpoch}:
		req.ProducerID, req.ProducerEpoch = k.ProducerID, k.ProducerEpoch
	case at.id != now.id || at.epoch > now.epoch || at.epoch < now.epoch-1 || p.fenced(id, at):
		// The last but one epoch is Kafka's lastProducerEpoch: a producer that
		// was timed out comes back with it.
		return kerr.ProducerFenced
	}
	return nil
}

// routeTransaction lets a producer's request through when the producer is the
// transactional id's.
func (f *Front) routeTransaction(body kmsg.Request) plan {
	id, at, ok := producerOf(body)
	if !ok {
		return plan{}
	}
	if refused := f.opts.Embedded.producers.check(f.ctx, id, at); refused != nil {
		return answerWith(refuseTransaction(body, refused))
	}
	return plan{}
}

// transactional is routeTransaction as a route.
func transactional(f *Front, _ *conn, req *request) plan { return f.routeTransaction(req.body) }

func (f *Front) routeEndTxn(_ *conn, req *request) plan {
	body := req.body.(*kmsg.EndTxnRequest)
	p, id := f.opts.Embedded.producers, body.TransactionalID
	k, kept := p.keptBy(id, pair{body.ProducerID, body.ProducerEpoch})
	if !kept {
		planned := f.routeTransaction(body)
		if planned.handle == nil && body.Version >= 5 {
			planned.edit = editAs(func(r *kmsg.EndTxnResponse) kmsg.Response {
				if r.ErrorCode == 0 && r.ProducerID >= 0 {
					p.learn(id, pair{r.ProducerID, r.ProducerEpoch})
				}
				return r
			})
		}
		return planned
	}
	// In version 5, whatever the client speaks: the epoch has to move on.
	sent := kmsg.NewPtrEndTxnRequest()
	sent.Version, sent.TransactionalID, sent.Commit = 5, id, body.Commit
	sent.ProducerID, sent.ProducerEpoch = k.ProducerID, k.ProducerEpoch
	marked := *sent
	marked.UnknownTags.Set(endsKept, p.secret)
	return plan{
		sent: sent,
		raw:  kmsg.NewRequestFormatter().AppendRequest(nil, &marked, req.correlationID),
		edit: editAs(func(r *kmsg.EndTxnResponse) kmsg.Response {
			if r.ErrorCode == 0 {
				p.learn(id, pair{r.ProducerID, r.ProducerEpoch})
				p.markEnded(id, k)
			}
			r.Version = body.Version
			return r
		}),
	}
}

// routeProducer lets a Produce through when its producers are who they say.
func (f *Front) routeProducer(body *kmsg.ProduceRequest) plan {
	refused := f.opts.Embedded.producers.checkProduce(f.ctx, body)
	switch {
	case refused == nil:
		return plan{silent: body.Acks == 0}
	case body.Acks == 0:
		return answerWith(nil) // Kafka, too, ends the connection
	case refused == kerr.ProducerFenced:
		refused = kerr.InvalidProducerEpoch // what Kafka's AddPartitionsToTxnManager makes of it
	}
	return answerWith(refuseTransaction(body, refused))
}

// refuseTransaction is the answer to a producer's request with one error
// everywhere.
func refuseTransaction(req kmsg.Request, err *kerr.Error) kmsg.Response {
	resp := req.ResponseKind()
	switch r := resp.(type) {
	case *kmsg.EndTxnResponse:
		r.ErrorCode = err.Code
	case *kmsg.AddOffsetsToTxnResponse:
		r.ErrorCode = err.Code
	case *kmsg.AddPartitionsToTxnResponse:
		for _, t := range req.(*kmsg.AddPartitionsToTxnRequest).Topics {
			out := kmsg.NewAddPartitionsToTxnResponseTopic()
			out.Topic = t.Topic
			for _, partition := range t.Partitions {
				p := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
				p.Partition, p.ErrorCode = partition, err.Code
				out.Partitions = append(out.Partitions, p)
			}
			r.Topics = append(r.Topics, out)
		}
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range req.(*kmsg.TxnOffsetCommitRequest).Topics {
			out := kmsg.NewTxnOffsetCommitResponseTopic()
			out.Topic, out.TopicID = t.Topic, t.TopicID
			for _, in := range t.Partitions {
				p := kmsg.NewTxnOffsetCommitResponseTopicPartition()
				p.Partition, p.ErrorCode = in.Partition, err.Code
				out.Partitions = append(out.Partitions, p)
			}
			r.Topics = append(r.Topics, out)
		}
	case *kmsg.ProduceResponse:
		for _, t := range req.(*kmsg.ProduceRequest).Topics {
			r.Topics = append(r.Topics, refusedTopic(t, err))
		}
	}
	return resp
}

func refusedTopic(t kmsg.ProduceRequestTopic, err *kerr.Error) kmsg.ProduceResponseTopic {
	out := kmsg.NewProduceResponseTopic()
	out.Topic, out.TopicID = t.Topic, t.TopicID
	for _, in := range t.Partitions {
		p := kmsg.NewProduceResponseTopicPartition()
		p.Partition, p.ErrorCode, p.BaseOffset = in.Partition, err.Code, -1
		out.Partitions = append(out.Partitions, p)
	}
	return out
}

func (f *Front) refuseInitV6(body *wire.InitProducerIDRequestV6) *kerr.Error {
	timeout := body.TransactionTimeoutMillis
	if named(body.TransactionalID) {
		switch {
		case halfProducer(body.ProducerID, body.ProducerEpoch):
			return kerr.InvalidRequest
		case (body.Enable2PC || body.KeepPreparedTxn) && !f.opts.Config.TwoPhaseCommit:
			// KIP-939 refuses so whatever is of two-phase commit.
			return kerr.TransactionalIDAuthorizationFailed
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
// out.
func showOffsets(resp *kmsg.DescribeTransactionsResponse) kmsg.Response {
	for i := range resp.TransactionStates {
		if s := &resp.TransactionStates[i]; s.State == "Ongoing" && len(s.Topics) == 0 {
			addOffsetsTopic(s)
		}
	}
	return resp
}

func addOffsetsTopic(s *kmsg.DescribeTransactionsResponseTransactionState) {
	offsets := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
	offsets.Topic, offsets.Partitions = offsetsTopic, []int32{0}
	s.Topics = append(s.Topics, offsets)
}
