package client

import (
	"context"
	"errors"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What to set on a cluster's brokers, for NotEnabledError.
const (
	setting2PC       = "transaction.two.phase.commit.enable=true (up to Kafka 4.4 with unstable.api.versions.enable=true)"
	settingNoTimeout = "transaction.max.timeout.ms=2147483647"
	settingEither    = settingNoTimeout + " or " + setting2PC
)

// participant is the producer on one cluster under the transactional id. Its
// fields change only between two transactions, under the client's lock.
type participant struct {
	name      string
	conf      Cluster
	id        string // transactional id
	gate      *gate
	clusterID string

	kgo *kgo.Client
	// used: kgo has, or may have, a producer id. It cannot be told to drop
	// it, so a producer is initialised again by a new kgo client.
	used bool
	// stale: the producer has to be initialised again before it is used.
	stale bool
	// begun: kgo is in a transaction, under producerID and producerEpoch.
	begun         bool
	producerID    int64
	producerEpoch int16
}

func newParticipant(name, transactionalID string, conf Cluster) (*participant, error) {
	p := &participant{
		name:  name,
		conf:  conf,
		id:    transactionalID,
		gate:  &gate{transactionalID: transactionalID},
		stale: true,
	}
	return p, p.renew()
}

// renew makes a new kgo client in place of the old one.
func (p *participant) renew() error {
	dial := p.conf.Dialer
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	cl, err := kgo.NewClient(with(p.conf.ClientOpts,
		kgo.TransactionalID(p.id),
		kgo.TransactionTimeout(noTransactionTimeout),
		kgo.Dialer(p.gate.dialer(dial)),
	)...)
	if err != nil {
		return &ParticipantError{Cluster: p.name, Err: err}
	}
	p.close()
	p.kgo, p.used, p.begun = cl, false, false
	return nil
}

func (p *participant) close() {
	if p.kgo != nil {
		p.kgo.Close()
	}
}

// identify learns the cluster's id from the cluster itself.
func (p *participant) identify(ctx context.Context) error {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // none, where nil means all
	resp, err := req.RequestWith(ctx, p.kgo)
	if err != nil {
		return &ParticipantError{Cluster: p.name, Err: fmt.Errorf("ask for its cluster id: %w", err)}
	}
	if resp.ClusterID == nil || *resp.ClusterID == "" {
		return &ParticipantError{Cluster: p.name, Err: errors.New("it has no cluster id")}
	}
	if p.conf.ID != "" && p.conf.ID != *resp.ClusterID {
		return &ClusterIDMismatchError{Cluster: p.name, Want: p.conf.ID, Got: *resp.ClusterID}
	}
	p.clusterID = *resp.ClusterID
	return nil
}

// initialise sends InitProducerId, which aborts what is open on the cluster
// under the id. The caller has asked InitGlobalTxn first (R3), so nothing that
// is open has been, or can still be, decided.
func (p *participant) initialise(ctx context.Context) error {
	p.gate.setUpgrade(p.conf.TwoPhaseCommit != TwoPhaseCommitOff, p.conf.TwoPhaseCommit == TwoPhaseCommitOn)
	err := p.initialiseOnce(ctx)
	if p.conf.TwoPhaseCommit == TwoPhaseCommitAuto && p.gate.wasUpgraded() &&
		errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		// Kafka's answer to Enable2Pc both without the setting and without
		// the operation TWO_PHASE_COMMIT. The other way needs neither.
		p.gate.setUpgrade(false, false)
		err = p.initialiseOnce(ctx)
	}
	switch {
	case err == nil:
		p.stale = false
		return nil
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return &NotEnabledError{Cluster: p.name, Setting: settingEither, Err: err}
	case p.conf.TwoPhaseCommit == TwoPhaseCommitOn && (errors.Is(err, kerr.UnsupportedVersion) ||
		errors.Is(err, kerr.TransactionalIDAuthorizationFailed)):
		return &NotEnabledError{Cluster: p.name, Setting: setting2PC + ", and allow TWO_PHASE_COMMIT on the transactional id,", Err: err}
	}
	return &ParticipantError{Cluster: p.name, Err: fmt.Errorf("initialise the producer: %w", err)}
}

