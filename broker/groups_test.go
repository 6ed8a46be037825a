package broker_test

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupMember is a member of group g that does what it is told.
type groupMember struct {
	t *testing.T
	*raw
	session    time.Duration
	id         string
	instance   *string // group.instance.id
	metadata   string  // of its protocol
	generation int32
}

// rebalanceTimeout is longer than any test: what waits for it is found.
const rebalanceTimeout = time.Hour

func (n *node) member(t *testing.T, session time.Duration) *groupMember {
	t.Helper()
	return &groupMember{t: t, raw: n.dial(t), session: session}
}

// join sends a JoinGroup, which is answered when the others have sent theirs.
func (m *groupMember) join() {
	m.t.Helper()
	req := join("range")
	if m.instance != nil {
		req.Version = 5
	}
	req.MemberID, req.InstanceID = m.id, m.instance
	req.SessionTimeoutMillis = int32(m.session.Milliseconds())
	req.RebalanceTimeoutMillis = int32(rebalanceTimeout.Milliseconds())
	req.Protocols[0].Metadata = []byte(m.metadata)
	m.send(frameOf(req, 7))
}

// joined reads its answer, and gives how many members there are when m leads.
func (m *groupMember) joined() int {
	m.t.Helper()
	req := join()
	if m.instance != nil {
		req.Version = 5
	}
	r := answered[*kmsg.JoinGroupResponse](m, req)
	if r.ErrorCode != 0 {
		m.t.Fatalf("JoinGroup: %v", kerr.ErrorForCode(r.ErrorCode))
	}
	m.id, m.generation = r.MemberID, r.Generation
	return len(r.Members)
}

// sync sends a SyncGroup, which is answered when the leader has sent its own.
func (m *groupMember) sync() {
	m.t.Helper()
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation, req.InstanceID = 3, "g", m.id, m.generation, m.instance
	m.send(frameOf(req, 7))
}

func (m *groupMember) synced() {
	m.t.Helper()
	if r := answered[*kmsg.SyncGroupResponse](m, &kmsg.SyncGroupRequest{Version: 3}); r.ErrorCode != 0 {
		m.t.Fatalf("SyncGroup: %v", kerr.ErrorForCode(r.ErrorCode))
	}
}

// rebalances sends a heartbeat, and says that the group wants m to join again.
func (m *groupMember) rebalances() bool {
	m.t.Helper()
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 3, "g", m.id, m.generation
	switch r := ask[*kmsg.HeartbeatResponse](m.t, m.raw, req); r.ErrorCode {
	case 0:
		return false
	case kerr.RebalanceInProgress.Code:
		return true
	default:
		m.t.Fatalf("Heartbeat: %v", kerr.ErrorForCode(r.ErrorCode))
		return false
	}
}

func answered[R kmsg.Response](m *groupMember, to kmsg.Request) R {
	m.t.Helper()
	_, rest, err := m.receive()
	resp := to.ResponseKind()
	if err == nil {
		err = resp.ReadFrom(rest)
	}
	if err != nil {
		m.t.Fatalf("the answer of %s: %v", kmsg.NameForKey(to.Key()), err)
	}
	return resp.(R)
}

// close ends a member's connection, and lets the node see it.
func (n *node) close(t *testing.T, m *groupMember) {
	t.Helper()
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	n.settle(t)
}

// settle lets the node see what was sent before.
func (n *node) settle(t *testing.T) {
	t.Helper()
	for range 50 {
		n.serves(t)
	}
}

// twoMembers are stable; the first one leads.
func (n *node) twoMembers(t *testing.T, session time.Duration) (first, second *groupMember) {
	t.Helper()
	first, second = n.member(t, session), n.member(t, session)
	n.stabilise(t, first, second)
	return first, second
}

func (n *node) stabilise(t *testing.T, first, second *groupMember) {
	t.Helper()
	first.join()
	first.joined()
	first.sync()
	first.synced()
	second.join()
	waitFor(t, "rebalance after another has come", first.rebalances)
	first.join()
	if got := first.joined(); got != 2 {
		t.Fatalf("%d members, want 2", got)
	}
	second.joined()
	first.sync()
	second.sync()
	first.synced()
	second.synced()
}

// kfake often began no session timeout for a member whose connection had ended
// when its JoinGroup was answered: a process killed while it joined for the first
// time was a member for ever. Often: it drew lots, therefore ten of them.
func TestMembersThatDieWhileTheyJoinTimeOut(t *testing.T) {
	t.Parallel()
	n := startNode(t, nil)
	alive := n.member(t, time.Minute)
	alive.join()
	alive.joined()
	alive.sync()
	alive.synced()
	const dying = 10
	for range dying {
		m := n.member(t, 6*time.Second)
		m.join()
		waitFor(t, "rebalance after another has come", alive.rebalances)
		n.close(t, m)
	}
	alive.join()
	if got := alive.joined(); got != 1+dying {
		t.Fatalf("%d members before the session timeout, want %d: a connection's end is not a member's", got, 1+dying)
	}
	alive.sync()
	alive.synced()
	waitFor(t, "rebalance after the session timeout of those that died", alive.rebalances)
	alive.join()
	if got := alive.joined(); got != 1 {
		t.Errorf("%d members after it, want 1", got)
	}
}

