package participant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
)

// lanes is how many sessions of a cluster share the EndTxn. Kafka reads the
// next request of a connection when it has answered the one before, which for
// an EndTxn is when all replicas have it: over one connection the ends of all
// transactions would be told one after another. The looks need one lane only,
// as many ids share a request.
const lanes = 8

// lookLane is the lane of all that is not an EndTxn.
const lookLane = 0

// cluster is one configured cluster: its id once learned, its sessions once
// connected, and the ends under way.
type cluster struct {
	cfg   Config
	clock func() gtc.Time
	log   zerolog.Logger
	// changes logs that the cluster is away, and that it is back. Of several
	// brokers with one away every other request says so.
	changes zerolog.Logger
	// connecting shares one attempt to connect among all who need it.
	connecting [lanes]*gatherer[struct{}, connected]
	attempts   attempts
	retention  retention

	mu      sync.Mutex
	id      string // learned, or expected
	current [lanes]*session
	lastErr error
	reached bool
	asked   bool // by now it has been contacted
	closed  bool
}

type connected struct {
	s   *session
	err error
}

func newCluster(cfg Config, clock func() gtc.Time, log zerolog.Logger) *cluster {
	c := &cluster{cfg: cfg, clock: clock, log: log, id: cfg.ExpectedClusterID}
	c.changes = log.Sample(zerolog.LevelSampler{WarnSampler: onceAMinute(), InfoSampler: onceAMinute()})
	for lane := range c.connecting {
		c.connecting[lane] = &gatherer[struct{}, connected]{
			run: func(ctx context.Context, _ []struct{}) map[struct{}]connected {
				s, err := c.connect(ctx, lane)
				return map[struct{}]connected{{}: {s, err}}
			}, timeout: cfg.RequestTimeout, limit: 1,
		}
	}
	return c
}

func onceAMinute() zerolog.Sampler { return &zerolog.BurstSampler{Burst: 1, Period: time.Minute} }

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
	switch {
	case err != nil && (c.reached || !c.asked):
		c.changes.Warn().Err(err).Msg("participant cluster cannot be reached")
	case err == nil && !c.reached && c.asked:
		c.changes.Info().Msg("participant cluster is reached again")
	}
	c.asked, c.reached, c.lastErr = true, err == nil, err
}

var errClosed = errors.New("the driver is closed")

// session returns the shared session for looks, connecting when there is none.
func (c *cluster) session(ctx context.Context) (*session, error) { return c.lane(ctx, lookLane) }

// endSession returns the shared session for the ends of a transactional id.
func (c *cluster) endSession(ctx context.Context, id string) (*session, error) {
	return c.lane(ctx, int(hashOf(id)%lanes))
}

func (c *cluster) lane(ctx context.Context, lane int) (*session, error) {
	c.mu.Lock()
	s := c.current[lane]
	c.mu.Unlock()
	if s != nil {
		return s, nil
	}
	bounded, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	got, err := c.connecting[lane].do(bounded, struct{}{})
	if err != nil {
		err = fmt.Errorf("connecting: %w", err)
		if ctx.Err() == nil { // the cluster's time was up, not the caller's
			c.note(err)
		}
		return nil, err
	}
	return got.s, got.err
}

// connect makes the shared session of a lane.
func (c *cluster) connect(ctx context.Context, lane int) (*session, error) {
	c.mu.Lock()
	s := c.current[lane]
	c.mu.Unlock()
	if s != nil { // made while this batch was waiting
		return s, nil
	}
	s, err := c.dial(ctx)
	c.note(err)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		s.close()
		return nil, errClosed
	}
	if c.connectedTo() == 0 {
		c.log.Info().Str("cluster.id", s.clusterID).Msg("participant cluster connected")
	}
	c.current[lane], c.id = s, s.clusterID
	return s, nil
}

// connectedTo counts the sessions; c.mu is held.
func (c *cluster) connectedTo() (n int) {
	for _, s := range c.current {
		if s != nil {
			n++
		}
	}
	return n
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
			c.drop(nil)
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
	return fmt.Sprintf("the address of cluster %q answers as cluster id %q, and the cluster was %q before, or is configured so; correct its bootstrap.servers, or start the coordinator again if another cluster has taken its place for good",
		e.alias, e.got, e.want)
}

// drop ends all sessions of an address that turned out to lead elsewhere, if s is
// one of them or nil. The id that was learned stays: the transactions of the cluster
// are remembered by it, and what is open under their names on the one that answers
// now is somebody else's.
func (c *cluster) drop(s *session) {
	c.mu.Lock()
	old := c.current
	if s != nil && !slices.Contains(old[:], s) {
		c.mu.Unlock()
		return
	}
	c.current = [lanes]*session{}
	c.mu.Unlock()
	closeAll(old)
}

func (c *cluster) close() {
	c.mu.Lock()
	old := c.current
	c.current, c.closed = [lanes]*session{}, true
	c.mu.Unlock()
	closeAll(old)
}

func closeAll(sessions [lanes]*session) {
	for _, s := range sessions {
		if s != nil {
			s.close()
		}
	}
}
