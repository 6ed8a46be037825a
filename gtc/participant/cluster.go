package participant

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// cluster is one configured cluster: its id once learned, its session once
// connected, and the ends under way.
type cluster struct {
	cfg   Config
	clock func() gtc.Time
	log   zerolog.Logger
	// connecting shares one attempt to connect among all who need it.
	connecting *gatherer[struct{}, connected]
	attempts   attempts

	mu      sync.Mutex
	id      string // learned, or expected
	current *session
	lastErr error
	reached bool
	closed  bool
}

type connected struct {
	s   *session
	err error
}

func newCluster(cfg Config, clock func() gtc.Time, log zerolog.Logger) *cluster {
	c := &cluster{cfg: cfg, clock: clock, log: log, id: cfg.ExpectedClusterID}
	c.connecting = &gatherer[struct{}, connected]{run: c.connect, timeout: cfg.RequestTimeout, limit: 1}
	return c
}

func (c *cluster) clusterID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.id
}

func (c *cluster) status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	st := Status{Alias: c.cfg.Alias, ClusterID: c.id, Reachable: c.reached}
	if c.lastErr != nil {
		st.LastError = c.lastErr.Error()
	}
	return st
}

// note remembers how the last contact went.
func (c *cluster) note(err error) {
	if errors.Is(err, context.Canceled) {
		return // the caller gave up; that says nothing about the cluster
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reached, c.lastErr = err == nil, err
}

var errClosed = errors.New("the driver is closed")

// session returns the shared session, connecting when there is none.
func (c *cluster) session(ctx context.Context) (*session, error) {
	c.mu.Lock()
	s := c.current
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	bounded, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	got, err := c.connecting.do(bounded, struct{}{})
	if err != nil {
		err = fmt.Errorf("connecting: %w", err)
		if ctx.Err() == nil { // the cluster's time was up, not the caller's
			c.note(err)
		}
		return nil, err
	}
	return got.s, got.err
}

// connect is connecting's run: it makes the shared session.
func (c *cluster) connect(ctx context.Context, _ []struct{}) map[struct{}]connected {
	answer := func(s *session, err error) map[struct{}]connected {
		return map[struct{}]connected{{}: {s, err}}
	}
	c.mu.Lock()
	s := c.current
	c.mu.Unlock()
	if s != nil { // made while this batch was waiting
		return answer(s, nil)
	}
	s, err := c.dial(ctx)
	c.note(err)
	if err != nil {
		c.log.Warn().Err(err).Msg("participant cluster cannot be reached")
		return answer(nil, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.close()
		return answer(nil, errClosed)
	}
	c.current, c.id = s, s.clusterID
	c.log.Info().Str("cluster.id", s.clusterID).Msg("participant cluster connected")
	return answer(s, nil)
}

// dial makes a session of its own, with fresh connections, and makes sure that
// it leads to the cluster expected.
func (c *cluster) dial(ctx context.Context) (*session, error) {
	s, err := newSession(c)
	if err != nil {
		return nil, err
	}
	id, err := s.refresh(ctx)
	if err == nil {
		if want := c.clusterID(); want != "" && id != want {
			err = &errOtherCluster{c.cfg.Alias, want, id}
			c.forget(nil)
		}
	}
	if err != nil {
		s.close()
		return nil, err
	}
	s.clusterID = id
	return s, nil
}

// errOtherCluster: the configured address leads to another cluster.
type errOtherCluster struct{ alias, want, got string }

func (e *errOtherCluster) Error() string {
	return fmt.Sprintf("the address of cluster %q answers as cluster id %q, not %q; correct its bootstrap.servers", e.alias, e.got, e.want)
}

// forget drops the session (any, when s is nil) of an address that turned out
// to lead elsewhere. A learned id is forgotten with it: the cluster behind an
// alias may have been replaced, and then transactions of the old one must be
// told "no such cluster" instead of "wrong address".
func (c *cluster) forget(s *session) {
	c.mu.Lock()
	old := c.current
	if s != nil && old != s {
		c.mu.Unlock()
		return
	}
	c.current, c.id = nil, c.cfg.ExpectedClusterID
	c.mu.Unlock()
	if old != nil {
		old.close()
	}
}

func (c *cluster) close() {
	c.mu.Lock()
	s := c.current
	c.current, c.closed = nil, true
	c.mu.Unlock()
	if s != nil {
		s.close()
	}
}
