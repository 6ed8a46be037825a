package assign

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
)

func testBalancer(log *bytes.Buffer, n service.Node) (*balancer, *assignment) {
	got := new(assignment)
	return &balancer{
		GroupBalancer: kgo.CooperativeStickyBalancer(), node: n, log: zerolog.New(log),
		assigned: func(a *assignment) { *got = *a },
	}, got
}

func TestAnAssignmentSurvivesItsEncoding(t *testing.T) {
	var a assignment
	one, two, idle := service.Node{ID: 1, Host: "a", Port: 9}, service.Node{ID: 2, Host: "b.example", Port: 65535}, service.Node{ID: 1 << 30, Host: "::1", Port: 1}
	a.add(two, []int32{3, 0})
	a.add(one, []int32{1, 2})
	a.add(idle, nil)
	got, err := readAssignment(a.encode())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(got.nodes, []service.Node{one, two, idle}) || !maps.Equal(got.owners, a.owners) {
		t.Errorf("%+v, want %+v", got, a)
	}
}

func TestANodeThatRestartedElsewhereIsOneNodeWithTwoAddresses(t *testing.T) {
	var a assignment
	before, after := service.Node{ID: 1, Host: "a", Port: 9}, service.Node{ID: 1, Host: "b", Port: 9}
	a.add(before, []int32{0})
	a.add(after, []int32{1})
	got, err := readAssignment(a.encode())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.nodes) != 1 || got.owners[0] != before || got.owners[1] != after {
		t.Errorf("%+v", got)
	}
}

// members is a JoinGroup response of these balancers, by member id.
func members(bs map[string]*balancer) []kmsg.JoinGroupResponseMember {
	var ms []kmsg.JoinGroupResponseMember
	for _, id := range slices.Sorted(maps.Keys(bs)) {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = id, bs[id].JoinGroupMetadata([]string{txnlog.Topic}, nil, -1)
		ms = append(ms, m)
	}
	return ms
}

func TestAMemberThatIsNoCoordinatorGetsNothingAndStopsNobody(t *testing.T) {
	var log bytes.Buffer
	b, got := testBalancer(&log, service.Node{ID: 1, Host: "a", Port: 9})
	ms := members(map[string]*balancer{"m1": b})
	for id, metadata := range map[string][]byte{
		"empty": nil, "rubbish": {0, 1, 255, 255},
		"ordinary consumer": kgo.CooperativeStickyBalancer().JoinGroupMetadata([]string{txnlog.Topic}, nil, -1),
	} {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = id, metadata
		ms = append(ms, m)
	}
	mb, topics, err := b.MemberBalancer(ms)
	if err != nil || len(topics) != 1 {
		t.Fatal(topics, err)
	}
	into, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(map[string]int32{txnlog.Topic: 3})
	if err != nil {
		t.Fatal(err)
	}
	plan := into.IntoSyncAssignment()
	if len(plan) != 1 || plan[0].MemberID != "m1" {
		t.Fatalf("%+v", plan)
	}
	mine, err := b.ParseSyncAssignment(plan[0].MemberAssignment)
	if err != nil || len(mine[txnlog.Topic]) != 3 || len(got.owners) != 3 {
		t.Errorf("assigned %v and %+v, %v", mine, got, err)
	}
	if n := bytes.Count(log.Bytes(), []byte("assigned nothing")); n != 3 {
		t.Errorf("%d of the 3 are reported:\n%s", n, log.Bytes())
	}
}

func TestTwoNodesWithOneIDAreReported(t *testing.T) {
	var log bytes.Buffer
	b, _ := testBalancer(&log, service.Node{ID: 1, Host: "a", Port: 9})
	twin, _ := testBalancer(&log, service.Node{ID: 1, Host: "b", Port: 9})
	if _, _, err := b.MemberBalancer(members(map[string]*balancer{"m1": b, "m2": twin})); err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(log.Bytes(), []byte("two nodes have the same node.id")) {
		t.Errorf("not reported:\n%s", log.Bytes())
	}
}

func TestAMemberWithoutAnAssignmentHasNothing(t *testing.T) {
	b, got := testBalancer(new(bytes.Buffer), service.Node{ID: 1, Host: "a", Port: 9})
	if mine, err := b.ParseSyncAssignment(nil); err != nil || len(mine) != 0 || got.owners != nil {
		t.Errorf("%v, %v", mine, err)
	}
}

// Whoever is in the group can send anything.
func FuzzUserData(f *testing.F) {
	n := service.Node{ID: 1, Host: "a", Port: 9}
	var a assignment
	a.add(n, []int32{1, 2})
	f.Add(encodeMember(n))
	f.Add(a.encode())
	f.Add([]byte{0, 0, 0x7f, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		if n, err := readMember(b); err == nil && n != must(t, n) {
			t.Errorf("%+v changes", n)
		}
		a, err := readAssignment(b)
		if err != nil {
			return
		}
		again, err := readAssignment(a.encode())
		if err != nil || !maps.Equal(a.owners, again.owners) {
			t.Errorf("%+v becomes %+v, %v", a, again, err)
		}
	})
}

func must(t *testing.T, n service.Node) service.Node {
	t.Helper()
	again, err := readMember(encodeMember(n))
	if err != nil {
		t.Error(err)
	}
	return again
}
