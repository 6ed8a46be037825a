package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Client runs global transactions under one global transactional id, one after
// another, or under a ring of ids (Options.Ring), several at a time. It is safe
// for concurrent use.
type Client struct {
	slots  []*slot // the ring
	lock   lock    // of all below, and of every participant between transactions
	turn   int     // whose turn the next transaction is, by index into slots
	newest *Txn    // begun last
	closed bool
}

// slot is one id of the ring.
type slot struct {
	session *session
	last    *Txn
}

// Open takes the global transactional id over: it fences an earlier client of
// the id, waits until what that one had decided is complete, and then
// initialises the producers, which aborts what it had left open. Open asks
// again, until ctx ends, what may pass; it returns
//
//   - *NotEnabledError when a cluster has not opted in,
//   - *ClusterIDMismatchError when an address belongs to another cluster,
//   - *ParticipantError for what else is wrong with one cluster,
//   - *NoCoordinatorError when no address serves global transactions,
//   - *FencedError when a newer client of the id was faster,
//   - *HeuristicError when the id stands still after a heuristic outcome,
//   - and otherwise the coordinator's error code, or ctx's error with the last
//     one before.
//
// Nothing is left open when Open fails.
func Open(ctx context.Context, o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	slots, err := openRing(ctx, o)
	if err != nil {
		return nil, err
	}
	return &Client{slots: slots, lock: newLock()}, nil
}

// Begin starts a transaction. The one before under the same id must have ended:
// Begin returns ErrTxnOpen while its outcome is not known, and waits while a
// cluster still has to commit it (*PendingError when ctx ends before that). An
// abort is not waited for, nor any cluster asked: a producer that has to be
// initialised again is with the first record or offsets for its cluster, so
// that a cluster that is away holds up the transactions that write to it and no
// others. After a heuristic outcome Begin returns the *HeuristicError again
// until an operator has told the coordinator to forget it. *FencedError:
// another client has the id. When Begin fails, whatever the error, no
// transaction was begun, and it may be called again.
//
// With a ring the one before under the same id is Options.Ring transactions
// back, so that many can be open at a time. They commit in the order of their
// Begin: Commit asks the coordinator when the transaction before is known to be
// committed, and aborts (ErrBefore) when that one was not. A transaction that
// shall not depend on the one before is begun after that one's outcome is known.
func (cl *Client) Begin(ctx context.Context) (*Txn, error) {
	if err := cl.acquire(ctx); err != nil {
		return nil, err
	}
	defer cl.lock.release()
	if cl.closed {
		return nil, ErrClosed
	}
	s := cl.slots[cl.turn]
	if err := s.settle(ctx); err != nil {
		return nil, err
	}
	if err := s.session.start(ctx); err != nil {
		return nil, err
	}
	s.last = newTxn(s.session, cl.newest)
	cl.newest = s.last
	cl.turn = (cl.turn + 1) % len(cl.slots)
	return s.last, nil
}

// settle takes every producer past the transaction before.
func (s *slot) settle(ctx context.Context) error {
	t := s.last
	if t == nil {
		return nil
	}
	if err := t.lock.acquire(ctx); err != nil {
		return fmt.Errorf("client: nothing was begun: a call about the transaction before under the same id is under way: %w", err)
	}
	defer t.lock.release()
	if err := t.settle(ctx); err != nil {
		return err
	}
	s.last = nil
	return nil
}

// Close aborts what is open and for which commit was not asked, within ctx, and
// closes all connections. A transaction for which commit was asked goes on
// without this client. The error says that an abort could not be told to a
// cluster; the coordinator will do it after the transaction timeout.
func (cl *Client) Close(ctx context.Context) error {
	if err := cl.acquire(ctx); err != nil {
		return err
	}
	defer cl.lock.release()
	if cl.closed {
		return nil
	}
	cl.closed = true
	var errs []error
	for _, s := range cl.slots {
		if s.last != nil {
			errs = append(errs, s.last.discard(ctx))
		}
	}
	closeAll(cl.slots)
	return errors.Join(errs...)
}

// acquire takes the client's lock for Begin and Close.
func (cl *Client) acquire(ctx context.Context) error {
	if err := cl.lock.acquire(ctx); err != nil {
		return fmt.Errorf("client: nothing was done: another call of Begin or Close is under way: %w", err)
	}
	return nil
}

// lock is a mutex whose waiting ends with a context.
type lock chan struct{}

func newLock() lock { return make(lock, 1) }

func (l lock) acquire(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	default:
	}
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l lock) release() { <-l }

// waitFor waits for wg or the end of ctx.
func waitFor(ctx context.Context, wg *sync.WaitGroup) error {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
