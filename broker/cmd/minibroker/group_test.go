package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/txnlog"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// groupSession is longer than a busy machine keeps a process waiting; the
// shortest that Kafka allows by default is 6 seconds.
const groupSession = 10 * time.Second

// groupPartitions is small, so that a take-over on a busy machine is about the
// take-over.
const groupPartitions = 4

// gtcNode is a process with process.roles=gtc.
type gtcNode struct {
	*process
	port    int32
	metrics string // its address
	cl      *kgo.Client
}

// startNode starts a node of the group over the home cluster.
func startNode(t *testing.T, id int, home string, clusters map[string]participantCluster, args ...string) *gtcNode {
	t.Helper()
	ready := filepath.Join(t.TempDir(), "ready")
	settings := []string{
		"process.roles=gtc", "node.id=" + strconv.Itoa(id), "listeners=PLAINTEXT://127.0.0.1:0", "metrics.listener=127.0.0.1:0",
		"gtc.home.bootstrap.servers=" + home, "gtc.clusters=us,eu", "global.transaction.scan.interval.ms=200",
		"global.transaction.coordinator.session.timeout.ms=" + strconv.Itoa(int(groupSession.Milliseconds())),
		"global.transaction.state.log.num.partitions=" + strconv.Itoa(groupPartitions),
		"global.transaction.state.log.replication.factor=1", "global.transaction.state.log.min.isr=1",
	}
	for alias, c := range clusters {
		settings = append(settings, "gtc.cluster."+alias+".bootstrap.servers="+c.addr)
	}
	args = append(args, "--ready-file", ready)
	for _, s := range settings {
		args = append(args, "--override", s)
	}
	n := &gtcNode{process: start(t, args...)}
	// The file and the log are two ways, of which either may be the later.
	within(t, patience, func() error {
		text, err := os.ReadFile(ready)
		if err != nil {
			return err
		}
		line := regexp.MustCompile(`"address":"([^"]*)","[^\n]*metrics under`).FindStringSubmatch(n.logged())
		if line == nil {
			return errors.New("no metrics address in the log")
		}
		n.addr, n.metrics = strings.TrimSpace(string(text)), line[1]
		return nil
	})
	_, port, err := net.SplitHostPort(n.addr)
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseInt(port, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	n.port = int32(number)
	if n.cl, err = kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.MaxVersions(wire.Versions())); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.cl.Close)
	return n
}

// within polls until f succeeds.
func within(t *testing.T, limit time.Duration, f func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(limit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if err = f(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// ask sends one request to this very node.
func ask[R kmsg.Response](n *gtcNode, req kmsg.Request) (resp R, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	got, err := n.cl.SeedBrokers()[0].Request(ctx, req)
	if err != nil {
		return resp, err
	}
	return got.(R), nil
}

// coordinatorOf is the port of the node that n names for an id.
func (n *gtcNode) coordinatorOf(id string) (int32, error) {
	req := wire.NewPtrFindCoordinatorRequest()
	req.CoordinatorType, req.CoordinatorKeys = wire.CoordinatorTypeGlobalTransaction, []string{id}
	resp, err := ask[*wire.FindCoordinatorResponse](n, req)
	if err != nil {
		return 0, err
	}
	c := resp.Coordinators[0]
	if err := wire.ErrorForCode(c.ErrorCode); err != nil {
		return 0, err
	}
	return c.Port, nil
}

// stateOf is what the node itself knows of an id.
func (n *gtcNode) stateOf(id string) (string, error) {
	req := wire.NewPtrDescribeGlobalTransactionsRequest()
	req.GlobalTransactionalIDs = []string{id}
	resp, err := ask[*wire.DescribeGlobalTransactionsResponse](n, req)
	if err != nil {
		return "", err
	}
	one := resp.GlobalTransactions[0]
	return one.State, wire.ErrorForCode(one.ErrorCode)
}

// shares says what is wrong with: all nodes name the same coordinator for
// every partition, and each has its share.
func shares(nodes ...*gtcNode) error {
	count := make(map[int32]int)
	for p := range int32(groupPartitions) {
		id := idIn(p, "probe")
		for i, n := range nodes {
			port, err := n.coordinatorOf(id)
			if err != nil {
				return err
			}
			if first, _ := nodes[0].coordinatorOf(id); port != first {
				return fmt.Errorf("node %d says that partition %d is at %d, node 0 says %d", i, p, port, first)
			}
			if i == 0 {
				count[port]++
			}
		}
	}
	for i, n := range nodes {
		if count[n.port] != groupPartitions/len(nodes) {
			return fmt.Errorf("node %d has %d partitions of %v", i, count[n.port], count)
		}
	}
	return nil
}

// idIn is a global transactional id of a partition.
func idIn(partition int32, prefix string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", prefix, i); txnlog.PartitionFor(id, groupPartitions) == partition {
			return id
		}
	}
}

// idOf is an id that a node coordinates.
func (n *gtcNode) idOf(t *testing.T) string {
	t.Helper()
	var mine string
	within(t, patience, func() error {
		for p := range int32(groupPartitions) {
			id := idIn(p, uniqueID(t))
			port, err := n.coordinatorOf(id)
			if err != nil {
				return err
			}
			if port == n.port {
				mine = id
				return nil
			}
		}
		return fmt.Errorf("the node at %s coordinates nothing", n.addr)
	})
	return mine
}

// scrape gives the samples of the node's metrics.
func (n *gtcNode) scrape(t *testing.T) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + n.metrics + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(resp.Body)
	if err = errors.Join(err, resp.Body.Close()); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %v", resp.Status, err)
	}
	samples := make(map[string]float64)
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok && name != "#" {
			v, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			samples[name] = v
		}
	}
	return samples
}

