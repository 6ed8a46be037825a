package broker

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/broker/durable"
)

// pair is a producer id and an epoch of it.
type pair struct {
	id    int64
	epoch int16
}

// producers is what the node knows of transactional producers besides kfake,
// for all fronts of one embedded broker. kfake finds a producer by its id alone
// and believes any epoch that is higher than the one it has: a client could end
// the transaction of another, or fence it, with an id that it has seen in a log.
type producers struct {
	embedded *Embedded

	mu     sync.Mutex
	owners map[int64]owner         // by producer id, which never changes hands; kfake can be asked again
	kept   map[string]durable.Kept // by transactional id; see keep.go
	save   func([]durable.Kept) error
	ended  map[string]bool // of kept: the new pair has ended it, and may ask again

	// plain are producer ids that were given out without a transactional id. Only
	// those: one that nobody was given yet can become the coordinator's.
	plain recent[int64, struct{}]

	secret []byte // marks what the front sends for kept transactions

	keeping sync.Mutex // one InitProducerId(KeepPreparedTxn) at a time
}

// owner is whose a producer id is, and the highest epoch of it that kfake gave.
type owner struct {
	transactionalID string
	epoch           int16
}

// ask sends one request to kfake, past the front, and returns its answer once
// what it promises is on the disk.
func (e *Embedded) ask(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	conn, err := e.dialNode(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Close()                                      //nolint:errcheck // an end of a pipe
	stop := context.AfterFunc(ctx, func() { conn.Close() }) //nolint:errcheck // wakes what follows
	defer stop()
	if _, err = conn.Write(kmsg.NewRequestFormatter().AppendRequest(nil, req, 0)); err != nil {
		return nil, err
	}
	frame, err := readResponse(bufio.NewReader(conn))
	if err != nil {
		return nil, fmt.Errorf("no answer of the embedded broker to %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	resp := req.ResponseKind()
	return resp, errors.Join(decodeResponse(frame, resp), e.stored(req.Key()))
}

// transaction is what kfake says of a transactional id.
type transaction struct {
	pair
	known         bool // else there is no such id
	ongoing       bool
	timeoutMillis int32
}

func (e *Embedded) transaction(ctx context.Context, id string) (transaction, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := e.ask(ctx, req)
	if err != nil {
		return transaction{}, err
	}
	s := resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
	switch s.ErrorCode {
	case 0:
		return transaction{pair{s.ProducerID, s.ProducerEpoch}, true, s.State == "Ongoing", s.TimeoutMillis}, nil
	case kerr.TransactionalIDNotFound.Code:
		return transaction{}, nil
	}
	return transaction{}, kerr.ErrorForCode(s.ErrorCode)
}

// learn notes a producer that kfake has given out.
func (p *producers) learn(transactionalID string, at pair) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.owners) >= recentEntries {
		clear(p.owners)
	}
	if o := p.owners[at.id]; o.transactionalID == "" || o.epoch < at.epoch {
		p.owners[at.id] = owner{transactionalID, at.epoch}
	}
}

// knows looks a producer id up. A stranger can be one that was initialised past
// the fronts, so kfake is asked before anybody is refused.
func (p *producers) knows(ctx context.Context, transactionalID string, at pair) (owner, error) {
	p.mu.Lock()
	o := p.owners[at.id]
	p.mu.Unlock()
	if o.transactionalID == transactionalID && at.epoch <= o.epoch || o.transactionalID != "" && o.transactionalID != transactionalID {
		return o, nil
	}
	now, err := p.embedded.transaction(ctx, transactionalID)
	if err != nil || now.id != at.id || !now.known {
		return o, err
	}
	p.learn(transactionalID, now.pair)
	return owner{transactionalID, now.epoch}, nil
}

// check says why a request of a producer must not reach kfake; nil when it may.
// It settles whose the producer id is; whether the epoch is the present one is
// kfake's business.
func (p *producers) check(ctx context.Context, transactionalID string, at pair) *kerr.Error {
	if refused, kept := p.checkKept(transactionalID, at); kept {
		return refused
	}
	o, err := p.knows(ctx, transactionalID, at)
	switch {
	case err != nil:
		return kerr.CoordinatorNotAvailable
	case o.transactionalID != transactionalID:
		return kerr.InvalidProducerIDMapping
	}
	return nil
}

const (
	// The header of a record batch, version 2.
	batchAttributesAt = 21
	batchProducerAt   = 43
	batchEpochAt      = 51
	batchHeaderBytes  = 61

	transactionalBatch = 0x10
)

// checkProduce is check for the batches of a Produce. Batches outside of
// transactions are looked at too: kfake takes the epoch of any batch for the
// producer's.
func (p *producers) checkProduce(ctx context.Context, req *kmsg.ProduceRequest) *kerr.Error {
	if err := p.lookUp(ctx, req); err != nil {
		return kerr.CoordinatorNotAvailable
	}
	for _, t := range req.Topics {
		for _, part := range t.Partitions {
			b := part.Records
			if len(b) < batchHeaderBytes {
				continue // kfake refuses it
			}
			at := batchPair(b)
			if at.id < 0 {
				continue
			}
			transactional := b[batchAttributesAt+1]&transactionalBatch != 0
			if refused := p.checkBatch(ctx, req.TransactionID, at, transactional); refused != nil {
				return refused
			}
		}
	}
	return nil
}

// lookUp asks kfake whose the producer ids of batches outside of transactions are
// when that is not known. Counter-example: the coordinator claims a partition of
// its log past the fronts; a batch under the claim's producer id with a high epoch,
// to any topic, fences it.
func (p *producers) lookUp(ctx context.Context, req *kmsg.ProduceRequest) error {
	list := kmsg.NewPtrListTransactionsRequest()
	for _, t := range req.Topics {
		for _, part := range t.Partitions {
			b := part.Records
			if len(b) < batchHeaderBytes || b[batchAttributesAt+1]&transactionalBatch != 0 {
				continue
			}
			id := batchPair(b).id
			p.mu.Lock()
			_, owned := p.owners[id]
			p.mu.Unlock()
			if _, plain := p.plain.get(id); id >= 0 && !owned && !plain {
				list.ProducerIDFilters = append(list.ProducerIDFilters, id)
			}
		}
	}
	if len(list.ProducerIDFilters) == 0 {
		return nil
	}
	resp, err := p.embedded.ask(ctx, list)
	if err != nil {
		return err
	}
	for _, s := range resp.(*kmsg.ListTransactionsResponse).TransactionStates {
		p.learn(s.TransactionalID, pair{s.ProducerID, 0})
	}
	return nil
}

func batchPair(batch []byte) pair {
	return pair{int64(binary.BigEndian.Uint64(batch[batchProducerAt:])), int16(binary.BigEndian.Uint16(batch[batchEpochAt:]))}
}

func (p *producers) checkBatch(ctx context.Context, transactionalID *string, at pair, transactional bool) *kerr.Error {
	var id string
	switch {
	case transactional && transactionalID == nil:
		return kerr.TransactionalIDAuthorizationFailed // as in KafkaApis
	case transactional:
		id = *transactionalID
		if refused := p.check(ctx, id, at); refused != nil {
			return refused
		}
	default:
		p.mu.Lock()
		id = p.owners[at.id].transactionalID
		p.mu.Unlock()
		if id == "" {
			return nil // an idempotent producer, whose epoch is its own to raise (KIP-360)
		}
	}
	o, err := p.knows(ctx, id, at)
	switch {
	case err != nil:
		return kerr.CoordinatorNotAvailable
	case at.epoch > o.epoch:
		return kerr.InvalidProducerEpoch
	}
	return nil
}

// load learns what kfake has found on the disk.
func (p *producers) load(ctx context.Context) error {
	resp, err := p.embedded.ask(ctx, kmsg.NewPtrListTransactionsRequest())
	if err != nil {
		return err
	}
	list := resp.(*kmsg.ListTransactionsResponse)
	if list.ErrorCode != 0 {
		return kerr.ErrorForCode(list.ErrorCode)
	}
	for _, s := range list.TransactionStates {
		// The epoch is asked for when somebody claims a higher one.
		p.learn(s.TransactionalID, pair{s.ProducerID, 0})
	}
	return p.loadKept(ctx)
}