func (p *participant) initialiseOnce(ctx context.Context) error {
	if p.used {
		if err := p.renew(); err != nil {
			return err
		}
	}
	p.used = true
	p.gate.setPhase(phaseInit)
	defer p.gate.setPhase(phaseShut)
	_, _, err := p.kgo.ProducerID(ctx)
	return err
}

// begin starts a transaction in kgo; the cluster hears of it with the first
// record. The gate is shut: kgo may want to initialise its producer id once
// more, but since InitGlobalTxn another client may have got the id (R3).
func (p *participant) begin(ctx context.Context) error {
	id, epoch, err := p.kgo.ProducerID(ctx)
	if err == nil {
		err = p.kgo.BeginTransaction()
	}
	if err != nil {
		p.stale = true
		return &ParticipantError{Cluster: p.name, Err: fmt.Errorf("begin: %w", err)}
	}
	p.begun, p.producerID, p.producerEpoch = true, id, epoch
	return nil
}

// verify reports whether the producer is still the one that the transaction
// began with. kgo can replace it behind our back, and then the cluster has
// aborted what was written; to the coordinator that looks like a participant
// that wrote nothing.
func (p *participant) verify(ctx context.Context) error {
	id, epoch, err := p.kgo.ProducerID(ctx)
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return &ProducerError{Cluster: p.name, Err: err}
	case id != p.producerID || epoch != p.producerEpoch:
		return &ProducerError{Cluster: p.name, Err: fmt.Errorf(
			"it began as producer id %d epoch %d and is now %d epoch %d", p.producerID, p.producerEpoch, id, epoch)}
	}
	return nil
}

// abort ends the transaction on this cluster alone. The caller has not asked
// for commit, and never will.
func (p *participant) abort(ctx context.Context) error {
	p.gate.setPhase(phaseAbort)
	defer p.gate.setPhase(phaseShut)
	err := p.kgo.EndTransaction(ctx, kgo.TryAbort)
	if err == nil {
		_, _, err = p.kgo.ProducerID(ctx)
	}
	p.begun = false
	if err == nil {
		return nil
	}
	// After some errors kgo sends no EndTxn, and would abort by an
	// InitProducerId; the gate does not let it. The readers should not wait.
	p.stale = true
	return p.endTxn(ctx)
}

// endTxn aborts the transaction by its producer id and epoch (R2): if another
// client has got the id meanwhile, it is refused, where an InitProducerId would
// abort what that one has open, decided or not.
func (p *participant) endTxn(ctx context.Context) error {
	for {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID = p.id
		req.ProducerID, req.ProducerEpoch = p.producerID, p.producerEpoch
		resp, err := req.RequestWith(ctx, p.kgo)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case errors.Is(err, kerr.ConcurrentTransactions):
		case errors.Is(err, kerr.InvalidTxnState), errors.Is(err, kerr.ProducerFenced), errors.Is(err, kerr.InvalidProducerEpoch):
			return nil // nothing of it is open: never begun, or aborted by a new epoch
		default:
			return err
		}
		if err := pause(ctx, shortestBackoff); err != nil {
			return err
		}
	}
}

// adopt takes kgo to the state after the coordinator's end of the transaction.
func (p *participant) adopt(ctx context.Context, commit bool, nextID int64, nextEpoch int16) {
	if p.stale || nextID < 0 {
		p.stale = true
		return
	}
	p.gate.adopt(adoption{
		commit: commit,
		id:     p.producerID, epoch: p.producerEpoch,
		nextID: nextID, nextEpoch: nextEpoch,
	})
	err := p.kgo.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	p.begun = false
	// kgo may also have found that it has nothing to end. Whatever it is, a
	// producer that did not take the answer is not used again.
	p.stale = !p.gate.adopted() || err != nil
}

// leave ends kgo's view of a transaction that wrote nothing to this cluster.
func (p *participant) leave(ctx context.Context) {
	if !p.begun || p.stale {
		return
	}
	p.begun = false
	if err := p.kgo.EndTransaction(ctx, kgo.TryAbort); err != nil {
		p.stale = true
	}
}
