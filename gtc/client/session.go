package client

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// session is the use of one global transactional id: its coordinator, its epoch
// and sequence there, and the producers under the same id on every cluster.
type session struct {
	id            string
	timeoutMillis int32
	verifyCommits bool
	coord         *coordinator
	participants  []*participant // by name
	instance      [16]byte
	epoch         int32
	sequence      int64 // of the next transaction that the coordinator is asked to end
	// fenced: the coordinator has refused this instance.
	fenced error
	// lost: of a transaction of this session nobody will tell the outcome, so the
	// next one needs a new session (refresh).
	lost bool
	// granted is when InitGlobalTxn last succeeded; began is when Begin was
	// last called.
	granted moment
	began   time.Time

	renewing  lock // of InitGlobalTxn
	preparing lock // of a producer's becoming ready in the midst of a transaction
}

const (
	// grantedFor is how long InitGlobalTxn is taken for granted: the first
	// record or offset of a transaction comes within it (C-EXP-2). The
	// coordinator forgets an id that is not heard of (after seven days by
	// default), and then nobody would abort what a client that dies has left
	// open.
	grantedFor = time.Hour
	// renewAfter is when Begin asks again, so that half an hour is left for
	// the first record.
	renewAfter = grantedFor / 2
	// sharedFor is how long one InitGlobalTxn of a transaction does for several
	// producers that are initialised again in it.
	sharedFor = time.Second
	// initWithin is how long after InitGlobalTxn an InitProducerId may leave, that
	// of kgo's which is repeated, or waits for a connection, too.
	initWithin = 10 * time.Second
)

// moment is a time by both clocks of the machine: the monotonic one stands still
// while a Linux machine is suspended, the wall clock can be set back.
type moment struct{ mono, wall time.Time }

func momentOf(now time.Time) moment { return moment{mono: now, wall: now.Round(0)} }

// age is by the clock that shows more.
func (m moment) age() time.Duration {
	now := time.Now()
	return max(now.Sub(m.mono), now.Round(0).Sub(m.wall))
}

func newSession(o Options, id string) (*session, error) {
	s := &session{
		id:            id,
		timeoutMillis: int32(o.TransactionTimeout.Milliseconds()),
		verifyCommits: o.VerifyCommits,
		renewing:      newLock(),
		preparing:     newLock(),
	}
	s.instance = newInstance()
	var err error
	if s.coord, err = newCoordinator(o, id); err != nil {
		return nil, err
	}
	for name, conf := range o.Clusters {
		p, err := newParticipant(name, s.id, conf)
		if err != nil {
			s.close()
			return nil, err
		}
		s.participants = append(s.participants, p)
	}
	slices.SortFunc(s.participants, func(a, b *participant) int { return strings.Compare(a.name, b.name) })
	return s, nil
}

// newInstance is a random uuid for a client instance.
func newInstance() [16]byte {
	var id [16]byte
	_, _ = rand.Read(id[:]) // never fails, says package rand
	return id
}

func (s *session) close() {
	s.coord.close()
	for _, p := range s.participants {
		p.close()
	}
}

// open takes the id over and makes the producers ready. It asks InitGlobalTxn
// and only then initialises the producers (R3). In the other order a client
// could, at the vote of its successor, abort what the successor wrote.
func (s *session) open(ctx context.Context) error {
	if err := s.identify(ctx); err != nil {
		return err
	}
	if err := s.initGlobalTxn(ctx); err != nil {
		return err
	}
	return inParallel(s.participants, func(p *participant) error { return p.initialise(ctx, s) })
}

// identify learns the ids of the clusters.
func (s *session) identify(ctx context.Context) error {
	err := inParallel(s.participants, func(p *participant) error { return p.identify(ctx) })
	if err != nil {
		return err
	}
	for i, p := range s.participants {
		for _, q := range s.participants[:i] {
			if p.clusterID == q.clusterID {
				// One producer would fence the other.
				return &ParticipantError{Cluster: p.name, Err: errors.New("it is the same cluster as " + q.name)}
			}
		}
	}
	return nil
}

