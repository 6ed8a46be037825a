package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/wire"
)

// answerGrace is how long the answer may take after the time that the
// coordinator may hold it.
const answerGrace = 5 * time.Second

// errUndecided: the coordinator has not decided within the time it was given.
var errUndecided = errors.New("not decided yet")

// errOmitted: an answer about a transaction leaves a participant out, which
// proves nothing about it.
var errOmitted = errors.New("the coordinator's answer does not name it")

// errNoRole: a node does not serve global transactions.
var errNoRole = errors.New("the node does not serve global transactions")

// coordinatorError is an error code in an answer of the coordinator.
type coordinatorError struct {
	code    error // of package wire or kerr
	message string
}

func (e *coordinatorError) Error() string {
	if e.message == "" {
		return "coordinator: " + e.code.Error()
	}
	return fmt.Sprintf("coordinator: %s (%s)", e.message, e.code)
}

func (e *coordinatorError) Unwrap() error { return e.code }

// answerError is nil for code 0.
func answerError(code int16, message *string) error {
	err := wire.ErrorForCode(code)
	if err == nil {
		return nil
	}
	e := &coordinatorError{code: err}
	if message != nil {
		e.message = *message
	}
	return e
}

// coordinator finds the node that coordinates one global transactional id and
// sends it requests. It is safe for concurrent use.
type coordinator struct {
	id         string
	addresses  []string
	opts       []kgo.Opt
	hooks      []kgo.Hook
	askTimeout time.Duration
	backoffMin time.Duration
	backoffMax time.Duration
	bootstrap  *kgo.Client

	mu     sync.Mutex
	node   *kgo.Client // of the coordinating node; nil when it has to be found
	closed bool
}

func newCoordinator(o Options, id string) (*coordinator, error) {
	c := &coordinator{
		id:         id,
		addresses:  o.Coordinator,
		opts:       o.CoordinatorOpts,
		hooks:      o.CoordinatorHooks,
		askTimeout: o.AskTimeout,
		backoffMin: o.BackoffMin,
		backoffMax: o.BackoffMax,
	}
	var err error
	if c.bootstrap, err = c.dial(o.Coordinator...); err != nil {
		return nil, fmt.Errorf("client: Coordinator: %w", err)
	}
	return c, nil
}

func (c *coordinator) dial(addresses ...string) (*kgo.Client, error) {
	return kgo.NewClient(with(c.opts, kgo.SeedBrokers(addresses...), kgo.MaxVersions(wire.Versions()), kgo.WithHooks(shared(c.hooks)...))...)
}

func (c *coordinator) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.bootstrap.Close()
	if c.node != nil {
		c.node.Close()
		c.node = nil
	}
}

// ask calls attempt with the coordinating node until it succeeds, fails for
// good, or ctx ends. A request whose fate is unknown is sent again as it was,
// which the protocol makes harmless, to the node that coordinates by then.
func (c *coordinator) ask(ctx context.Context, attempt func(context.Context, kmsg.Requestor) error) error {
	return c.retry(ctx, func(ctx context.Context) error {
		node, err := c.locate(ctx)
		if err != nil {
			return err
		}
		if err = attempt(ctx, node.SeedBrokers()[0]); err != nil && moved(err) {
			c.forget(node)
		}
		return err
	})
}

// retry calls attempt until it succeeds, fails for good, or ctx ends.
func (c *coordinator) retry(ctx context.Context, attempt func(context.Context) error) error {
	backoff := c.backoffMin
	var last error // that tells more than that the time is over
	for {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if !again(err) && !c.replaced(err) {
			return err
		}
		if errors.Is(err, errUndecided) {
			backoff = c.backoffMin // the coordinator has held the answer already
		}
		if ctxErr := pause(ctx, backoff); ctxErr != nil {
			return fmt.Errorf("%w (before that: %w)", ctxErr, last)
		}
		backoff = min(2*backoff, c.backoffMax)
	}
}

// replaced reports that somebody else who asks has found the coordinator moved
// and closed the connection under this request.
func (c *coordinator) replaced(err error) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return isClosed(err) && !c.closed
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

// again reports whether the same request may succeed later. What is no error
// code of anybody is the network's: a connection refused, broken or too slow.
func again(err error) bool {
	if errors.Is(err, errUndecided) || errors.Is(err, kerr.ConcurrentTransactions) {
		return true
	}
	if coded(err) {
		return wire.IsRetriable(err)
	}
	return !isClosed(err) && !errors.Is(err, ErrClosed)
}

// coded reports whether err says something definite: an error code, an answer
// that cannot be read, or a node that serves no global transactions.
func coded(err error) bool {
	if _, ok := errors.AsType[*wire.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*kerr.Error](err); ok {
		return true
	}
	if _, ok := errors.AsType[*wire.UnknownErrorCodeError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*wire.DecodeError](err); ok {
		return true
	}
	_, ok := errors.AsType[*NoCoordinatorError](err)
	return ok || errors.Is(err, errNoRole) || errors.Is(err, errOmitted)
}

// moved reports whether the coordinator should be looked for again.
func moved(err error) bool {
	if errors.Is(err, errUndecided) {
		return false
	}
	return !coded(err) || errors.Is(err, kerr.NotCoordinator) || errors.Is(err, kerr.CoordinatorNotAvailable)
}

// locate returns a client of the coordinating node.
func (c *coordinator) locate(ctx context.Context) (*kgo.Client, error) {
	c.mu.Lock()
	node := c.node
	c.mu.Unlock()
	if node != nil {
		return node, nil
	}
	nodes, err := c.find(ctx, c.id)
	if err != nil {
		return nil, err
	}
	found, err := c.dial(nodes[c.id])
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.node != nil {
		found.Close()
	}
	switch {
	case c.closed:
		return nil, ErrClosed
	case c.node == nil:
		c.node = found
	}
	return c.node, nil
}

func (c *coordinator) forget(node *kgo.Client) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.node == node {
		c.node.Close()
		c.node = nil
	}
}
