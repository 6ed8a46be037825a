// Package service is the IO edge of the coordinator: it claims partitions of
// the log, loads a state machine for each, feeds it events, makes its records
// durable, and only then carries its effects out.
//
//	request ──► shard inbox ──► gtc.Machine.Step ──► changes ──► Apply
//	                 ▲                                  │
//	                 │                                  ├─ forced ──► txnlog ──► durable
//	   answers ──────┘                                  └─ lazy, with the next     │
//	   of participants ◄── effects ◄───────────────────────────────────────────────┘
//
// A shard is loading, active or failed. A failed append proves nothing about
// its records, so there is no retry and no roll-back here: the shard drops the
// machine and everything under way, claims the partition again and reads it.
package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// Participants is what the coordinator asks of, and tells, the participant
// clusters. Every call has its own deadline and returns by it.
type Participants interface {
	Check(ctx context.Context, id string, clusterIDs []string) []gtc.CheckResult
	Vote(ctx context.Context, id string, refs []gtc.ParticipantRef) []gtc.Vote
	End(ctx context.Context, e gtc.EndTxn) gtc.EndAnswer
	// Scan lists the open transactions of known ids on one cluster. With an
	// error the list is incomplete.
	Scan(ctx context.Context, clusterID string, known func(id string) bool) ([]gtc.OpenTransaction, error)
	// Aliases are the names of the configured clusters.
	Aliases() []string
	// Learn tells the id of a configured cluster, or why it is not known.
	Learn(ctx context.Context, alias string) (clusterID string, err error)
}

// Node is a coordinator as clients are told of it.
type Node struct {
	ID   int32
	Host string
	Port int32
}

// Addr is the node's host:port.
func (n Node) Addr() string { return net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port))) }

// Membership knows the nodes that share the partitions of the log. It only
// says who shall try; the log says who may.
type Membership interface {
	// Owner is the node that a partition is assigned to; false when no node
	// is known to have it.
	Owner(partition int32) (Node, bool)
	// Confirm asks whether this node still is one of those that share. The
	// error says why not, or that it could not be learned.
	Confirm(ctx context.Context) error
}

// Options configures a Service.
type Options struct {
	Log          txnlog.Log
	Participants Participants
	Config       gtc.Config
	Clock        Clock
	Logger       zerolog.Logger
	// NodeID, Host and Port are where clients reach this coordinator.
	NodeID int32
	Host   string
	Port   int32
	// Authorizer is nil when everybody may do everything.
	Authorizer Authorizer
	// Membership is nil when there is this node alone.
	Membership Membership
	// Reachable says of each participant cluster whether the last contact
	// succeeded, for the metrics; nil when nobody knows.
	Reachable func() map[string]bool
	// Retention says for how long a participant cluster keeps what has to outlast
	// an outage. It may ask the cluster; nil when nobody knows.
	Retention func(ctx context.Context, clusterID string) (Retention, error)
	// ScanInterval is the pause between two recovery scans of a cluster.
	ScanInterval time.Duration
	// LazyLinger is the longest that a lazy record waits for a forced one to
	// ride with.
	LazyLinger time.Duration
	// ReloadBackoff is the pause before a partition is claimed again after
	// its shard has failed.
	ReloadBackoff time.Duration
	// EndsPerCluster bounds the EndTxn under way to one cluster, so that ten
	// thousand recovered decisions, or a cluster that accepts connections
	// and never answers, hold nothing else up.
	EndsPerCluster int
	// Fault is called at every named point before and after an append or an
	// outgoing request; the crash suite ends the process there.
	Fault func(point string)
}

func (o *Options) setDefaults() {
	if o.ScanInterval == 0 {
		o.ScanInterval = 10 * time.Second
	}
	if o.LazyLinger == 0 {
		o.LazyLinger = time.Second
	}
	if o.ReloadBackoff == 0 {
		o.ReloadBackoff = 500 * time.Millisecond
	}
	if o.EndsPerCluster == 0 {
		o.EndsPerCluster = 64
	}
	if o.Fault == nil {
		o.Fault = func(string) {}
	}
	if o.Clock == nil {
		o.Clock = SystemClock()
	}
}

// Service is one node's coordinator.
type Service struct {
	o          Options
	ctx        context.Context
	cancel     context.CancelFunc
	requests   atomic.Uint64
	calls      calls
	ends       queues
	metrics    *metrics
	retentions *retentions
	running    sync.WaitGroup

	mu     sync.RWMutex
	shards map[int32]*shard
}