// start begins a transaction. Nobody is waited for but the coordinator, and it
// only when the session has to be renewed: a producer that has to be initialised
// again is when it is used next (ready), so that a cluster that is away holds up
// the transactions that write to it and no others.
func (s *session) start(ctx context.Context) error {
	if err := s.preparing.acquire(ctx); err != nil {
		return err
	}
	defer s.preparing.release()
	s.began = time.Now()
	if err := s.refresh(ctx); err != nil {
		return err
	}
	for _, p := range s.participants {
		p.begin(ctx)
	}
	return nil
}

// refresh makes the session fit for another transaction. A producer that cannot
// go on may be the sign of a session that has ended, so the coordinator is asked,
// once for each.
//
// Where the outcome of a transaction is lost, a new session begins (C-CLI-3).
// Producers are initialised again within a session only while no copy of an
// EndGlobalTxn of it can still be carried out: nothing was asked, or the outcome
// was told, and with it the number is used up. An outcome that is lost uses up
// nothing. Counter-example: a coordinator that has lost the partition, and does
// not know, answers TRANSACTIONAL_ID_NOT_FOUND from memory, while another copy is
// on its way to the owner; the owner takes it for the session's next, finds all
// participants prepared and decides to commit, and one of them is initialised, and
// so aborted, before it is told. The epoch of a new session fences the copy, and a
// decision that it has brought about is waited for.
//
// The present instance asks first: if another client has taken the id over, a new
// one would take it back.
func (s *session) refresh(ctx context.Context) error {
	if s.fenced == nil {
		if !s.lost && !s.inDoubt() {
			return nil
		}
		if err := s.renew(ctx); err != nil && s.fenced == nil {
			return err
		}
	}
	switch {
	case s.fenced != nil:
		if err := s.endedByTimeout(ctx); err != nil {
			return err
		}
	case !s.lost:
		return nil
	}
	s.beginAnew()
	return s.initGlobalTxn(ctx)
}

// inDoubt reports that the coordinator has to be asked whether the id is still
// this client's.
func (s *session) inDoubt() bool {
	return s.granted.age() > renewAfter ||
		slices.ContainsFunc(s.participants, func(p *participant) bool { return p.stale.Load() && !p.asked.Load() })
}

// beginAnew lets the next InitGlobalTxn open a new session, after which every
// producer is initialised again.
func (s *session) beginAnew() {
	s.instance, s.fenced, s.lost = newInstance(), nil, false
	for _, p := range s.participants {
		p.stale.Store(true)
		p.asked.Store(false)
	}
}

// renew asks InitGlobalTxn again and remembers a refusal. Open initialises
// producers in parallel, which may all need it.
func (s *session) renew(ctx context.Context) error {
	if err := s.renewing.acquire(ctx); err != nil {
		return err
	}
	defer s.renewing.release()
	return s.renewHeld(ctx)
}

// confirm renews what was granted long ago.
func (s *session) confirm(ctx context.Context) error {
	if err := s.renewing.acquire(ctx); err != nil {
		return err
	}
	defer s.renewing.release()
	if s.granted.age() <= initWithin {
		return nil
	}
	return s.renewHeld(ctx)
}

// renewHeld is renew for a caller that holds s.renewing.
func (s *session) renewHeld(ctx context.Context) error {
	err := s.initGlobalTxn(ctx)
	if _, fenced := errors.AsType[*FencedError](err); fenced {
		s.fenced = err
	}
	return err
}

// ready makes a producer ready for its first use in a transaction: initialised,
// if it was not, after a repeat of InitGlobalTxn (R3), for the id may be another
// client's by then. The caller holds s.preparing.
func (s *session) ready(ctx context.Context, p *participant) error {
	if !p.stale.Load() {
		return nil
	}
	if s.granted.mono.Before(s.began) || s.granted.age() > sharedFor {
		if err := s.renew(ctx); err != nil {
			return err
		}
	}
	return p.initialise(ctx, s)
}