// kfake removed members whose session timed out while their JoinGroup or
// SyncGroup waited for others, and never answered them.
func TestAMemberThatWaitsForOthersDoesNotTimeOut(t *testing.T) {
	t.Parallel()
	const session = 6 * time.Second
	// away is a member that takes longer than the session timeout of others,
	// and says that it lives.
	away := func(m *groupMember) {
		for end := time.Now().Add(session * 4 / 3); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
			m.rebalances()
		}
	}
	t.Run("JoinGroup", func(t *testing.T) {
		t.Parallel()
		n := startNode(t, nil)
		waits, slow := n.twoMembers(t, session)
		third := n.member(t, session)
		third.join()
		waitFor(t, "rebalance after a third has come", waits.rebalances)
		waits.join()
		away(slow)
		slow.join()
		if got := waits.joined(); got != 3 {
			t.Errorf("%d members, want 3", got)
		}
		slow.joined()
		third.joined()
	})
	t.Run("SyncGroup", func(t *testing.T) {
		t.Parallel()
		n := startNode(t, nil)
		slow, waits := n.twoMembers(t, session)
		slow.join() // a leader that joins again makes the others join, too
		waitFor(t, "rebalance after the leader has joined again", waits.rebalances)
		waits.join()
		slow.joined()
		waits.joined()
		waits.sync()
		away(slow)
		slow.sync()
		slow.synced()
		waits.synced()
	})
}

// kfake took the SyncGroup of a member that left, joined again or was replaced
// while it waited for a JoinGroup that waits, and so waited for one member too few
// in the next rebalance: for ever here, for the rebalance timeout elsewhere.
func TestAMemberThatGoesWhileItsSyncGroupWaitsIsNotMiscounted(t *testing.T) {
	start := func(t *testing.T) (n *node, leader, follower *groupMember) {
		t.Helper()
		n = startNode(t, nil)
		leader, follower = n.member(t, time.Minute), n.member(t, time.Minute)
		follower.instance = kmsg.StringPtr("i")
		n.stabilise(t, leader, follower)
		leader.join()
		waitFor(t, "rebalance after the leader has joined again", follower.rebalances)
		follower.join()
		leader.joined()
		follower.joined()
		follower.sync()
		n.settle(t)
		return n, leader, follower
	}
	// Whether the leader's SyncGroup comes before or after the rebalance that
	// the other's request begins: in the end it joins again.
	members := func(t *testing.T, n *node, leader *groupMember) int {
		t.Helper()
		n.settle(t)
		leader.sync()
		r := answered[*kmsg.SyncGroupResponse](leader, &kmsg.SyncGroupRequest{Version: 3})
		if r.ErrorCode != kerr.RebalanceInProgress.Code {
			waitFor(t, "rebalance", leader.rebalances)
		}
		leader.join()
		return leader.joined()
	}
	t.Run("leaves", func(t *testing.T) {
		n, leader, follower := start(t)
		leave := kmsg.NewPtrLeaveGroupRequest()
		leave.Version, leave.Group = 3, "g"
		leave.Members = []kmsg.LeaveGroupRequestMember{{MemberID: follower.id, InstanceID: follower.instance}}
		n.dial(t).send(frameOf(leave, 7))
		if got := members(t, n, leader); got != 1 {
			t.Errorf("%d members, want 1", got)
		}
	})
	t.Run("is replaced", func(t *testing.T) {
		n, leader, follower := start(t)
		successor := n.member(t, time.Minute)
		successor.instance, successor.metadata = follower.instance, "other topics"
		successor.join()
		if got := members(t, n, leader); got != 2 {
			t.Errorf("%d members, want 2", got)
		}
		successor.joined()
	})
	t.Run("joins again", func(t *testing.T) {
		n, leader, follower := start(t)
		again := n.member(t, time.Minute)
		again.id, again.instance, again.metadata = follower.id, follower.instance, "other topics"
		again.join()
		if got := members(t, n, leader); got != 2 {
			t.Errorf("%d members, want 2", got)
		}
		again.joined()
	})
}

// Nobody waits for the answer of a member that is gone, so the node's end does
// not either.
func TestShutdownDoesNotWaitForAMemberThatIsGone(t *testing.T) {
	n := startNode(t, nil)
	n.grace = patience
	stays, goes := n.member(t, 10*patience), n.member(t, 10*patience)
	stays.join()
	stays.joined()
	goes.join()
	waitFor(t, "rebalance after another has come", stays.rebalances)
	n.close(t, goes)
	began := time.Now()
	n.stop()
	if took := time.Since(began); took >= n.grace {
		t.Errorf("it took %v", took)
	}
}
