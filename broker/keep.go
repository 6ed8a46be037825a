package broker

import (
	"bytes"
	"context"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// KeepPreparedTxn (KIP-939). kfake has one producer id and epoch for each
// transactional id, and KIP-939 needs two: the pair that wrote the open
// transaction and that its markers will carry, and the pair that the client
// goes on with. So the second one is kept here. From InitProducerId(keep) on
//
//   - kfake itself refuses the pair of the transaction, by a fault that is
//     looked at where kfake handles requests, one after the other: once the
//     transaction was seen open behind that, nothing of the old producer can
//     still get in;
//   - EndTxn by the new pair goes to kfake as EndTxn by the old one, with a tag
//     that only this process knows, by which the fault lets it through. The
//     answer has the old producer id and the next epoch, which nobody was given
//     before: with this the client goes on;
//   - everything else by the new pair is INVALID_TXN_STATE: it is for ending.
//
// The new producer id is one of its own, as in Kafka when the epochs of the old
// one have run out; a client that comes back again gets the next epoch of it.
// The new pair is forced to the disk before the client is told.

// endsKept is the tag of an EndTxn that the front sends for a kept transaction.
// Kafka numbers tags from 0.
const endsKept = math.MaxUint32

// lastEpoch is the last one that a producer id is used with, as in Kafka.
const lastEpoch = math.MaxInt16 - 1

// fences are the faults by which kfake refuses producers of kept transactions.
func (p *producers) fences() []kfake.Fault {
	return []kfake.Fault{
		{
			Keys: []kmsg.Key{kmsg.AddPartitionsToTxn, kmsg.AddOffsetsToTxn, kmsg.TxnOffsetCommit, kmsg.EndTxn},
			Err:  kerr.ProducerFenced, Count: -1,
			When: func(req kmsg.Request) bool {
				id, at, ok := producerOf(req)
				return ok && p.fenced(id, at) && !p.sentByFront(req)
			},
		},
		{
			Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.InvalidProducerEpoch, Count: -1,
			When: func(req kmsg.Request) bool {
				produce, ok := req.(*kmsg.ProduceRequest)
				return ok && produce.TransactionID != nil && slices.ContainsFunc(produce.Topics, func(t kmsg.ProduceRequestTopic) bool {
					return slices.ContainsFunc(t.Partitions, func(part kmsg.ProduceRequestTopicPartition) bool {
						return len(part.Records) >= batchHeaderBytes && p.fenced(*produce.TransactionID, batchPair(part.Records))
					})
				})
			},
		},
	}
}

// sentByFront knows the EndTxn by the new pair.
func (p *producers) sentByFront(req kmsg.Request) bool {
	end, ok := req.(*kmsg.EndTxnRequest)
	marked := false
	if ok {
		end.UnknownTags.Each(func(tag uint32, value []byte) { marked = marked || tag == endsKept && bytes.Equal(value, p.secret) })
	}
	return marked
}

// producerOf is who sends a request of a transaction.
func producerOf(req kmsg.Request) (id string, at pair, ok bool) {
	switch r := req.(type) {
	case *kmsg.AddPartitionsToTxnRequest:
		return r.TransactionalID, pair{r.ProducerID, r.ProducerEpoch}, r.Version < 4 // newer ones are between brokers
	case *kmsg.AddOffsetsToTxnRequest:
		return r.TransactionalID, pair{r.ProducerID, r.ProducerEpoch}, true
	case *kmsg.TxnOffsetCommitRequest:
		return r.TransactionalID, pair{r.ProducerID, r.ProducerEpoch}, true
	case *kmsg.EndTxnRequest:
		return r.TransactionalID, pair{r.ProducerID, r.ProducerEpoch}, true
	}
	return "", pair{}, false
}

func (p *producers) fenced(id string, at pair) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, ok := p.kept[id]
	return ok && at == pair{k.ProducerID, k.ProducerEpoch}
}

// checkKept answers for producers of kept transactions; kept is false for all
// others.
func (p *producers) checkKept(id string, at pair) (refused *kerr.Error, kept bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, ok := p.kept[id]
	switch {
	case !ok || at.id != k.NextProducerID && at != pair{k.ProducerID, k.ProducerEpoch}:
		return nil, false
	case at != pair{k.NextProducerID, k.NextProducerEpoch} || p.ended[id]:
		return kerr.ProducerFenced, true
	}
	return kerr.InvalidTxnState, true
}

