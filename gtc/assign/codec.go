package assign

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kbin"

	"github.com/kafka-gtc/kafka-gtc/gtc/service"
)

// What travels in the user data of the group is, as all of Kafka's embedded
// protocols, a version and then fields; a newer version only appends fields.
//
//	member metadata: Version int16, NodeId int32, Host string, Port int32
//	assignment:      Version int16, [NodeId int32, Host string, Port int32, Partitions [int32]]
const userDataVersion = 0

// assignment is who has what in the whole group.
type assignment struct {
	nodes  []service.Node // by id
	owners map[int32]service.Node
}

// add gives partitions to a node, which may be there already: one that has
// restarted is a member twice until its former session is over.
func (a *assignment) add(n service.Node, partitions []int32) {
	if a.owners == nil {
		a.owners = make(map[int32]service.Node)
	}
	at, found := slices.BinarySearchFunc(a.nodes, n, func(x, y service.Node) int { return cmp.Compare(x.ID, y.ID) })
	if !found {
		a.nodes = slices.Insert(a.nodes, at, n)
	}
	for _, p := range partitions {
		a.owners[p] = n
	}
}

func appendNode(b []byte, n service.Node) []byte {
	b = kbin.AppendInt32(b, n.ID)
	b = kbin.AppendString(b, n.Host)
	return kbin.AppendInt32(b, n.Port)
}

func readNode(r *kbin.Reader) service.Node {
	return service.Node{ID: r.Int32(), Host: r.String(), Port: r.Int32()}
}

func encodeMember(n service.Node) []byte {
	return appendNode(kbin.AppendInt16(nil, userDataVersion), n)
}

func readMember(b []byte) (service.Node, error) {
	r := kbin.Reader{Src: b}
	version := r.Int16()
	n := readNode(&r)
	if !r.Ok() || version < userDataVersion || n.Host == "" || n.Port <= 0 {
		return service.Node{}, fmt.Errorf("assign: %d bytes of member metadata are not those of a coordinator", len(b))
	}
	return n, nil
}

// encode writes the nodes and what each has.
func (a *assignment) encode() []byte {
	of := make(map[service.Node][]int32, len(a.nodes))
	for _, n := range a.nodes {
		of[n] = nil
	}
	for p, n := range a.owners {
		of[n] = append(of[n], p)
	}
	b := kbin.AppendInt16(nil, userDataVersion)
	b = kbin.AppendArrayLen(b, len(of))
	for _, n := range slices.SortedFunc(maps.Keys(of), compareNodes) {
		slices.Sort(of[n])
		b = appendNode(b, n)
		b = kbin.AppendArrayLen(b, len(of[n]))
		for _, p := range of[n] {
			b = kbin.AppendInt32(b, p)
		}
	}
	return b
}

func compareNodes(x, y service.Node) int {
	return cmp.Or(cmp.Compare(x.ID, y.ID), cmp.Compare(x.Host, y.Host), cmp.Compare(x.Port, y.Port))
}

func readAssignment(b []byte) (*assignment, error) {
	r := kbin.Reader{Src: b}
	version := r.Int16()
	a := &assignment{owners: map[int32]service.Node{}}
	for range r.ArrayLen() {
		n := readNode(&r)
		var partitions []int32
		for range r.ArrayLen() {
			partitions = append(partitions, r.Int32())
		}
		if !r.Ok() {
			break
		}
		a.add(n, partitions)
	}
	if !r.Ok() || version < userDataVersion {
		return nil, fmt.Errorf("assign: %d bytes of an assignment do not say who has what", len(b))
	}
	return a, nil
}