// endedByTimeout is nil if it was only the timeout, or an operator, that ended the
// session which was refused. If another client has taken the id over, InitGlobalTxn
// under a new uuid would take it back from that one, which is not ours to decide.
func (s *session) endedByTimeout(ctx context.Context) error {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{s.id}
	ours := false
	err := s.coord.ask(ctx, func(ctx context.Context, node kmsg.Requestor) error {
		ctx, cancel := context.WithTimeout(ctx, s.coord.askTimeout+answerGrace)
		defer cancel()
		resp, err := req.RequestWith(ctx, node)
		if err != nil {
			return err
		}
		for _, g := range resp.GlobalTransactions {
			if err := answerError(g.ErrorCode, g.ErrorMessage); err != nil {
				return err
			}
			ours = g.GlobalTransactionalID == s.id && g.GlobalEpoch == s.epoch && g.SessionEnded
		}
		return nil
	})
	if err == nil && !ours {
		return s.fenced
	}
	return err
}

// inParallel calls f for all and returns the first error by their order.
func inParallel[T any](all []T, f func(T) error) error {
	for _, err := range allErrors(all, f) {
		if err != nil {
			return err
		}
	}
	return nil
}

func allErrors[T any](all []T, f func(T) error) []error {
	errs := make([]error, len(all))
	var wg sync.WaitGroup
	for i, v := range all {
		wg.Go(func() { errs[i] = f(v) })
	}
	wg.Wait()
	return errs
}

// initGlobalTxn takes the id over, or makes sure of it when this instance has
// it already: the instance's uuid tells the two apart.
func (s *session) initGlobalTxn(ctx context.Context) error {
	req := wire.NewPtrInitGlobalTxnRequest()
	req.GlobalTransactionalID = s.id
	req.TimeoutMillis = s.timeoutMillis
	req.InstanceID = s.instance
	for _, p := range s.participants {
		req.ClusterIDs = append(req.ClusterIDs, p.clusterID)
	}
	return s.coord.ask(ctx, func(ctx context.Context, node kmsg.Requestor) error {
		ctx, cancel := context.WithTimeout(ctx, s.coord.askTimeout+answerGrace)
		defer cancel()
		resp, err := req.RequestWith(ctx, node)
		if err != nil {
			return err
		}
		if err := s.refusal(resp); err != nil {
			return err
		}
		// The coordinator may have lost the lazy record of the last one.
		s.epoch, s.sequence = resp.GlobalEpoch, max(s.sequence, resp.Sequence)
		s.granted = momentOf(time.Now())
		for _, p := range s.participants {
			p.asked.Store(p.stale.Load())
		}
		return nil
	})
}

// refusal turns an answer that is no success into the error for it. A cluster
// that needs somebody's hand is named before one that may be back soon.
func (s *session) refusal(resp *wire.InitGlobalTxnResponse) error {
	var first error
	for _, c := range resp.ClusterErrors {
		err := answerError(c.ErrorCode, c.ErrorMessage)
		if err == nil {
			continue
		}
		err = s.clusterError(c.ClusterID, err)
		if !again(err) {
			return err
		}
		if first == nil {
			first = err
		}
	}
	err := answerError(resp.ErrorCode, resp.ErrorMessage)
	switch {
	case errors.Is(err, kerr.ProducerFenced):
		return &FencedError{Err: err}
	case errors.Is(err, wire.HeuristicOutcome):
		return &HeuristicError{Err: err}
	}
	if first != nil {
		return first
	}
	return err
}

func (s *session) clusterError(clusterID string, err error) error {
	name := s.name(clusterID)
	switch {
	case errors.Is(err, wire.ParticipantNotEnabled):
		return &NotEnabledError{Cluster: name, Setting: settingEither, Err: err}
	case errors.Is(err, wire.ParticipantClusterIDMismatch):
		return &ClusterIDMismatchError{Cluster: name, Want: clusterID, Err: err}
	}
	return &ParticipantError{Cluster: name, Err: err}
}

// name is the application's name of a cluster.
func (s *session) name(clusterID string) string {
	for _, p := range s.participants {
		if p.clusterID == clusterID {
			return p.name
		}
	}
	return clusterID
}

func (s *session) participant(name string) *participant {
	i, ok := slices.BinarySearchFunc(s.participants, name, func(p *participant, name string) int {
		return strings.Compare(p.name, name)
	})
	if !ok {
		return nil
	}
	return s.participants[i]
}
