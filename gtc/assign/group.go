// Package assign shares the partitions of the coordinator's log among nodes,
// by an ordinary consumer group on the home cluster.
//
// The group only decides who tries. Who may is settled by the log: a node that
// sleeps through the loss of a partition is refused there (package topiclog).
// So the group needs no fencing of its own, and what it gives late costs
// nothing but time.
//
// Every assignment carries the whole map of partitions and nodes, so each
// node can say where any global transactional id is coordinated, without a
// request to anybody.
package assign

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

// GroupID is the consumer group of the coordinator's nodes. Its principal
// needs Read on the group and Describe on the topic.
const GroupID = "__gtc-coordinators"

// Options configure a Group.
type Options struct {
	// ClientOpts reach the home cluster: seed brokers, TLS, SASL, dialer.
	ClientOpts []kgo.Opt
	// Topic is txnlog.Topic by default; GroupID is the constant.
	Topic, GroupID string
	// Node is this node as clients are told of it. No two nodes may have the
	// same id.
	Node service.Node
	// SessionTimeout (10 s) is how long a node may be silent before its
	// partitions go to others. The home cluster bounds it
	// (group.min.session.timeout.ms, 6 s by default).
	SessionTimeout time.Duration
	Logger         zerolog.Logger
	Clock          service.Clock // the system's by default
}

// Owner takes partitions and gives them up: a *service.Service. Disown returns
// when nothing of the partitions is under way any more, so that the next owner
// claims them from nobody.
type Owner interface {
	Own(partitions ...int32)
	Disown(partitions ...int32)
}

// Group is this node's part in the group.
type Group struct {
	o       Options
	owner   Owner
	client  atomic.Pointer[kgo.Client]
	present atomic.Pointer[assignment]
	stop    context.CancelFunc
	polling sync.WaitGroup
}

var _ service.Membership = (*Group)(nil)

// New returns a group that this node has not joined yet.
func New(o Options) (*Group, error) {
	if o.Topic == "" {
		o.Topic = txnlog.Topic
	}
	if o.GroupID == "" {
		o.GroupID = GroupID
	}
	if o.SessionTimeout == 0 {
		o.SessionTimeout = 10 * time.Second
	}
	if o.Clock == nil {
		o.Clock = service.SystemClock()
	}
	if o.Node.Host == "" || o.Node.Port <= 0 {
		return nil, fmt.Errorf("assign: %q is no address that clients can be sent to", o.Node.Addr())
	}
	return &Group{o: o}, nil
}

// heartbeats in a session. Kafka's usual three are too few here: after a death
// the others learn of the new assignment with their next heartbeat, so that
// interval is added to the session timeout before anybody takes over.
const heartbeats = 20

func (g *Group) heartbeatInterval() time.Duration { return g.o.SessionTimeout / heartbeats }

// retry is as frequent as a heartbeat would be. kgo's own back-off grows to five
// seconds and more: after a while without the home cluster, its partitions would
// have no owner for that much longer.
func (g *Group) retry() kgo.Opt {
	return kgo.RetryBackoffFn(func(int) time.Duration { return g.heartbeatInterval() })
}

