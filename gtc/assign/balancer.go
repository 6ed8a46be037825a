package assign

import (
	"fmt"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// balancer is kgo's cooperative sticky one, so that a node that comes or goes
// moves as few partitions as possible and stops none that stays. It adds to
// the members' metadata who they are, and to the assignments who has what.
type balancer struct {
	kgo.GroupBalancer
	node     service.Node
	log      zerolog.Logger
	assigned func(*assignment)
}

// ProtocolName keeps ordinary consumers out of the group: members of one group
// need a protocol in common.
func (b *balancer) ProtocolName() string { return "gtc-cooperative-sticky" }

// JoinGroupMetadata has this node in the place of the sticky balancer's user
// data, which repeats what the metadata's own fields say since KIP-792.
func (b *balancer) JoinGroupMetadata(topics []string, current map[string][]int32, generation int32) []byte {
	var meta kmsg.ConsumerMemberMetadata
	inner := b.GroupBalancer.JoinGroupMetadata(topics, current, generation)
	if err := meta.ReadFrom(inner); err != nil {
		panic(fmt.Sprintf("assign: kgo's own metadata does not parse: %v", err)) // not from outside
	}
	meta.UserData = encodeMember(b.node)
	return meta.AppendTo(nil)
}

// ParseSyncAssignment takes the map of the group along.
func (b *balancer) ParseSyncAssignment(raw []byte) (map[string][]int32, error) {
	var mine kmsg.ConsumerMemberAssignment
	if len(raw) > 0 { // a member that the leader could not understand gets nothing
		if err := mine.ReadFrom(raw); err != nil {
			return nil, fmt.Errorf("assign: the assignment does not parse: %w", err)
		}
		a, err := readAssignment(mine.UserData)
		if err != nil {
			return nil, err
		}
		b.assigned(a)
	}
	topics := make(map[string][]int32, len(mine.Topics))
	for _, t := range mine.Topics {
		topics[t.Topic] = t.Partitions
	}
	return topics, nil
}

// MemberBalancer plans for the members that say who they are. One that does
// not gets nothing: it must not keep the others from their work.
func (b *balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	nodes := make(map[string]service.Node, len(members))
	known := make([]kmsg.JoinGroupResponseMember, 0, len(members))
	for _, m := range members {
		meta := kmsg.NewConsumerMemberMetadata()
		err := meta.ReadFrom(m.ProtocolMetadata)
		var n service.Node
		if err == nil {
			n, err = readMember(meta.UserData)
		}
		if err != nil {
			b.log.Error().Err(err).Str("member", m.MemberID).Msg("a member of the group does not say which node it is; it is assigned nothing")
			continue
		}
		b.warnOfTwins(nodes, n)
		nodes[m.MemberID] = n
		meta.UserData = nil
		m.ProtocolMetadata = meta.AppendTo(nil)
		known = append(known, m)
	}
	inner, topics, err := b.GroupBalancer.MemberBalancer(known)
	if err != nil {
		return nil, nil, err
	}
	fallible, ok := inner.(kgo.GroupMemberBalancerOrError)
	if !ok {
		return nil, nil, fmt.Errorf("assign: kgo's sticky balancer is a %T, which cannot be called", inner)
	}
	return &memberBalancer{fallible, nodes}, topics, nil
}

// warnOfTwins: a client that knows nodes by their id would send everything to
// one of the two. (A node that restarts with its old address is no twin of
// its former self.)
func (b *balancer) warnOfTwins(nodes map[string]service.Node, n service.Node) {
	for _, other := range nodes {
		if other.ID == n.ID && other != n {
			b.log.Error().Int32("node.id", n.ID).Str("one", other.Addr()).Str("other", n.Addr()).
				Msg("two nodes have the same node.id; give each its own")
		}
	}
}

type memberBalancer struct {
	inner kgo.GroupMemberBalancerOrError
	nodes map[string]service.Node
}

// BalanceOrError implements kgo.GroupMemberBalancerOrError.
func (m *memberBalancer) BalanceOrError(topics map[string]int32) (kgo.IntoSyncAssignment, error) {
	into, err := m.inner.BalanceOrError(topics)
	if err != nil {
		return nil, err
	}
	return plan{into.IntoSyncAssignment(), m.nodes}, nil
}

// Balance is what kgo calls of a balancer that cannot fail; this one can.
func (m *memberBalancer) Balance(topics map[string]int32) kgo.IntoSyncAssignment {
	into, err := m.BalanceOrError(topics)
	if err != nil {
		return nil // which kgo reports
	}
	return into
}

type plan struct {
	of    []kmsg.SyncGroupRequestGroupAssignment
	nodes map[string]service.Node
}

// IntoSyncAssignment puts the map of all into the assignment of each. A
// partition that moves is in nobody's assignment until its owner has let go
// (KIP-429), and so in no map: nobody coordinates it meanwhile.
func (p plan) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment {
	parsed := make([]kmsg.ConsumerMemberAssignment, len(p.of))
	var all assignment
	for i, of := range p.of {
		if err := parsed[i].ReadFrom(of.MemberAssignment); err != nil {
			panic(fmt.Sprintf("assign: kgo's own assignment does not parse: %v", err)) // not from outside
		}
		var partitions []int32
		for _, t := range parsed[i].Topics {
			partitions = append(partitions, t.Partitions...)
		}
		all.add(p.nodes[of.MemberID], partitions)
	}
	for i := range parsed {
		parsed[i].UserData = all.encode()
		p.of[i].MemberAssignment = parsed[i].AppendTo(nil)
	}
	return p.of
}
