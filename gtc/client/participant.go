package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

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
	used      bool // kgo has asked for a producer id

	// producerID and producerEpoch are those of the transaction, of the next
	// one between two. stale: they have to be initialised again before.
	producerID    int64
	producerEpoch int16
	stale         atomic.Bool
	asked         atomic.Bool // InitGlobalTxn was, since it became stale
	// endedID and endedEpoch are those of the last transaction that has ended.
	endedID    int64
	endedEpoch int16

	// kgo produces. It cannot be told to drop or change a producer id that it
	// has, so where that is needed a new kgo client takes its place.
	kgo *kgo.Client
	// loaded: kgo has the producer id and epoch above. Otherwise it has none,
	// and gets them with the first record: a transaction of offsets alone
	// moves the epoch and kgo has no part in it.
	loaded bool
	begun  atomic.Bool

	// raw sends what names its producer id itself: offsets, and the end of a
	// transaction that this client aborts. It speaks the versions that go
	// with the cluster's transaction.version; implicit says that a
	// TxnOffsetCommit adds the group to the transaction by itself.
	raw      *kgo.Client
	implicit bool
	writes   writes
	unsure   atomic.Bool // a request about the transaction may still be under way

	// What the cluster has of the transaction: a record, group offsets.
	trace   atomic.Pointer[trace]
	offsets atomic.Bool
}

func newParticipant(name, transactionalID string, conf Cluster) (*participant, error) {
	p := &participant{
		name: name,
		conf: conf,
		id:   transactionalID,
		gate: &gate{transactionalID: transactionalID},
	}
	p.stale.Store(true)
	return p, p.renew()
}

// metadataPause is the least time between two looks at a cluster's metadata,
// which kgo takes before it repeats a refused batch. A broker that still writes
// the markers of the transaction before refuses the first batch of the next one
// (CONCURRENT_TRANSACTIONS, transaction.version 2), and kgo's default of 5 s was
// then the length of a transaction on a busy machine (measured). It is what
// Kafka's own producer waits (retry.backoff.ms).
const metadataPause = 100 * time.Millisecond

// renew makes a new kgo client in place of the old one.
func (p *participant) renew() error {
	cl, err := kgo.NewClient(with(with([]kgo.Opt{kgo.MetadataMinAge(metadataPause)}, p.conf.ClientOpts...),
		kgo.TransactionalID(p.id),
		kgo.TransactionTimeout(noTransactionTimeout),
		kgo.Dialer(p.gate.dialer(p.dial())),
		kgo.WithHooks(shared(p.conf.Hooks)...),
	)...)
	if err != nil {
		return &ParticipantError{Cluster: p.name, Err: err}
	}
	if p.kgo != nil {
		p.kgo.Close()
	}
	p.kgo, p.loaded, p.used = cl, false, false
	p.begun.Store(false)
	return nil
}

// dial opens the plain connections.
func (p *participant) dial() dialFunc {
	if p.conf.Dialer != nil {
		return p.conf.Dialer
	}
	return (&net.Dialer{}).DialContext
}

func (p *participant) close() {
	for _, cl := range []*kgo.Client{p.kgo, p.raw} {
		if cl != nil {
			cl.Close()
		}
	}
}

// identify learns the cluster's id from the cluster itself.
func (p *participant) identify(ctx context.Context) error {
	id, err := clusterIDOf(ctx, p.kgo)
	if err != nil {
		return &ParticipantError{Cluster: p.name, Err: err}
	}
	if p.conf.ID != "" && p.conf.ID != id {
		return &ClusterIDMismatchError{Cluster: p.name, Want: p.conf.ID, Got: id}
	}
	p.clusterID = id
	return nil
}

// permission is the coordinator's to initialise producers: its answer to
// InitGlobalTxn. It ages, because another client may take the id over.
type permission interface {
	renew(context.Context) error   // asks for it again
	confirm(context.Context) error // asks for it again when it is old
}