// Join enters the group and hands to owner what it is assigned, until Close.
// It returns at once; while the home cluster cannot be reached, or refuses, it
// is tried again and the reason logged.
func (g *Group) Join(owner Owner) error {
	g.owner = owner
	opts := g.memberOpts()
	if err := kgo.ValidateOpts(opts...); err != nil {
		return fmt.Errorf("assign: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	g.stop = cancel
	g.polling.Go(func() {
		if err := g.buryFormerSelf(ctx); err != nil && ctx.Err() == nil {
			g.o.Logger.Warn().Err(err).Str("group", g.o.GroupID).Msg("what this node was before may be a member until its session is over")
		}
		client, err := kgo.NewClient(opts...)
		if err != nil {
			g.o.Logger.Error().Err(err).Msg("this node cannot join the group of coordinators") // the options are valid
			return
		}
		g.client.Store(client)
		g.poll(ctx, client)
	})
	return nil
}

// clientID is the same in all lives of a node, and no two nodes have the same.
func (g *Group) clientID() string { return fmt.Sprintf("gtc-assign-%d", g.o.Node.ID) }

func (g *Group) memberOpts() []kgo.Opt {
	return append([]kgo.Opt{
		kgo.ClientID(g.clientID()),
		kgo.ConsumerGroup(g.o.GroupID),
		kgo.ConsumeTopics(g.o.Topic),
		kgo.Balancers(&balancer{GroupBalancer: kgo.CooperativeStickyBalancer(), node: g.o.Node, log: g.o.Logger, assigned: g.assigned}),
		kgo.SessionTimeout(g.o.SessionTimeout),
		kgo.HeartbeatInterval(g.heartbeatInterval()),
		g.retry(),
		// Kafka waits no longer than a session for the dead among those that
		// have to join again. This is longer because kgo waits as long for the
		// answer to SyncGroup, which comes when a leader that has died is
		// missed: until then the living keep what they have.
		kgo.RebalanceTimeout(g.o.SessionTimeout + 10*time.Second),
		// A home cluster that does not answer must not keep a node in the
		// belief that it is a member for longer than others believe it.
		kgo.RequestTimeoutOverhead(max(g.o.SessionTimeout/2, time.Second)),
		// The group hands out partitions and nothing else: no offset is
		// committed, and without a starting offset nothing is fetched.
		kgo.DisableAutoCommit(),
		kgo.AdjustFetchOffsetsFn(func(context.Context, map[string]map[int32]kgo.Offset) (map[string]map[int32]kgo.Offset, error) {
			return nil, nil
		}),
		kgo.OnPartitionsAssigned(g.onAssigned),
		kgo.OnPartitionsRevoked(g.onRevoked),
		kgo.OnPartitionsLost(g.onLost),
	}, g.o.ClientOpts...)
}

// buryFormerSelf takes what this node was before a crash out of the group, so
// that a node that is started again has its share at once. The group would wait
// for the dead member until its session is over; for one that died while it was
// joining even longer, because its session begins when all others have joined,
// and those may be waited for as well (measured on 4.4.0, two nodes that crash
// while they join, session timeout 6 s: 14 s until all partitions had an owner).
//
// A static member (KIP-345) would be recognised by the group itself, and is not
// what is wanted: Kafka gives it its old assignment without a rebalance, and so
// everybody the address that the node had before.
//
// Whoever is taken out and alive, because two nodes have been given one id,
// joins again.
func (g *Group) buryFormerSelf(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, g.o.SessionTimeout) // it is dead by then
	defer cancel()
	client, err := kgo.NewClient(append([]kgo.Opt{kgo.ClientID(g.clientID()), g.retry()}, g.o.ClientOpts...)...)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Group = g.o.GroupID
		if leave.Members, err = g.formerSelves(ctx, client); err == nil && len(leave.Members) > 0 {
			g.o.Logger.Info().Int("members", len(leave.Members)).Str("group", g.o.GroupID).Msg("what this node was before is taken out of the group")
			err = left(leave.RequestWith(ctx, client))
		}
		// A coordinator that is not there yet, or reads its log, will be.
		if err == nil || !g.pause(ctx) {
			return err
		}
	}
}

func left(resp *kmsg.LeaveGroupResponse, err error) error {
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("taking them out: %w", err)
	}
	return nil // also when one of them was out already
}

// formerSelves are the members of the group that have this node's client id.
func (g *Group) formerSelves(ctx context.Context, client *kgo.Client) (former []kmsg.LeaveGroupRequestMember, err error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = []string{g.o.GroupID}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, fmt.Errorf("asking for the members: %w", err)
	}
	for _, group := range resp.Groups {
		if err = kerr.ErrorForCode(group.ErrorCode); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
			return nil, fmt.Errorf("asking for the members: %w", err)
		}
		for _, m := range group.Members {
			if m.ClientID == g.clientID() {
				member := kmsg.NewLeaveGroupRequestMember()
				member.MemberID = m.MemberID
				former = append(former, member)
			}
		}
	}
	return former, nil
}

