// Package rig starts the targets that the conformance suite of this repository
// is run against: mini-brokers as processes, real Kafka clusters, and nodes that
// are coordinators alone. What it hands over is what anybody writes into a
// properties file; the suite knows a target by that only.
package rig

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
	"github.com/kafka-gtc/kafka-gtc/conformance/proxy"
	"github.com/kafka-gtc/kafka-gtc/conformance/wrong"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// Options say what to start.
type Options struct {
	// Dir is for data, logs and the binary.
	Dir string
	// Minibroker is the binary of the nodes; built when empty.
	Minibroker string
	// Name is for the report.
	Name string
	// Subject, when it has an address, is the first participant, in place of a
	// mini-broker.
	Subject conformance.ParticipantTarget
	// Group is two nodes with the role gtc alone, whose log is at Home; by
	// default that is a mini-broker. Without Group one node keeps its own log.
	// SessionTimeout is that of a Group's membership, 6 s unless set: how long a
	// node stands still until the others take over, whether a case has frozen it
	// or the machine is busy.
	Group          bool
	Home           string
	SessionTimeout time.Duration
	// V4 gives the first participant transaction.version 1.
	V4 bool
	// Secure is SASL_SSL in place of SASL_PLAINTEXT at the coordinator, and at
	// the participants, between which and it the suite then cannot stand.
	Secure bool
	// Proof puts a wrong.Back between the coordinator and each of the first two
	// participants.
	Proof bool
}

// Rig is what runs.
type Rig struct {
	Target *conformance.Target
	// Backs are in the order of the participants, nil without Options.Proof.
	Backs []*wrong.Back

	o     Options
	login *login
	nodes []*node.Node
	backs []*proxy.Proxy
}

// How the coordinator is configured. A vote on a busy machine takes longer than
// on an idle one, and must not be taken for an unreachable participant.
const (
	scanInterval   = 250 * time.Millisecond
	requestTimeout = 6 * time.Second
	maxTimeout     = 15 * time.Minute
	maxIDs         = 2000
)

// Start starts all. Stop it, also after an error.
func Start(ctx context.Context, o Options) (*Rig, error) {
	r := &Rig{o: o}
	if r.o.Minibroker == "" {
		r.o.Minibroker = filepath.Join(o.Dir, "minibroker")
		if err := Build(ctx, r.o.Minibroker); err != nil {
			return r, err
		}
	}
	r.Target = &conformance.Target{
		Name: cmp.Or(o.Name, "mini-broker"), Principals: map[string]*conformance.Security{},
		Unreachable: "cluster-gone", Mismatch: "cluster-mismatch", Closed: "cluster-closed",
		ScanInterval: scanInterval, MaxTimeout: maxTimeout, RequestTimeout: requestTimeout, Expiration: 168 * time.Hour,
		MaxIDs: maxIDs,
	}
	var err error
	if r.login, err = newLogin(o); err != nil {
		return r, err
	}
	clusters, err := r.participants(ctx)
	if err != nil {
		return r, err
	}
	if o.Group {
		return r, r.group(ctx, clusters)
	}
	return r, r.single(ctx, clusters)
}

// Build compiles the mini-broker.
func Build(ctx context.Context, binary string) error {
	out, err := exec.CommandContext(ctx, "go", "build", "-o", binary, "github.com/kafka-gtc/kafka-gtc/broker/cmd/minibroker").CombinedOutput()
	if err != nil {
		return fmt.Errorf("rig: building the mini-broker: %w\n%s", err, out)
	}
	return nil
}

// Stop ends all.
func (r *Rig) Stop() {
	for i := len(r.nodes) - 1; i >= 0; i-- {
		if r.nodes[i].Process != nil {
			r.nodes[i].Stop()
		}
	}
	for _, p := range r.backs {
		p.Close()
	}
}