// New returns a service that owns no partition yet.
func New(o Options) (*Service, error) {
	if o.Log == nil || o.Participants == nil {
		return nil, errors.New("service: a log and participants are needed")
	}
	o.setDefaults()
	s := &Service{o: o, shards: map[int32]*shard{}, metrics: newMetrics(), retentions: newRetentions()}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.ends = queues{workers: o.EndsPerCluster, spawn: s.spawn, of: map[string]*queue{}}
	s.calls.waiting = map[gtc.RequestID]chan answer{}
	for _, alias := range o.Participants.Aliases() {
		s.spawn(func() { s.scanForever(alias) })
	}
	return s, nil
}

func (s *Service) spawn(f func()) {
	s.running.Go(f)
}

// OwnAll takes every partition: the one node of an embedded log.
func (s *Service) OwnAll() {
	for p := range s.o.Log.Partitions() {
		s.Own(p)
	}
}

// Own starts to claim and load partitions; requests for their ids are answered
// COORDINATOR_LOAD_IN_PROGRESS until they are active.
func (s *Service) Own(partitions ...int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range partitions {
		if s.shards[p] != nil || s.ctx.Err() != nil {
			continue
		}
		sh := newShard(s, p)
		s.shards[p] = sh
		s.spawn(sh.run)
	}
}

// Disown gives partitions up; requests for their ids are answered
// NOT_COORDINATOR. What was decided stays decided: the next owner reads it. It
// returns when appends in flight have ended (closeTimeout at most), so that
// the next owner claims each partition from nobody.
func (s *Service) Disown(partitions ...int32) {
	var left []*shard
	s.mu.Lock()
	for _, p := range partitions {
		if sh := s.shards[p]; sh != nil {
			left = append(left, sh)
			delete(s.shards, p)
		}
	}
	s.mu.Unlock()
	for _, sh := range left {
		sh.stop()
	}
	for _, sh := range left {
		<-sh.done
		s.metrics.forgetPartition(sh.partition)
	}
}

// Close stops taking work, waits for appends in flight, and gives all
// partitions up.
func (s *Service) Close(ctx context.Context) error {
	s.mu.Lock()
	shards := s.shards
	s.shards = map[int32]*shard{}
	s.mu.Unlock()
	s.cancel()
	for _, sh := range shards {
		sh.stop()
	}
	done := make(chan struct{})
	go func() {
		s.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("service: closing: %w", ctx.Err())
	}
}

func (s *Service) shardFor(id string) (*shard, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	sh := s.shards[txnlog.PartitionFor(id, s.o.Log.Partitions())]
	if sh == nil {
		return nil, errNotCoordinator
	}
	return sh, nil
}

func (s *Service) owned() []*shard {
	s.mu.RLock()
	defer s.mu.RUnlock()
	all := make([]*shard, 0, len(s.shards))
	for _, sh := range s.shards {
		all = append(all, sh)
	}
	return all
}

// Loaded reports how many owned partitions are active.
func (s *Service) Loaded() (active, owned int) {
	all := s.owned()
	for _, sh := range all {
		if sh.active.Load() {
			active++
		}
	}
	return active, len(all)
}

var (
	errNotCoordinator = errors.New("service: this node does not own the partition of the id")
	errLoading        = errors.New("service: the partition of the id is being loaded")
	errNoOwner        = errors.New("service: no node is known to own the partition of the id; ask again")
	errLate           = errors.New("service: not decided and durable by the deadline; ask again with the same request")
	errUnreadable     = errors.New("service: the partition of the id cannot be read")
)

// calls are the requests that wait for a Reply.
type calls struct {
	mu      sync.Mutex
	waiting map[gtc.RequestID]chan answer
}

// answer is the core's response, or the reason that there is none.
type answer struct {
	response gtc.Response
	err      error
}

func (c *calls) add(id gtc.RequestID) <-chan answer {
	ch := make(chan answer, 1)
	c.mu.Lock()
	c.waiting[id] = ch
	c.mu.Unlock()
	return ch
}

func (c *calls) drop(id gtc.RequestID) { c.take(id) }

func (c *calls) take(id gtc.RequestID) chan answer {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := c.waiting[id]
	delete(c.waiting, id)
	return ch
}

func (c *calls) answer(id gtc.RequestID, a answer) {
	if ch := c.take(id); ch != nil {
		ch <- a
	}
}