// pause waits until it is time to try again; false when ctx has ended.
func (g *Group) pause(ctx context.Context) bool {
	over := make(chan struct{})
	stop := g.o.Clock.After(g.heartbeatInterval(), func() { close(over) })
	defer stop()
	select {
	case <-over:
		return true
	case <-ctx.Done():
		return false
	}
}

// poll takes what the client reports in the place of records: the errors of
// its group.
func (g *Group) poll(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		for _, e := range client.PollFetches(ctx).Errors() {
			switch {
			case errors.Is(e.Err, context.Canceled), errors.Is(e.Err, kgo.ErrClientClosed):
			case errors.Is(e.Err, kerr.InvalidSessionTimeout):
				g.o.Logger.Error().Err(e.Err).Str("group", g.o.GroupID).Dur("session.timeout", g.o.SessionTimeout).
					Msg("the home cluster does not allow this session timeout; see its group.min.session.timeout.ms and group.max.session.timeout.ms")
			default:
				g.o.Logger.Warn().Err(e.Err).Str("group", g.o.GroupID).Msg("this node is outside the group of coordinators and tries to join again")
			}
		}
	}
}

// Close leaves the group, so that others take over at once, and gives up what
// this node had.
func (g *Group) Close(ctx context.Context) error {
	if g.stop == nil {
		return nil // not joined
	}
	g.stop()
	g.polling.Wait()
	client := g.client.Load()
	if client == nil {
		return nil
	}
	err := client.LeaveGroupContext(ctx)
	g.present.Store(nil)
	client.Close()
	if err != nil && !errors.Is(err, kerr.UnknownMemberID) {
		return fmt.Errorf("assign: leaving group %s: %w", g.o.GroupID, err)
	}
	return nil
}

// Owner implements service.Membership.
func (g *Group) Owner(partition int32) (service.Node, bool) {
	a := g.present.Load()
	if a == nil {
		return service.Node{}, false
	}
	n, ok := a.owners[partition]
	return n, ok
}

// Nodes are all members of the group, by id; this node alone while it is none.
func (g *Group) Nodes() []service.Node {
	if a := g.present.Load(); a != nil {
		return a.nodes
	}
	return []service.Node{g.o.Node}
}

// Confirm implements service.Membership by a heartbeat: the group's answer is
// the only thing that a node which has slept can trust.
func (g *Group) Confirm(ctx context.Context) error {
	client := g.client.Load()
	if client == nil {
		return errors.New("assign: this node has not joined the group yet")
	}
	ctx, cancel := context.WithTimeout(ctx, g.o.SessionTimeout)
	defer cancel()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = g.o.GroupID
	req.MemberID, req.Generation = client.GroupMetadata()
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	// During a rebalance a member keeps what it has until it is told.
	if err != nil && !errors.Is(err, kerr.RebalanceInProgress) {
		return fmt.Errorf("assign: asking group %s whether node %d is still a member: %w", g.o.GroupID, g.o.Node.ID, err)
	}
	return nil
}

// assigned takes a new map of the whole group.
func (g *Group) assigned(a *assignment) {
	g.present.Store(a)
	g.o.Logger.Info().Int("nodes", len(a.nodes)).Int("partitions", len(a.owners)).Msg("the group of coordinators has a new assignment")
}

func (g *Group) onAssigned(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	if ps := topics[g.o.Topic]; len(ps) > 0 {
		g.o.Logger.Info().Ints32("partitions", ps).Msg("partitions assigned to this node")
		g.owner.Own(ps...)
	}
}

func (g *Group) onRevoked(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	g.giveUp("partitions go to another node", topics)
}

// onLost is called when the session is over: the group has given, or is about
// to give, everything to others, and what it said of them is out of date.
func (g *Group) onLost(_ context.Context, _ *kgo.Client, topics map[string][]int32) {
	g.present.Store(nil)
	g.giveUp("this node is no member of the group any more; its partitions go to others", topics)
}

func (g *Group) giveUp(why string, topics map[string][]int32) {
	if ps := topics[g.o.Topic]; len(ps) > 0 {
		g.o.Logger.Info().Ints32("partitions", ps).Msg(why)
		g.owner.Disown(ps...)
	}
}
