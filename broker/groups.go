package broker

import (
	"context"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is a member of a classic group whose JoinGroup or SyncGroup waits at
// kfake for the other members.
//
// Kafka does not notice a client's end while its request waits: the member
// counts, and its session timeout begins with the answer. Nor does a session
// time out while a request waits (ClassicGroupMember.hasSatisfiedHeartbeat).
// kfake is different:
//
//   - An answer that finds its connection closed mostly begins no session
//     timeout. A process that is killed while its first JoinGroup waits then is a
//     member for ever: its partitions are read by nobody, and the next rebalance
//     waits for it during the whole rebalance timeout. So the connection to kfake
//     outlives the client's (linger).
//   - Its session timeout goes on while a member waits, and then removes it
//     without an answer: the client waits until it gives up. So the front sends
//     heartbeats in place of a member that waits (vouch).
//   - A member that leaves, joins again or is replaced while its SyncGroup waits
//     is counted as if it were a JoinGroup that waits. The members of the next
//     rebalance are then one too few, for the whole rebalance timeout. So such a
//     request is held back until the SyncGroup has been answered (holdBack).
type member struct {
	group    string
	id       string // empty: it has none yet
	instance string // group.instance.id, or empty
}

func memberOf(group, id string, instance *string) *member {
	m := &member{group: group, id: id}
	if instance != nil {
		m.instance = *instance
	}
	return m
}

// is says that both are one, or that one takes the other's place.
func (m *member) is(o *member) bool {
	return m.group == o.group && (m.id != "" && m.id == o.id || m.instance != "" && m.instance == o.instance)
}

// await sends a request that waits at kfake.
func (c *conn) await(a *answer, raw []byte) error {
	a.answered = make(chan struct{})
	ended := func() {}
	if kmsg.Key(a.req.key) == kmsg.SyncGroup {
		ended = c.f.opts.Embedded.syncs.add(a.plan.waits)
	}
	if err := c.sendUpstream(a, raw); err != nil {
		ended()
		return err
	}
	c.waiting = a
	c.helpers.Go(func() {
		defer ended()
		c.vouch(a)
	})
	return nil
}

// mayJoin keeps a client that kfake will refuse from keeping others' members
// alive, or back, with requests that are stuck behind slow ones.
func (c *conn) mayJoin(group string) bool {
	return c.f.opts.ACLs == nil || c.trusted || c.f.may(c.who, kmsg.ACLOperationRead, kmsg.ACLResourceTypeGroup, group)
}

// syncs are the SyncGroups that wait at kfake, whichever front they came to.
type syncs struct {
	mu      sync.Mutex
	waiting map[chan struct{}]*member // closed when it waits no more
}

func (s *syncs) add(m *member) (ended func()) {
	done := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[done] = m
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.waiting, done)
		close(done)
	}
}

// of is one of those of a member; nil: there is none.
func (s *syncs) of(m *member) chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	for done, o := range s.waiting {
		if m.is(o) {
			return done
		}
	}
	return nil
}

// holdBack waits until no SyncGroup of the member waits. Its leader answers that
// soon, or is removed from the group.
func (c *conn) holdBack(m *member) {
	for {
		done := c.f.opts.Embedded.syncs.of(m)
		if done == nil {
			return
		}
		select {
		case <-done:
		case <-c.drained:
			return
		case <-c.ctx.Done():
			return
		}
	}
}

// routeSyncGroup and routeLeaveGroup say whose requests they are. A LeaveGroup of
// several members is an operator's; one of them may be the leader that a
// SyncGroup waits for.
func (f *Front) routeSyncGroup(body *kmsg.SyncGroupRequest) plan {
	return plan{waits: memberOf(body.Group, body.MemberID, body.InstanceID)}
}

func (f *Front) routeLeaveGroup(body *kmsg.LeaveGroupRequest) plan {
	switch {
	case body.Version < 3:
		return plan{ends: memberOf(body.Group, body.MemberID, nil)}
	case len(body.Members) == 1:
		return plan{ends: memberOf(body.Group, body.Members[0].MemberID, body.Members[0].InstanceID)}
	}
	return plan{}
}

// linger is called when the client has gone. It keeps the connection to kfake
// until what waits there has been answered.
func (c *conn) linger() {
	if c.waiting == nil {
		return
	}
	select {
	case <-c.waiting.answered:
	case <-c.drained:
	case <-c.ctx.Done():
	}
}

// vouchInterval is small against Kafka's least session timeout, six seconds
// (group.min.session.timeout.ms).
const vouchInterval = time.Second

// vouch keeps a member's session alive until its request has been answered.
func (c *conn) vouch(a *answer) {
	if a.plan.waits.id == "" {
		return // new, and without a session before its answer
	}
	for c.waits(a, vouchInterval) {
		if err := c.f.opts.Embedded.heartbeat(c.ctx, a.plan.waits); err != nil && c.ctx.Err() == nil {
			c.log.Warn().Err(err).Str("group", a.plan.waits.group).Msg("a heartbeat for a member that waits failed")
		}
	}
}

// waits says that an answer is still owed after a while.
func (c *conn) waits(a *answer, while time.Duration) bool {
	ctx, cancel := context.WithTimeout(c.ctx, while)
	defer cancel()
	select {
	case <-a.answered:
		return false
	case <-ctx.Done():
		return c.ctx.Err() == nil
	}
}

// heartbeat is one in place of a member. What kfake says to it is of no
// interest: the member is told by itself when it is none any more.
func (e *Embedded) heartbeat(ctx context.Context, m *member) error {
	info := e.cluster.GroupInfo(m.group)
	if info == nil {
		return nil
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.group, info.Epoch, m.id
	_, err := e.ask(ctx, req)
	return err
}
