package acl

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Source sends one request to the cluster that has the ACLs.
type Source func(ctx context.Context, req kmsg.Request) (kmsg.Response, error)

// Options configures a Cache.
type Options struct {
	Source       Source
	SuperUsers   []string // as User:alice
	AllowIfNoACL bool     // allow.everyone.if.no.acl.found
	// All: read the ACLs of all resources, not only of those that the coordinator
	// asks about.
	All bool
	// Interval is the pause between two looks; 0: only Refresh looks, and after one
	// that failed, every second until one succeeds.
	Interval time.Duration
	// After is the clock.
	After func(time.Duration) <-chan time.Time
	Log   zerolog.Logger
}

// Cache is the ACLs of a cluster as they were last read. Until they were read
// once it denies everything but to super users: who may not be known to be
// allowed is not. When they cannot be read again the last ones stay in force,
// because refusing all commits would hold up every reader for a fault of the
// way to the ACLs; the log says since when.
type Cache struct {
	o     Options
	rules atomic.Pointer[Rules]
	end   context.CancelFunc
	done  chan struct{}

	mu     sync.Mutex // one look at a time, so that an older one cannot win
	failed bool
	again  chan struct{} // a look has failed
}

const (
	// readTimeout bounds one look.
	readTimeout = 10 * time.Second
	// againAfter is the pause after a look that failed.
	againAfter = time.Second
)

// NewCache makes a cache and looks once; when that fails it goes on trying at
// the interval. ctx's end does not end it: Close does.
func NewCache(ctx context.Context, o Options) *Cache {
	c := &Cache{o: o, done: make(chan struct{}), again: make(chan struct{}, 1)}
	c.rules.Store(NewRules(nil, o.SuperUsers, false))
	c.Refresh(ctx) //nolint:errcheck // said in the log, and tried again
	ctx, c.end = context.WithCancel(context.WithoutCancel(ctx))
	go c.run(ctx)
	return c
}

// Close ends the looking.
func (c *Cache) Close() {
	c.end()
	<-c.done
}

func (c *Cache) run(ctx context.Context) {
	defer close(c.done)
	for {
		var next <-chan time.Time
		if c.o.Interval != 0 {
			next = c.o.After(c.o.Interval)
		}
		select {
		case <-next:
		case <-c.again:
			select {
			case <-c.o.After(againAfter):
			case <-ctx.Done():
				return
			}
		case <-ctx.Done():
			return
		}
		c.Refresh(ctx) //nolint:errcheck // said in the log, and tried again
	}
}

// Allows says whether a request may be done by the ACLs last read. At debug
// level the log has what was refused.
func (c *Cache) Allows(q Request) bool {
	if c.rules.Load().Allows(q) {
		return true
	}
	c.o.Log.Debug().Str("principal", q.Principal).Str("host", q.Host).Str("operation", operationName(q.Operation)).
		Stringer("resource", q.Type).Str("name", q.Name).Msg("denied")
	return false
}

func operationName(op kmsg.ACLOperation) string {
	if op == TwoPhaseCommit {
		return "TWO_PHASE_COMMIT"
	}
	return op.String()
}

// Refresh looks now. After an error what was read last stays in force.
func (c *Cache) Refresh(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	bindings, err := read(ctx, c.o)
	switch {
	case err == nil:
		c.rules.Store(NewRules(bindings, c.o.SuperUsers, c.o.AllowIfNoACL))
		if c.failed {
			c.o.Log.Info().Int("acls", len(bindings)).Msg("the ACLs of the home cluster are read again")
		}
	case ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded):
		return err // the node stops
	case !c.failed:
		c.o.Log.Error().Err(err).Msg("the ACLs of the home cluster cannot be read: what was read last stays in force, and before that everything is refused but to super users")
	}
	if c.failed = err != nil; c.failed {
		select {
		case c.again <- struct{}{}:
		default:
		}
	}
	return err
}

// read asks for the ACLs that decisions are made by.
func read(ctx context.Context, o Options) ([]Binding, error) {
	var all []Binding
	types := []kmsg.ACLResourceType{kmsg.ACLResourceTypeTransactionalId, kmsg.ACLResourceTypeCluster}
	if o.All {
		types = []kmsg.ACLResourceType{kmsg.ACLResourceTypeAny}
	}
	for _, t := range types {
		req := kmsg.NewPtrDescribeACLsRequest()
		req.Version = 1 // the oldest with patterns, so that every cluster has it
		req.ResourceType, req.ResourcePatternType = t, kmsg.ACLResourcePatternTypeAny
		req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
		answer, err := o.Source(ctx, req)
		if err != nil {
			return nil, fmt.Errorf("DescribeAcls: %w", err)
		}
		resp, ok := answer.(*kmsg.DescribeACLsResponse)
		if !ok {
			return nil, fmt.Errorf("DescribeAcls: answered as %T", answer)
		}
		if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
			return nil, fmt.Errorf("DescribeAcls: %w", err)
		}
		for _, r := range resp.Resources {
			for _, a := range r.ACLs {
				all = append(all, Binding{
					ResourceType: r.ResourceType, ResourceName: r.ResourceName, Pattern: r.ResourcePatternType,
					Principal: a.Principal, Host: a.Host, Operation: a.Operation, Permission: a.PermissionType,
				})
			}
		}
	}
	return all, nil
}