// keptBy gives the kept transaction that a pair ends.
func (p *producers) keptBy(id string, at pair) (durable.Kept, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, ok := p.kept[id]
	return k, ok && at == pair{k.NextProducerID, k.NextProducerEpoch}
}

// markEnded notes that the new pair has ended the transaction.
func (p *producers) markEnded(id string, k durable.Kept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kept[id] == k {
		p.ended[id] = true
	}
}

// put writes the kept transaction of an id down, or that there is none.
func (p *producers) put(id string, k *durable.Kept) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, had := p.kept[id]; k == nil && !had {
		return nil
	}
	delete(p.ended, id)
	delete(p.kept, id)
	if k != nil {
		p.kept[id] = *k
	}
	all := make([]durable.Kept, 0, len(p.kept))
	for _, one := range p.kept {
		if one.NextProducerID >= 0 {
			all = append(all, one)
		}
	}
	return p.save(all)
}

// fence begins to refuse a pair. What the client is to go on with is not known
// yet.
func (p *producers) fence(id string, at pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ended, id)
	p.kept[id] = durable.Kept{TransactionalID: id, ProducerID: at.id, ProducerEpoch: at.epoch, NextProducerID: -1, NextProducerEpoch: -1}
}

// loadKept finds the transactions that were kept before the node ended, and
// forgets those that have gone on since.
func (p *producers) loadKept(ctx context.Context) error {
	for id, k := range p.kept {
		now, err := p.embedded.transaction(ctx, id)
		if err != nil {
			return err
		}
		switch {
		case now.ongoing && now.pair == pair{k.ProducerID, k.ProducerEpoch}:
		case !now.ongoing && now.pair == pair{k.ProducerID, k.ProducerEpoch + 1}:
			p.ended[id] = true // its EndTxn may be sent again
		default:
			delete(p.kept, id)
		}
	}
	return nil
}

// keepAttempts is how often a transaction may go on while it is being kept.
const keepAttempts = 3

// keep fences the producer of the open transaction of an id and gives the pair
// to go on with. It gives nil when no transaction is open, and an error of kerr
// for the client.
func (p *producers) keep(ctx context.Context, id string, expected pair) (*durable.Kept, error) {
	p.mu.Lock()
	before, again := p.kept[id]
	p.mu.Unlock()
	now, err := p.embedded.transaction(ctx, id)
	for range keepAttempts {
		if err != nil {
			return nil, kerr.CoordinatorNotAvailable
		}
		if !now.ongoing {
			return nil, nil
		}
		again = again && now.pair == pair{before.ProducerID, before.ProducerEpoch}
		current := now.pair
		if again {
			current = pair{before.NextProducerID, before.NextProducerEpoch}
		} else {
			p.fence(id, now.pair)
		}
		if expected.id >= 0 && expected != current {
			return nil, p.unfence(id, again, kerr.ProducerFenced)
		}
		at := now.pair
		if now, err = p.embedded.transaction(ctx, id); err == nil && now.ongoing && now.pair == at {
			next, nextErr := p.next(ctx, before, again)
			if nextErr != nil {
				return nil, p.unfence(id, again, kerr.CoordinatorNotAvailable)
			}
			k := durable.Kept{TransactionalID: id, ProducerID: at.id, ProducerEpoch: at.epoch, NextProducerID: next.id, NextProducerEpoch: next.epoch}
			return &k, nil
		}
		if restored := p.unfence(id, again, nil); restored != nil {
			return nil, restored
		}
	}
	return nil, kerr.ConcurrentTransactions
}

// unfence takes a fence back that was set for nothing.
func (p *producers) unfence(id string, again bool, err error) error {
	if !again {
		p.mu.Lock()
		delete(p.kept, id)
		p.mu.Unlock()
	}
	return err
}

// next is the pair after that of the last time, or the first one of a producer
// id that nobody has.
func (p *producers) next(ctx context.Context, before durable.Kept, again bool) (pair, error) {
	if again && before.NextProducerEpoch < lastEpoch {
		return pair{before.NextProducerID, before.NextProducerEpoch + 1}, nil
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version = wire.InitProducerIDVersion - 1
	resp, err := p.embedded.ask(ctx, req)
	if err != nil {
		return pair{}, err
	}
	r := resp.(*kmsg.InitProducerIDResponse)
	return pair{r.ProducerID, r.ProducerEpoch}, kerr.ErrorForCode(r.ErrorCode)
}