func openOver(t *testing.T, nodes []*gtcNode, id string, clusters map[string]participantCluster, change func(*client.Options)) *client.Client {
	t.Helper()
	o := client.Options{GlobalTransactionalID: id, Clusters: map[string]client.Cluster{}}
	for _, n := range nodes {
		o.Coordinator = append(o.Coordinator, n.addr)
	}
	for alias, c := range clusters {
		o.Clusters[alias] = client.Cluster{ClientOpts: []kgo.Opt{kgo.SeedBrokers(c.addr)}}
	}
	change(&o)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := client.Open(ctx, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		_ = cl.Close(ctx)
	})
	return cl
}

type committed struct {
	result client.Result
	err    error
	at     time.Time
}

// commitLater commits while the test goes on.
func commitLater(txn *client.Txn) <-chan committed {
	done := make(chan committed, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
		defer cancel()
		r, err := txn.Commit(ctx)
		done <- committed{r, err, time.Now()}
	}()
	return done
}

// stopped waits until the kernel shows the process as stopped.
func (n *gtcNode) stopped(t *testing.T) {
	t.Helper()
	stat := fmt.Sprintf("/proc/%d/stat", n.cmd.Process.Pid)
	within(t, patience, func() error {
		text, err := os.ReadFile(stat)
		if err == nil && !strings.Contains(string(text), ") T ") {
			err = errors.New("node 1 has not stopped yet")
		}
		return err
	})
}

// groupOfTwo are two nodes, the first of which stops at a point, and a
// transaction of an id of its, written to both clusters.
type groupOfTwo struct {
	clusters map[string]participantCluster
	one, two *gtcNode
	id       string
	topic    string
	outcome  <-chan committed
}

func stopOwnerAt(t *testing.T, point string, change func(*client.Options)) *groupOfTwo {
	t.Helper()
	home := embeddedCluster(t)
	g := &groupOfTwo{clusters: twoEmbedded(t)}
	g.topic = newTopic(t, g.clusters)
	g.one = startNode(t, 1, home.addr, g.clusters, "--stop-at", point)
	g.two = startNode(t, 2, home.addr, g.clusters)
	within(t, patience, func() error { return shares(g.one, g.two) })
	g.id = g.one.idOf(t)
	cl := openOver(t, []*gtcNode{g.two, g.one}, g.id, g.clusters, change)
	g.outcome = commitLater(write(t, cl, g.topic, "v", "us", "eu"))
	g.one.stopped(t)
	began := time.Now()
	within(t, patience, func() error { _, err := g.two.stateOf(g.id); return err })
	t.Logf("taken over %v after node 1 had stopped, session timeout %v", time.Since(began), groupSession)
	return g
}

// wakeUp lets node 1 go on, until it knows that its partitions are gone.
func (g *groupOfTwo) wakeUp(t *testing.T) {
	t.Helper()
	g.one.signal(t, syscall.SIGCONT)
	within(t, patience, func() error { return shares(g.one, g.two) })
}

