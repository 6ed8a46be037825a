package broker

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// member is a member of a classic group whose JoinGroup or SyncGroup waits at
// kfake for the other members.
//
// Kafka does not notice a client's end while its request waits: the member
// counts, and its session timeout begins with the answer. Nor does a session
// time out while a request waits (ClassicGroupMember.hasSatisfiedHeartbeat).
// With kfake both are otherwise:
//
//   - An answer that finds its connection closed begins no session timeout. A
//     process that is killed while its first JoinGroup waits then is a member for
//     ever: its partitions are read by nobody, and each later rebalance waits for
//     it during the whole rebalance timeout. So the connection to kfake outlives
//     the client's (linger).
//   - Its session timeout goes on while a member waits, and then removes it
//     without an answer: the client waits until it gives up, and when the request
//     was a SyncGroup, kfake also miscounts the members that it waits for next.
//     So the front sends heartbeats in place of a member that waits (vouch).
type member struct{ group, id string }

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

// vouch keeps a member's session alive until its request has been answered. The
// heartbeats are the client's own: whom it may not join for, it may not keep.
func (c *conn) vouch(a *answer, host, name string) {
	if a.plan.waits.id == "" {
		return // new, and without a session before its answer
	}
	for c.waits(a, vouchInterval) {
		if err := c.f.opts.Embedded.heartbeat(c.ctx, *a.plan.waits, host, name); err != nil && c.ctx.Err() == nil {
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
func (e *Embedded) heartbeat(ctx context.Context, m member, host, name string) error {
	info := e.cluster.GroupInfo(m.group)
	if info == nil {
		return nil
	}
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.Generation, req.MemberID = m.group, info.Epoch, m.id
	_, err := e.askAs(ctx, host, name, req)
	return err
}