// initialise gets a producer id and epoch, and ends what is open on the cluster
// under the id. The caller has asked InitGlobalTxn first (R3), so nothing that
// is open has been, or can still be, decided. Where the cluster keeps prepared
// transactions a request that comes late does no harm either (KIP-939);
// elsewhere InitProducerId itself aborts.
func (p *participant) initialise(ctx context.Context, by permission) error {
	err := p.openRaw(ctx)
	if err == nil {
		if err = p.initialiseKeeping(ctx, by); errors.Is(err, errNotKept) {
			err = p.initialiseAborting(ctx, by)
		}
	}
	if _, fenced := errors.AsType[*FencedError](err); fenced {
		return err
	}
	switch {
	case err == nil:
		p.stale.Store(false)
		p.asked.Store(false)
		p.unsure.Store(false)
		return nil
	case errors.Is(err, kerr.InvalidTransactionTimeout):
		return &NotEnabledError{Cluster: p.name, Setting: settingEither, Err: err}
	case p.conf.TwoPhaseCommit == TwoPhaseCommitOn && (errors.Is(err, kerr.UnsupportedVersion) ||
		errors.Is(err, kerr.TransactionalIDAuthorizationFailed)):
		return &NotEnabledError{Cluster: p.name, Setting: setting2PC + ", and allow TWO_PHASE_COMMIT on the transactional id,", Err: err}
	}
	return &ParticipantError{Cluster: p.name, Err: fmt.Errorf("initialise the producer: %w", err)}
}

// initialiseAborting lets kgo send InitProducerId, which aborts what is open.
func (p *participant) initialiseAborting(ctx context.Context, by permission) error {
	p.gate.setUpgrade(p.conf.TwoPhaseCommit != TwoPhaseCommitOff, p.conf.TwoPhaseCommit == TwoPhaseCommitOn)
	err := p.initialiseOnce(ctx, by)
	if p.conf.TwoPhaseCommit == TwoPhaseCommitAuto && p.gate.wasUpgraded() &&
		errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		// Kafka's answer to Enable2Pc both without the setting and without
		// the operation TWO_PHASE_COMMIT. The other way needs neither.
		p.gate.setUpgrade(false, false)
		err = p.initialiseOnce(ctx, by)
	}
	return err
}

func (p *participant) initialiseOnce(ctx context.Context, by permission) error {
	if p.used {
		if err := p.renew(); err != nil {
			return err
		}
	}
	p.used = true
	p.gate.letInit(func() error { return by.confirm(ctx) })
	var err error
	p.producerID, p.producerEpoch, err = p.kgo.ProducerID(ctx)
	if denied := p.gate.endInit(); denied != nil {
		return denied
	}
	p.loaded = err == nil
	return err
}

// begin starts a transaction on a producer that is ready. The cluster hears of
// it with the first record or offset. The gate is shut: kgo may want to
// initialise its producer id once more, but since InitGlobalTxn another client
// may have got the id (R3). It is then initialised when it is used.
func (p *participant) begin(ctx context.Context) {
	p.trace.Store(nil)
	p.offsets.Store(false)
	p.begun.Store(false)
	if !p.loaded || p.stale.Load() {
		return
	}
	if err := p.beginKgo(ctx); err != nil {
		p.stale.Store(true)
	}
}

func (p *participant) beginKgo(ctx context.Context) error {
	id, epoch, err := p.kgo.ProducerID(ctx)
	if err == nil && (id != p.producerID || epoch != p.producerEpoch) {
		err = fmt.Errorf("kgo has producer id %d epoch %d and not %d epoch %d", id, epoch, p.producerID, p.producerEpoch)
	}
	if err == nil {
		err = p.kgo.BeginTransaction()
	}
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	p.begun.Store(true)
	return nil
}

