package client

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// errNotKept: the cluster does not keep prepared transactions, and has done
// nothing.
var errNotKept = errors.New("the cluster does not keep prepared transactions")

// initialiseKeeping gets the producer id and epoch by InitProducerId v6 with
// KeepPreparedTxn (KIP-939), which aborts nothing: a copy of it that comes late,
// when another client of the id has written and its commit is decided, takes the
// producer over and leaves the transaction to the decision. An ordinary
// InitProducerId would abort it there while another cluster commits.
//
// What the cluster names as ongoing is ended here, by an EndTxn(abort) under the
// new pair, and not before the coordinator has said once more that the id is
// this client's (InitGlobalTxn, which is not granted while a commit is pending).
// If the pair is refused, somebody has initialised the producer since: the
// coordinator, which had a decision to tell, or another client. InitGlobalTxn tells
// the two apart.
//
// errNotKept: Kafka up to 4.4 answers UNSUPPORTED_VERSION to KeepPreparedTxn,
// and a cluster or a principal without two-phase commit
// TRANSACTIONAL_ID_AUTHORIZATION_FAILED, both without effect. When that is not the
// first answer, as from brokers of two versions in a rolling upgrade, it has taken
// a while, and the caller's next InitProducerId aborts: then the coordinator has
// said once more, too, that the id is this client's.
func (p *participant) initialiseKeeping(ctx context.Context, by permission) error {
	for backoff := shortestBackoff; ; backoff = min(2*backoff, longestBackoff) {
		err := p.keepOnce(ctx, by)
		if errors.Is(err, errNotKept) && backoff > shortestBackoff {
			if refused := by.renew(ctx); refused != nil {
				return refused
			}
		}
		if err == nil || errors.Is(err, errNotKept) || coded(err) && !keepAgain(err) || ctx.Err() != nil || isClosed(err) {
			return err
		}
		if _, fenced := errors.AsType[*FencedError](err); fenced {
			return err
		}
		if ended := pause(ctx, backoff); ended != nil {
			return fmt.Errorf("%w (before that: %w)", ended, err)
		}
	}
}

// keepAgain reports whether the conversation may succeed when it begins anew.
func keepAgain(err error) bool {
	return kerr.IsRetriable(err) || errors.Is(err, kerr.ConcurrentTransactions) || refusedAbort(err)
}

func (p *participant) keepOnce(ctx context.Context, by permission) error {
	next, ongoing, err := p.takeOver(ctx)
	if err != nil {
		return err
	}
	if ongoing {
		if err = by.renew(ctx); err != nil {
			return err
		}
		if next, err = p.endKept(ctx, next, false); refusedAbort(err) {
			return errors.Join(by.renew(ctx), err)
		} else if err != nil {
			return err
		}
	}
	return p.take(next)
}

// takeOver fences the producer of the id and gives the pair that comes after it.
// What is ongoing stays so, and only that pair can end it.
func (p *participant) takeOver(ctx context.Context) (next pair, ongoing bool, err error) {
	node, err := p.keeper(ctx)
	if err != nil {
		return pair{}, false, err
	}
	req := wire.NewPtrInitProducerIDRequestV6()
	req.TransactionalID, req.TransactionTimeoutMillis = &p.id, math.MaxInt32
	req.Enable2PC, req.KeepPreparedTxn = true, true
	resp, err := req.RequestWith(ctx, node)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	switch {
	case errors.Is(err, kerr.UnsupportedVersion), errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		return pair{}, false, errNotKept
	case err != nil:
		return pair{}, false, err
	}
	return pair{resp.ProducerID, resp.ProducerEpoch}, resp.OngoingTxnProducerID >= 0, nil
}

// pair is a producer id and epoch.
type pair struct {
	id    int64
	epoch int16
}

// endKept ends what an earlier client has left open, under the pair that has
// taken its producer over, and gives the pair to go on with.
func (p *participant) endKept(ctx context.Context, by pair, commit bool) (pair, error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.Commit = p.id, commit
	req.ProducerID, req.ProducerEpoch = by.id, by.epoch
	resp, err := req.RequestWith(ctx, p.raw)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err == nil && resp.ProducerID < 0 {
		// EndTxn below v5 does not say what comes next; InitProducerId does.
		err = kerr.ConcurrentTransactions
	}
	if err != nil {
		return pair{}, fmt.Errorf("end what an earlier client has left open: %w", err)
	}
	return pair{resp.ProducerID, resp.ProducerEpoch}, nil
}

// take lets kgo, which must not have a producer id of its own, go on with a pair.
func (p *participant) take(next pair) error {
	if p.used || p.loaded {
		if err := p.renew(); err != nil {
			return err
		}
	}
	p.producerID, p.producerEpoch = next.id, next.epoch
	return nil
}

// keeper is the transaction coordinator of the id, if it offers InitProducerId v6.
func (p *participant) keeper(ctx context.Context) (*kgo.Broker, error) {
	if p.conf.TwoPhaseCommit == TwoPhaseCommitOff {
		return nil, errNotKept
	}
	if v, ok := p.maxVersions().LookupMaxKeyVersion(keyInitProducerID); !ok || v < initProducerIDStable {
		return nil, errNotKept // the application's own kgo.MaxVersions
	}
	id, err := p.coordinator(ctx, p.raw)
	if err != nil {
		return nil, err
	}
	node := p.raw.Broker(int(id))
	req := kmsg.NewPtrApiVersionsRequest()
	req.ClientSoftwareName, req.ClientSoftwareVersion = "kafka-gtc", "0"
	resp, err := req.RequestWith(ctx, node)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(resp.ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
		return k.ApiKey == keyInitProducerID && k.MaxVersion >= initProducerID2PC
	}) {
		return nil, errNotKept
	}
	return node, nil
}

// coordinator looks for the transaction coordinator each time: a kgo client
// would go on to dial one that it knows and that has died (measured with
// v1.22.3, where a request that may name several ids keeps its coordinators
// until one of them answers NOT_COORDINATOR).
func (p *participant) coordinator(ctx context.Context, cl *kgo.Client) (int32, error) {
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType, find.CoordinatorKey, find.CoordinatorKeys = 1, p.id, []string{p.id} // 1: of transactions
	found, err := find.RequestWith(ctx, cl)
	if err != nil {
		return 0, err
	}
	if len(found.Coordinators) != 1 {
		return 0, fmt.Errorf("an answer of %d coordinators to a question for one", len(found.Coordinators))
	}
	return found.Coordinators[0].NodeID, kerr.ErrorForCode(found.Coordinators[0].ErrorCode)
}