// participants starts the clusters, and returns the coordinator's properties
// that name them.
func (r *Rig) participants(ctx context.Context) ([]string, error) {
	subject := r.o.Subject
	if subject.Bootstrap == "" {
		n, err := r.broker(ctx, "us")
		if err != nil {
			return nil, err
		}
		subject = conformance.ParticipantTarget{Name: "us", Bootstrap: n.Addr}
		if r.o.V4 {
			if err = downgrade(ctx, n.Addr); err != nil {
				return nil, err
			}
		}
	}
	companion, err := r.broker(ctx, "eu")
	if err != nil {
		return nil, err
	}
	closed, err := r.broker(ctx, "closed", "transaction.max.timeout.ms=900000", "transaction.two.phase.commit.enable=false")
	if err != nil {
		return nil, err
	}
	r.Target.Plain = closed.Addr
	properties := []string{
		"gtc.clusters=us,eu,gone,mismatch,closed",
		"gtc.cluster.gone.cluster.id=cluster-gone", "gtc.cluster.gone.bootstrap.servers=" + r.freeAddr(ctx),
		"gtc.cluster.mismatch.cluster.id=cluster-mismatch", "gtc.cluster.mismatch.bootstrap.servers=" + closed.Addr,
		"gtc.cluster.closed.cluster.id=cluster-closed", "gtc.cluster.closed.bootstrap.servers=" + closed.Addr,
	}
	for i, p := range []conformance.ParticipantTarget{subject, {Name: "eu", Bootstrap: companion.Addr}} {
		if r.o.Secure {
			client, err := r.login.client("suite")
			if err != nil {
				return nil, err
			}
			p.Security = client
			prefix := "gtc.cluster." + p.Name + "."
			properties = append(properties, prefix+"bootstrap.servers="+p.Bootstrap)
			properties = append(properties, r.login.properties(prefix, "suite")...)
			r.Target.Participants = append(r.Target.Participants, p)
			continue
		}
		p.Via = r.freeAddr(ctx)
		at := p.Via
		if r.o.Proof {
			back := wrong.NewBack()
			px, err := proxy.Listen(ctx, "127.0.0.1:0", p.Via, back.Hooks())
			if err != nil {
				return nil, err
			}
			at, r.backs, r.Backs = px.Addr(), append(r.backs, px), append(r.Backs, back)
		}
		properties = append(properties, fmt.Sprintf("gtc.cluster.%s.bootstrap.servers=%s", []string{"us", "eu"}[i], at))
		r.Target.Participants = append(r.Target.Participants, p)
	}
	return properties, nil
}

// broker starts a cluster that has opted in both ways unless more says
// otherwise. It keeps its data in memory.
func (r *Rig) broker(ctx context.Context, name string, more ...string) (*node.Node, error) {
	addr := r.freeAddr(ctx)
	listener := []string{"listeners=PLAINTEXT://" + addr}
	if more == nil {
		more = []string{"transaction.max.timeout.ms=2147483647", "transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true"}
		if r.o.Secure {
			var err error
			if listener, err = r.login.listener(addr); err != nil {
				return nil, err
			}
		}
	}
	return r.start(ctx, name, addr, slices.Concat([]string{
		"process.roles=broker", "cluster.id=cluster-" + name, "log.dirs=", "auto.create.topics.enable=false",
	}, listener, more))
}

func (r *Rig) start(ctx context.Context, name, addr string, properties []string) (*node.Node, error) {
	n, err := node.New(r.o.Minibroker, r.o.Dir, name, addr, properties)
	if err != nil {
		return nil, err
	}
	r.nodes = append(r.nodes, n)
	return n, n.Start(context.WithoutCancel(ctx))
}

// downgrade gives a cluster transaction.version 1.
func downgrade(ctx context.Context, addr string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis = 10_000
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	const unsafeDowngrade = 3
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = "transaction.version", 1, unsafeDowngrade, true
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	resp, err := req.RequestWith(ctx, cl)
	if err == nil {
		err = kerr.ErrorForCode(resp.ErrorCode)
	}
	if err != nil {
		return fmt.Errorf("rig: transaction.version 1: %w", err)
	}
	return nil
}

// coordinator are the properties of every coordinator.
func coordinator() []string {
	return []string{
		fmt.Sprintf("global.transaction.scan.interval.ms=%d", scanInterval.Milliseconds()),
		fmt.Sprintf("global.transaction.participant.request.timeout.ms=%d", requestTimeout.Milliseconds()),
		fmt.Sprintf("global.transaction.max.timeout.ms=%d", maxTimeout.Milliseconds()),
		fmt.Sprintf("global.transactional.ids.max.per.partition=%d", maxIDs),
		"global.transaction.retry.backoff.max.ms=200", "global.transaction.state.log.num.partitions=4",
	}
}

// single is one node that is broker and coordinator, with access control.
func (r *Rig) single(ctx context.Context, clusters []string) error {
	addr, metrics := r.freeAddr(ctx), r.freeAddr(ctx)
	for _, name := range users {
		s, err := r.login.client(name)
		if err != nil {
			return err
		}
		if r.Target.Principals[name] = s; name == "suite" {
			r.Target.Security, r.Target.HomeSecurity = s, s
			delete(r.Target.Principals, name)
		}
	}
	listener, err := r.login.listener(addr)
	if err != nil {
		return err
	}
	n, err := r.start(ctx, "gtc", addr, slices.Concat(coordinator(), clusters, listener, []string{
		"process.roles=broker,gtc", "log.dirs=" + filepath.Join(r.o.Dir, "gtc"), "cluster.id=cluster-home",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:suite",
		"metrics.listener=" + metrics,
	}))
	if err != nil {
		return err
	}
	r.Target.Bootstrap, r.Target.Home, r.Target.Metrics = addr, addr, "http://"+metrics+"/metrics"
	r.Target.Nodes = []conformance.NodeTarget{r.actions(n)}
	return r.grant(ctx)
}

