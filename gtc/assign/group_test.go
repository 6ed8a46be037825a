package assign_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/kafka-gtc/kafka-gtc/gtc"
	"github.com/kafka-gtc/kafka-gtc/gtc/assign"
	"github.com/kafka-gtc/kafka-gtc/gtc/service"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/txnlog/topiclog"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	partitions     = 12
	sessionTimeout = 5 * time.Second // longer than a busy machine keeps a process waiting
)

// patience bounds what takes a second on an idle machine.
const patience = 3 * time.Minute

// home is a home cluster.
type home struct {
	cluster *kfake.Cluster
	addr    string
}

func newHome(t *testing.T) home {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.GroupMinSessionTimeout(100*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return home{c, c.ListenAddrs()[0]}
}

// node is one coordinator of the group.
type node struct {
	service.Node
	*service.Service
	group *assign.Group
	log   *topiclog.Log
	net   *network
	done  bool
}

type realClock struct{}

func (realClock) Now() time.Time                         { return time.Now() }
func (realClock) After(d time.Duration) <-chan time.Time { return time.After(d) }

func logger() zerolog.Logger {
	if testing.Verbose() {
		return zerolog.New(os.Stderr).Level(zerolog.InfoLevel)
	}
	return zerolog.New(io.Discard)
}

// nobody is an Owner that is given nothing.
type nobody struct{}

func (nobody) Own(...int32)    {}
func (nobody) Disown(...int32) {}

func TestASessionTimeoutThatTheHomeClusterRefusesIsNamed(t *testing.T) {
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, txnlog.Topic))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var log syncBuffer
	g, err := assign.New(assign.Options{
		ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.ListenAddrs()...)}, Node: service.Node{ID: 1, Host: "h", Port: 1},
		SessionTimeout: time.Second, Logger: zerolog.New(&log),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Join(nobody{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if text := log.String(); !strings.Contains(text, "group.min.session.timeout.ms") {
			return fmt.Errorf("logged %q", text)
		}
		return nil
	})
	if err := g.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func (h home) start(t *testing.T, id int32, change ...func(*service.Options)) *node {
	t.Helper()
	n := &node{Node: service.Node{ID: id, Host: fmt.Sprintf("gtc%d", id), Port: 9000 + id}, net: newNetwork()}
	log := logger().With().Int32("node", id).Logger()
	opts := []kgo.Opt{kgo.SeedBrokers(h.addr), kgo.Dialer(n.net.dial)}
	var err error
	n.log, err = topiclog.Open(t.Context(), topiclog.Options{
		ClientOpts: opts, Partitions: partitions, ReplicationFactor: 1, MinInsyncReplicas: 1, Create: true,
		NodeID: id, Host: n.Host, Logger: log, Clock: realClock{},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.group, err = assign.New(assign.Options{ClientOpts: opts, Node: n.Node, SessionTimeout: sessionTimeout, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	o := service.Options{
		Log: n.log, Participants: &participants{}, Config: gtc.DefaultConfig(), Logger: log, Membership: n.group,
		NodeID: n.ID, Host: n.Host, Port: n.Port, ScanInterval: 50 * time.Millisecond, ReloadBackoff: 50 * time.Millisecond,
	}
	for _, c := range change {
		c(&o)
	}
	if n.Service, err = service.New(o); err != nil {
		t.Fatal(err)
	}
	if err := n.group.Join(n); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.stop(t) })
	return n
}

// stop ends a node in an orderly way.
func (n *node) stop(t *testing.T) {
	t.Helper()
	if n.done {
		return
	}
	n.done = true
	n.net.thaw()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := n.group.Close(ctx); err != nil {
		t.Error(err)
	}
	if err := n.Close(ctx); err != nil {
		t.Error(err)
	}
	n.log.Close()
}

// members counts those of the nodes' group.
func (h home) members(t *testing.T) (n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(h.addr))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	groups, err := kadm.NewClient(cl).DescribeGroups(t.Context())
	if err = errors.Join(err, groups.Error()); err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		n += len(g.Members)
	}
	return n
}

// eventually polls until f says that all is well.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// idOf is a global transactional id of a partition.
func idOf(partition int32) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("id-%d", i); txnlog.PartitionFor(id, partitions) == partition {
			return id
		}
	}
}

