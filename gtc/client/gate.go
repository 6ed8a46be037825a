package client

import (
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// phase says which of kgo's own transaction requests a participant's
// connections let through. kgo sends them when it sees fit (it initialises on
// the first record, and again in the middle of a transaction after some errors
// of produce); the protocol cannot leave that to it.
type phase int8

const (
	// phaseShut: neither InitProducerId nor EndTxn leaves. A second
	// InitProducerId in an open transaction aborts what was written, kgo
	// retries the last batch under the new epoch, and a commit would then
	// keep a part of the transaction.
	phaseShut phase = iota
	// phaseInit: InitGlobalTxn has answered and no transaction is open (R3). Each
	// InitProducerId, kgo's repeats too, leaves by permit alone.
	phaseInit
	// phaseLend: kgo asks for a producer id, and is given the participant's
	// own, which the cluster has not to be asked for.
	phaseLend
	// phaseAdopt: the coordinator has ended the transaction; kgo's EndTxn is
	// answered here and never leaves.
	phaseAdopt
)

// adoption is the end of a participant's transaction as the coordinator's
// answer gave it, for kgo to go on from.
type adoption struct {
	commit     bool
	id         int64 // that the transaction ran under
	epoch      int16
	nextID     int64
	nextEpoch  int16
	endTxnUsed bool // kgo has taken the answer
}

// gate holds what all connections of one participant's producer obey. It is
// safe for concurrent use.
type gate struct {
	transactionalID string

	mu        sync.Mutex
	phase     phase
	adoption  adoption
	lentID    int64 // for phaseLend
	lentEpoch int16
	// upgrade: InitProducerId leaves as v6 with Enable2Pc where the broker
	// offers it; require: and is refused where it does not.
	upgrade, require bool
	upgraded         bool // an InitProducerId left as v6

	permitting sync.Mutex   // held while permit is called
	permit     func() error // nil: each is permitted
	denied     error        // by permit
}

// letInit opens phaseInit. kgo repeats InitProducerId by itself for as long as the
// cluster answers CONCURRENT_TRANSACTIONS, and meanwhile the id may become another
// client's, so permit is asked before each.
func (g *gate) letInit(permit func() error) {
	g.permitting.Lock()
	defer g.permitting.Unlock()
	g.permit, g.denied = permit, nil
	g.setPhase(phaseInit)
}

// endInit shuts the gate, when permit is called no more, and tells its refusal.
func (g *gate) endInit() error {
	g.permitting.Lock()
	defer g.permitting.Unlock()
	g.setPhase(phaseShut)
	g.permit = nil
	return g.denied
}

func (g *gate) permitted() bool {
	g.permitting.Lock()
	defer g.permitting.Unlock()
	if g.permit != nil && g.denied == nil {
		g.denied = g.permit()
	}
	return g.denied == nil
}

func (g *gate) setPhase(p phase) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase = p
}

func (g *gate) setUpgrade(upgrade, require bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.upgrade, g.require, g.upgraded = upgrade, require, false
}

func (g *gate) wasUpgraded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.upgraded
}

// lend lets kgo's next InitProducerId be answered with id and epoch.
func (g *gate) lend(id int64, epoch int16) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase, g.lentID, g.lentEpoch = phaseLend, id, epoch
}

// adopt lets kgo's next EndTxn be answered with a. It stays so until shut,
// because kgo repeats a request whose connection broke before the answer.
func (g *gate) adopt(a adoption) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase, g.adoption = phaseAdopt, a
}

// adopted reports whether kgo took the answer, and shuts the gate.
func (g *gate) adopted() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase = phaseShut
	return g.adoption.endTxnUsed
}

// verdict is what becomes of one request: answered here when answer is set,
// else sent, as v6 when upgrade is set.
type verdict struct {
	answer  kmsg.Response
	upgrade bool
}

// initProducerID judges an InitProducerId on a connection whose broker offers
// versions up to brokerMax.
func (g *gate) initProducerID(r *kmsg.InitProducerIDRequest, brokerMax int16) verdict {
	if r.TransactionalID == nil || *r.TransactionalID != g.transactionalID {
		return verdict{}
	}
	permitted := g.permitted()
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase == phaseLend {
		answer := r.ResponseKind().(*kmsg.InitProducerIDResponse)
		answer.ProducerID, answer.ProducerEpoch = g.lentID, g.lentEpoch
		return verdict{answer: answer}
	}
	if g.phase != phaseInit || !permitted {
		// kgo takes INVALID_PRODUCER_EPOCH as the end of this producer id and
		// fails the records.
		return verdict{answer: refuseInit(r, kerr.InvalidProducerEpoch)}
	}
	offered := r.Version == initProducerIDStable && brokerMax >= initProducerID2PC
	if g.require && !offered {
		return verdict{answer: refuseInit(r, kerr.UnsupportedVersion)}
	}
	upgrade := g.upgrade && offered
	g.upgraded = g.upgraded || upgrade
	return verdict{upgrade: upgrade}
}

func refuseInit(r *kmsg.InitProducerIDRequest, why *kerr.Error) kmsg.Response {
	answer := r.ResponseKind().(*kmsg.InitProducerIDResponse)
	answer.ErrorCode = why.Code
	return answer
}

// endTxn judges an EndTxn of kgo's, none of which leaves: only the coordinator
// commits, and an abort of this client's own names what it is about (R2) and
// goes over another connection.
func (g *gate) endTxn(r *kmsg.EndTxnRequest) verdict {
	if r.TransactionalID != g.transactionalID {
		return verdict{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	answer := r.ResponseKind().(*kmsg.EndTxnResponse)
	a := &g.adoption
	// Below v5 kgo keeps its producer id and epoch whatever the answer says;
	// when the coordinator's end moved them, kgo cannot follow.
	follows := r.Version >= 5 || a.nextID == a.id && a.nextEpoch == a.epoch
	if g.phase != phaseAdopt || r.Commit != a.commit ||
		r.ProducerID != a.id || r.ProducerEpoch != a.epoch || !follows {
		answer.ErrorCode = kerr.InvalidTxnState.Code
		return verdict{answer: answer}
	}
	a.endTxnUsed = true
	answer.ProducerID, answer.ProducerEpoch = a.nextID, a.nextEpoch
	return verdict{answer: answer}
}