func (g *groupOfTwo) visible(t *testing.T, want ...string) {
	t.Helper()
	for name, c := range g.clusters {
		if got := visibleOn(t, c, g.topic); !slices.Equal(got, want) {
			t.Errorf("%s shows %v, want %v", name, got, want)
		}
	}
}

// Case 22 with processes: SIGSTOP between the vote and the append.
func TestACoordinatorStoppedBeforeItsAppendIsFencedWhenItWakesUp(t *testing.T) {
	g := stopOwnerAt(t, "append-prepare-commit/before", func(o *client.Options) {
		// So long does the client wait for node 1, so that node 2 hears of
		// the transaction by its scan alone.
		o.AskTimeout, o.TransactionTimeout = 2*patience, 4*time.Second // in which it writes
	})
	within(t, patience, func() error {
		if state, err := g.two.stateOf(g.id); err != nil || state != "CompleteAbort" {
			return fmt.Errorf("node 2 has it %s (%w), want CompleteAbort by the session's timeout", state, err)
		}
		return nil
	})
	g.wakeUp(t)
	told := <-g.outcome
	if !errors.As(told.err, new(*client.AbortedError)) {
		t.Errorf("the client is told %+v, %v, want that it was aborted", told.result, told.err)
	}
	g.visible(t)
	metrics := g.one.scrape(t)
	if metrics["gtc_log_fenced_total"] == 0 {
		t.Error("the log has not refused node 1")
	}
	for name, v := range metrics {
		if strings.HasPrefix(name, "gtc_end_txn_attempts_total") && v > 0 {
			t.Errorf("node 1 has sent EndTxn: %s is %v", name, v)
		}
	}
	if fenced := g.two.scrape(t)["gtc_log_fenced_total"]; fenced != 0 {
		t.Errorf("node 1 has taken the partition from node 2, which was fenced %v times", fenced)
	}
}

// Case 22, other half: SIGSTOP after the append. The client learns of the
// commit from node 2 while node 1 still stands.
func TestACoordinatorStoppedAfterItsAppendHasDecided(t *testing.T) {
	g := stopOwnerAt(t, "append-prepare-commit/after", func(o *client.Options) { o.AskTimeout = time.Second })
	told := <-g.outcome
	if told.err != nil || told.result.Outcome != client.OutcomeCommitted {
		t.Errorf("the client is told %+v, %v", told.result, told.err)
	}
	g.visible(t, "v")
	g.wakeUp(t)
	g.visible(t, "v")
	if fenced := g.two.scrape(t)["gtc_log_fenced_total"]; fenced != 0 {
		t.Errorf("node 1 has taken the partition from node 2, which was fenced %v times", fenced)
	}
}

// A client of Kafka's protocol that takes any node for a bootstrap server sees
// all of them, and is told at once what none of them does.
func TestEveryNodeShowsAllNodesToAnyClient(t *testing.T) {
	home := embeddedCluster(t)
	clusters := twoEmbedded(t)
	one, two := startNode(t, 1, home.addr, clusters), startNode(t, 2, home.addr, clusters)
	within(t, patience, func() error { return shares(one, two) })
	for _, n := range []*gtcNode{one, two} {
		cl := n.client(t, kgo.MaxVersions(wire.Versions()))
		meta, err := kadm.NewClient(cl).Metadata(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ports := map[int32]int32{}
		for _, b := range meta.Brokers {
			ports[b.NodeID] = b.Port
		}
		if len(ports) != 2 || ports[1] != one.port || ports[2] != two.port {
			t.Errorf("the node at %s shows %v", n.addr, ports)
		}
		for id := range ports {
			if _, err = cl.Broker(int(id)).Request(t.Context(), wire.NewPtrListGlobalTransactionsRequest()); err != nil {
				t.Errorf("asking node %d: %v", id, err)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		_, err = kadm.NewClient(cl).ListGroups(ctx)
		cancel()
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a coordinator is asked for groups: %v", err)
		}
	}
	one.signal(t, syscall.SIGTERM)
	if code := one.exit(t); code != 0 {
		t.Errorf("exit code %d", code)
	}
	// It has left the group before it ends, so nobody waits for its session.
	groups, err := kadm.NewClient(kgoClient(t, home.addr)).DescribeGroups(t.Context())
	if err == nil {
		err = groups.Error()
	}
	if err != nil || len(groups.Sorted()) != 1 || len(groups.Sorted()[0].Members) != 1 {
		t.Errorf("a node that leaves in order is a member still: %+v, %v", groups, err)
	}
	within(t, patience, func() error { return shares(two) })
}