// shared says what is wrong with: the nodes have loaded every partition, each
// exactly once, and all name the same coordinator for each, which has it.
func shared(nodes ...*node) error {
	total := 0
	for _, n := range nodes {
		active, owned := n.Loaded()
		if active != owned {
			return fmt.Errorf("node %d has loaded %d of its %d partitions", n.ID, active, owned)
		}
		total += owned
		if known := n.group.Nodes(); len(known) != len(nodes) {
			return fmt.Errorf("node %d knows the nodes %v, want %d", n.ID, known, len(nodes))
		}
	}
	if total != partitions {
		return fmt.Errorf("the nodes own %d partitions together, want %d", total, partitions)
	}
	for p := range int32(partitions) {
		owners := 0
		for _, n := range nodes {
			first, known := nodes[0].group.Owner(p)
			id, host, port, err := n.FindCoordinator("", "", idOf(p))
			if !known || err != nil || (service.Node{ID: id, Host: host, Port: port}) != first {
				return fmt.Errorf("node %d says that partition %d is at %d (%s:%d, %w), node %d says %v", n.ID, p, id, host, port, err, nodes[0].ID, first)
			}
			if id == n.ID && n.owns(p) {
				owners++
			}
		}
		if owners != 1 {
			return fmt.Errorf("partition %d has %d owners", p, owners)
		}
	}
	return nil
}

// owns asks the node itself, by a request for an id of the partition.
func (n *node) owns(p int32) bool {
	req := wireDescribe(idOf(p))
	return describeCode(n.Handle(context.Background(), "", "", req)) != notCoordinator
}

func owners(n *node) map[int32]int32 {
	of := make(map[int32]int32)
	for p := range int32(partitions) {
		if o, known := n.group.Owner(p); known {
			of[p] = o.ID
		}
	}
	return of
}

func TestNodesShareThePartitionsAndAgreeOnWhoHasWhat(t *testing.T) {
	h := newHome(t)
	one := h.start(t, 1)
	eventually(t, func() error { return shared(one) })
	two := h.start(t, 2)
	eventually(t, func() error { return shared(one, two) })
	before := owners(one)

	three := h.start(t, 3)
	eventually(t, func() error { return shared(one, two, three) })
	count := map[int32]int{}
	for p, owner := range owners(two) {
		count[owner]++
		if owner != 3 && owner != before[p] {
			t.Errorf("partition %d went from node %d to %d although node 3 came", p, before[p], owner)
		}
	}
	if count[1] != 4 || count[2] != 4 || count[3] != 4 {
		t.Errorf("the nodes have %v partitions, want 4 each", count)
	}

	before = owners(one)
	two.stop(t)
	// It has left the group, so nobody waits for its session to time out.
	if members := h.members(t); members != 2 {
		t.Errorf("a node has left in order, and the group has %d members, want 2", members)
	}
	eventually(t, func() error { return shared(one, three) })
	for p, owner := range owners(one) {
		if before[p] != 2 && owner != before[p] {
			t.Errorf("partition %d went from node %d to %d although node 2 left", p, before[p], owner)
		}
	}
}

func TestNobodyIsFencedWhenPartitionsMoveInOrder(t *testing.T) {
	h := newHome(t)
	one := h.start(t, 1)
	eventually(t, func() error { return shared(one) })
	two := h.start(t, 2)
	eventually(t, func() error { return shared(one, two) })
	one.stop(t)
	eventually(t, func() error { return shared(two) })
	for _, n := range []*node{one, two} {
		if got := fencedCount(t, n); got != 0 {
			t.Errorf("node %d was fenced %v times", n.ID, got)
		}
	}
}

func TestTheGroupCommitsNoOffsetAndReadsNoRecord(t *testing.T) {
	h := newHome(t)
	fetched := make(chan string, 1)
	h.cluster.ControlKey(int16(kmsg.OffsetCommit), func(kmsg.Request) (kmsg.Response, error, bool) {
		h.cluster.KeepControl()
		select {
		case fetched <- "an offset is committed":
		default:
		}
		return nil, nil, false
	})
	one := h.start(t, 1)
	eventually(t, func() error { return shared(one) })
	two := h.start(t, 2)
	eventually(t, func() error { return shared(one, two) })
	one.stop(t)
	two.stop(t)
	select {
	case what := <-fetched:
		t.Error(what)
	default:
	}
	for _, n := range []*node{one, two} {
		if got := n.net.fetchesOf("gtc-assign-"); got != 0 {
			t.Errorf("the group's client of node %d has sent %d Fetch", n.ID, got)
		}
		if n.net.fetchesOf("gtc-log-") == 0 {
			t.Error("the Fetch of the log are not counted, so neither are those of the group")
		}
	}
}