// join takes kgo into the transaction, with the first record that comes when it
// was not loaded, or was not ready, at Begin.
func (p *participant) join(ctx context.Context) error {
	if p.begun.Load() {
		return nil
	}
	if !p.loaded {
		p.gate.lend(p.producerID, p.producerEpoch)
		defer p.gate.setPhase(phaseShut)
	}
	if err := p.beginKgo(ctx); err != nil {
		p.unsure.Store(true) // kgo may take the id after all, and keep it
		return err
	}
	p.loaded = true
	return nil
}

// verify reports whether the producer is still the one that the transaction
// began with. kgo can replace it behind our back, and then the cluster has
// aborted what was written; to the coordinator that looks like a participant
// that wrote nothing.
func (p *participant) verify(ctx context.Context) error {
	if !p.begun.Load() {
		return nil // offsets alone, which name the producer id themselves
	}
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
// for commit, and never will. It names the producer id and epoch (R2): if
// another client has got the id meanwhile, it is refused, where an
// InitProducerId would abort what that one has open, decided or not.
func (p *participant) abort(ctx context.Context) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID = p.id
	req.ProducerID, req.ProducerEpoch = p.producerID, p.producerEpoch
	for {
		before := p.writes.ends.Load()
		resp, err := req.RequestWith(ctx, p.raw)
		if err == nil {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		if p.writes.ends.Load() > before+1 {
			p.stale.Store(true) // a copy without an answer may end the next one
		}
		switch {
		case err == nil:
			nextID, nextEpoch := p.producerID, p.producerEpoch
			if resp.ProducerID >= 0 {
				nextID, nextEpoch = resp.ProducerID, resp.ProducerEpoch
			}
			p.adopt(ctx, false, nextID, nextEpoch)
			return nil
		case errors.Is(err, kerr.ConcurrentTransactions):
		case refusedAbort(err):
			p.stale.Store(true)
			return p.endedBefore(ctx, err)
		default:
			p.stale.Store(true)
			return err
		}
		if err := pause(ctx, shortestBackoff); err != nil {
			p.stale.Store(true)
			return err
		}
	}
}

// adopt goes on from the end of the transaction, the coordinator's or this
// client's own.
func (p *participant) adopt(ctx context.Context, commit bool, nextID int64, nextEpoch int16) {
	if p.stale.Load() || nextID < 0 || p.unsure.Load() {
		p.stale.Store(true)
		return
	}
	moved := nextID != p.producerID || nextEpoch != p.producerEpoch
	switch {
	case !p.begun.Load():
	case p.follow(ctx, adoption{
		commit: commit,
		id:     p.producerID, epoch: p.producerEpoch,
		nextID: nextID, nextEpoch: nextEpoch,
	}):
	case moved:
		// kgo wrote nothing, or has lost its producer id. A new one in its
		// place counts its batches from 0, which is right under a new epoch.
		if err := p.renew(); err != nil {
			p.stale.Store(true)
		}
	default:
		p.stale.Store(true)
	}
	p.endedID, p.endedEpoch = p.producerID, p.producerEpoch
	p.producerID, p.producerEpoch = nextID, nextEpoch
}

// follow takes kgo to the state after the end, and reports whether it is there.
func (p *participant) follow(ctx context.Context, a adoption) bool {
	p.gate.adopt(a)
	err := p.kgo.EndTransaction(ctx, kgo.TransactionEndTry(a.commit))
	p.begun.Store(false)
	if p.gate.adopted() && err == nil {
		return true
	}
	if err != nil || a.nextID != a.id || a.nextEpoch != a.epoch {
		return false
	}
	// It had nothing to end, and nothing has moved.
	id, epoch, err := p.kgo.ProducerID(ctx)
	return err == nil && id == a.id && epoch == a.epoch
}

// leave ends kgo's view of a transaction that wrote nothing to this cluster.
func (p *participant) leave(ctx context.Context) {
	if !p.begun.Load() || p.stale.Load() {
		return
	}
	p.begun.Store(false)
	if err := p.kgo.EndTransaction(ctx, kgo.TryAbort); err != nil {
		p.stale.Store(true)
	}
}