// grant gives the principals of the suite their rights.
func (r *Rig) grant(ctx context.Context) error {
	cl, err := kgo.NewClient(append(r.Target.Security.ClientOpts(), kgo.SeedBrokers(r.Target.Bootstrap))...)
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, b := range []*kadm.ACLBuilder{
		kadm.NewACLs().TransactionalIDs("conformance-").ResourcePatternType(kadm.ACLPatternPrefixed).Allow("User:reader", "User:operator").Operations(kadm.OpDescribe),
		kadm.NewACLs().Clusters().ResourcePatternType(kadm.ACLPatternLiteral).Allow("User:operator").Operations(kadm.OpAlter),
	} {
		b.AllowHosts("*")
		got, err := kadm.NewClient(cl).CreateACLs(ctx, b)
		if err == nil {
			for _, g := range got {
				err = cmp.Or(err, g.Err)
			}
		}
		if err != nil {
			return fmt.Errorf("rig: ACLs: %w", err)
		}
	}
	return nil
}

// group is two nodes that are coordinators alone.
func (r *Rig) group(ctx context.Context, clusters []string) error {
	if r.o.Home == "" {
		home, err := r.broker(ctx, "home")
		if err != nil {
			return err
		}
		r.o.Home = home.Addr
	}
	r.Target.Home = r.o.Home
	var bootstrap []string
	for _, id := range []string{"1", "2"} {
		addr := r.freeAddr(ctx)
		n, err := r.start(ctx, "gtc-"+id, addr, append(append(coordinator(), clusters...),
			"process.roles=gtc", "node.id="+id, "listeners=PLAINTEXT://"+addr, "gtc.home.bootstrap.servers="+r.o.Home,
			fmt.Sprintf("global.transaction.coordinator.session.timeout.ms=%d", cmp.Or(r.o.SessionTimeout, 6*time.Second).Milliseconds()),
			"global.transaction.state.log.replication.factor=1", "global.transaction.state.log.min.isr=1"))
		if err != nil {
			return err
		}
		bootstrap = append(bootstrap, addr)
		r.Target.Nodes = append(r.Target.Nodes, r.actions(n))
	}
	r.Target.Bootstrap = strings.Join(bootstrap, ",")
	return r.shared(ctx, bootstrap)
}

// shared waits until both nodes have their part of the log and each knows it:
// while the second one joins, partitions move, and no case is about that.
func (r *Rig) shared(ctx context.Context, nodes []string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(nodes...), kgo.MaxVersions(wire.Versions()))
	if err != nil {
		return err
	}
	defer cl.Close()
	find := wire.NewPtrFindCoordinatorRequest()
	find.CoordinatorType = wire.CoordinatorTypeGlobalTransaction
	for i := range 100 { // twice as many as there are partitions
		find.CoordinatorKeys = append(find.CoordinatorKeys, fmt.Sprint("rig-", i))
	}
	all := func() error {
		for _, seed := range cl.SeedBrokers() {
			resp, askErr := find.RequestWith(ctx, seed)
			if askErr != nil {
				return askErr
			}
			owners := make(map[int32]int)
			for _, c := range resp.Coordinators {
				owners[c.NodeID]++
			}
			if len(owners) != len(nodes) || owners[-1] > 0 {
				return fmt.Errorf("the owners of %d ids by node are %v", len(find.CoordinatorKeys), owners)
			}
			// A list needs every partition of the node to be loaded.
			list, askErr := wire.NewPtrListGlobalTransactionsRequest().RequestWith(ctx, seed)
			if askErr == nil {
				askErr = wire.ErrorForCode(list.ErrorCode)
			}
			if askErr != nil {
				return askErr
			}
		}
		return nil
	}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
		if err = all(); err == nil || time.Now().After(deadline) || ctx.Err() != nil {
			return err
		}
	}
}

func (r *Rig) actions(n *node.Node) conformance.NodeTarget {
	signal := func(s syscall.Signal) conformance.Action {
		return func(context.Context) error { return n.Signal(s) }
	}
	return conformance.NodeTarget{
		Name:  n.Name,
		Kill:  func(context.Context) error { return n.Kill() },
		Start: func(ctx context.Context) error { return n.Start(context.WithoutCancel(ctx)) },
		Pause: signal(syscall.SIGSTOP), Resume: signal(syscall.SIGCONT),
	}
}

// ports are given out one after the other, so that no two rigs of a process get
// the same one. They stay below those that systems give to outgoing
// connections, one of which could sit on it before the node does.
var ports atomic.Uint32

// Processes that start one after the other begin in different places.
func init() { ports.Store(uint32(time.Now().UnixMicro() % 10_000)) }

func (r *Rig) freeAddr(ctx context.Context) string {
	for {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+ports.Add(1)%10_000)
		if ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr); err == nil {
			_ = ln.Close()
			return addr
		}
	}
}
