package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/conformance/certs"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

const scramLogin = "org.apache.kafka.common.security.scram.ScramLoginModule required "

// guardedCluster is a mini-broker over TLS and SCRAM, with ACLs.
type guardedCluster struct {
	*process
	ca         *certs.Authority
	properties string
}

// passwords are long and strange, so that they are found wherever they turn up.
func passwordOf(user string) string { return "geheim-" + user + "-7f3a" }

// serveGuarded starts a process on a properties file, with everything logged.
func serveGuarded(t *testing.T, ca *certs.Authority, lines ...string) *guardedCluster {
	t.Helper()
	dir := t.TempDir()
	n := &guardedCluster{ca: ca, properties: filepath.Join(dir, "server.properties")}
	server := ca.Sign(t, pkix.Name{CommonName: "server"})
	lines = append(lines, "listeners=SASL_SSL://127.0.0.1:0", "sasl.enabled.mechanisms=SCRAM-SHA-256", "log.level=trace",
		"ssl.keystore.key="+escapeLines(server.Key), "ssl.keystore.certificate.chain="+escapeLines(server.Chain),
		"authorizer.class.name="+config.StandardAuthorizer, "super.users=User:admin")
	if err := os.WriteFile(n.properties, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	ready := filepath.Join(dir, "ready")
	n.process = start(t, n.properties, "--ready-file", ready)
	within(t, patience, func() error {
		select {
		case <-n.done:
			t.Fatal("ended before it served")
		default:
		}
		text, err := os.ReadFile(ready)
		n.addr = strings.TrimSpace(string(text))
		return err
	})
	return n
}

// escapeLines writes text of several lines as one of a properties file.
func escapeLines(text []byte) string { return strings.ReplaceAll(string(text), "\n", `\n`) }

func serveGuardedBroker(t *testing.T, ca *certs.Authority, users ...string) *guardedCluster {
	t.Helper()
	return serveGuarded(t, ca, "log.dirs="+t.TempDir(), optedIn, initialUsers(users...))
}

func initialUsers(users ...string) string {
	var credentials []string
	for _, u := range append(users, "admin") {
		credentials = append(credentials, "SCRAM-SHA-256=[name="+u+",password="+passwordOf(u)+"]")
	}
	return "sasl.scram.credentials=" + strings.Join(credentials, ";")
}

func (n *guardedCluster) tls() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(n.ca.PEM)
	return &tls.Config{RootCAs: pool}
}

func (n *guardedCluster) as(user string) []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(n.addr), kgo.SASL(scram.Auth{User: user, Pass: passwordOf(user)}.AsSha256Mechanism())}
}

// participant is the cluster to the client library, as alice.
func (n *guardedCluster) participant() client.Cluster {
	return client.Cluster{ClientOpts: n.as("alice"), Dialer: (&tls.Dialer{Config: n.tls()}).DialContext}
}

func (n *guardedCluster) clientAs(t *testing.T, user string, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(append(n.as(user), kgo.DialTLSConfig(n.tls()), kgo.MaxVersions(wire.Versions())), opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// grant is an ACL for every host.
type grant struct {
	user string
	on   kmsg.ACLResourceType
	name string
	ops  []kmsg.ACLOperation
}

// allow grants by literal names; a name that ends in a star is a prefix.
func (n *guardedCluster) allow(t *testing.T, grants ...grant) {
	t.Helper()
	allowBy(t, n.clientAs(t, "admin"), grants...)
}

func allowBy(t *testing.T, admin *kgo.Client, grants ...grant) {
	t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	for _, g := range grants {
		for _, op := range g.ops {
			c := kmsg.NewCreateACLsRequestCreation()
			c.ResourceType, c.ResourceName, c.ResourcePatternType = g.on, g.name, kmsg.ACLResourcePatternTypeLiteral
			if prefix, ok := strings.CutSuffix(g.name, "*"); ok {
				c.ResourceName, c.ResourcePatternType = prefix, kmsg.ACLResourcePatternTypePrefixed
			}
			c.Principal, c.Host, c.Operation, c.PermissionType = "User:"+g.user, "*", op, kmsg.ACLPermissionTypeAllow
			req.Creations = append(req.Creations, c)
		}
	}
	resp, err := req.RequestWith(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if r.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(r.ErrorCode), *r.ErrorMessage)
		}
	}
}

const (
	onTopic   = kmsg.ACLResourceTypeTopic
	onTxn     = kmsg.ACLResourceTypeTransactionalId
	onCluster = kmsg.ACLResourceTypeCluster
	onGroup   = kmsg.ACLResourceTypeGroup

	opRead            = kmsg.ACLOperationRead
	opWrite           = kmsg.ACLOperationWrite
	opCreate          = kmsg.ACLOperationCreate
	opAlter           = kmsg.ACLOperationAlter
	opDescribe        = kmsg.ACLOperationDescribe
	opDescribeConfigs = kmsg.ACLOperationDescribeConfigs
)

func ops(o ...kmsg.ACLOperation) []kmsg.ACLOperation { return o }

// clusterKeys are the client keys of a cluster, for the user gtc.
func (n *guardedCluster) clusterKeys(prefix string) []string {
	return []string{
		prefix + "bootstrap.servers=" + n.addr, prefix + "security.protocol=SASL_SSL",
		prefix + "ssl.truststore.certificates=" + escapeLines(n.ca.PEM), prefix + "sasl.mechanism=SCRAM-SHA-256",
		prefix + "sasl.jaas.config=" + scramLogin + `username="gtc" password="` + passwordOf("gtc") + `";`,
	}
}

// guardedWorld is two participants, a home cluster and a coordinator that has
// the rights of KIP.md's table on them and no others.
type guardedWorld struct {
	us, eu, home, gtc *guardedCluster
}

func newGuardedWorld(t *testing.T) *guardedWorld {
	t.Helper()
	w := &guardedWorld{}
	for _, n := range []**guardedCluster{&w.us, &w.eu} {
		*n = serveGuardedBroker(t, certs.New(t), "gtc", "alice")
		(*n).allow(
			t,
			grant{"gtc", onTxn, "pay-*", ops(opDescribe, opWrite)},
			grant{"gtc", onTopic, "orders", ops(opDescribe, opRead)},
			grant{"gtc", onTopic, "__consumer_offsets", ops(opDescribe)},
			grant{"gtc", onTopic, "__transaction_state", ops(opDescribe)},
			grant{"gtc", onCluster, acl.ClusterName, ops(opDescribeConfigs)},
			grant{"alice", onTxn, "pay-*", ops(opWrite)},
			grant{"alice", onTopic, "orders", ops(opWrite, opRead)},
		)
		if _, err := kadm.NewClient((*n).clientAs(t, "admin")).CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	w.home = serveGuardedBroker(t, certs.New(t), "gtc", "alice", "mallory", "ops")
	w.home.allow(
		t,
		grant{"gtc", onTopic, "__global_transaction_state", ops(opDescribe, opRead, opWrite, opDescribeConfigs, opCreate)},
		grant{"gtc", onTxn, "__gtc-*", ops(opWrite)},
		grant{"gtc", onGroup, "__gtc-coordinators", ops(opRead)},
		grant{"gtc", onCluster, acl.ClusterName, ops(opDescribe, opDescribeConfigs)},
		grant{"alice", onTxn, "pay-*", ops(opWrite, acl.TwoPhaseCommit)},
		grant{"mallory", onTxn, "mallory-*", ops(opWrite, acl.TwoPhaseCommit)},
		grant{"ops", onTxn, "pay-*", ops(opDescribe)},
		grant{"ops", onCluster, acl.ClusterName, ops(opAlter)},
	)
	lines := []string{
		"process.roles=gtc", "node.id=1", "gtc.clusters=us,eu", "global.transaction.scan.interval.ms=200",
		"global.transaction.state.log.num.partitions=2", "global.transaction.state.log.replication.factor=1",
		"global.transaction.state.log.min.isr=1", "global.transaction.acl.refresh.interval.ms=100",
	}
	lines = append(lines, w.home.clusterKeys("gtc.home.")...)
	lines = append(lines, w.us.clusterKeys("gtc.cluster.us.")...)
	lines = append(lines, w.eu.clusterKeys("gtc.cluster.eu.")...)
	w.gtc = serveGuarded(t, certs.New(t), lines...)
	return w
}

// open opens an id at the coordinator as a user, who is alice at the clusters.
func (w *guardedWorld) open(t *testing.T, user, id string) (*client.Client, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	return client.Open(ctx, client.Options{
		GlobalTransactionalID: id, Coordinator: []string{w.gtc.addr}, CoordinatorOpts: append(w.gtc.as(user), kgo.DialTLSConfig(w.gtc.tls())),
		Clusters: map[string]client.Cluster{"us": w.us.participant(), "eu": w.eu.participant()},
	})
}

func TestGlobalTransactionsOverTLSAndSCRAMWithACLs(t *testing.T) {
	w := newGuardedWorld(t)
	cl, err := w.open(t, "alice", "pay-1")
	if err != nil {
		t.Fatal(err)
	}
	txn, err := cl.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []string{"us", "eu"} {
		if err = txn.ProduceSync(t.Context(), c, &kgo.Record{Topic: "orders", Value: []byte("v")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// While it is open, nobody else can see or end it.
	w.strangers(t)
	result, err := txn.Commit(t.Context())
	if err != nil || result.Outcome != client.OutcomeCommitted {
		t.Fatalf("%+v, %v", result, err)
	}
	for _, c := range []*guardedCluster{w.us, w.eu} {
		reader := c.clientAs(t, "alice", kgo.ConsumeTopics("orders"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		records := reader.PollRecords(ctx, 1).Records()
		cancel()
		if len(records) != 1 || string(records[0].Value) != "v" {
			t.Errorf("read_committed shows %v", records)
		}
	}
	w.operator(t)
	w.rightTakenAway(t)
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
	w.noSecrets(t)
}

// One node of both roles: its own cluster takes part without a login of the
// coordinator's, and the ACLs are those of the embedded broker.
func TestANodeOfBothRolesObeysItsOwnACLs(t *testing.T) {
	n := serveGuarded(t, certs.New(t), "process.roles=broker,gtc", "log.dirs="+t.TempDir(), optedIn, initialUsers("alice", "mallory"),
		"global.transaction.state.log.num.partitions=1", "global.transaction.scan.interval.ms=200")
	n.allow(
		t,
		grant{"alice", onTxn, "pay-*", ops(opWrite, acl.TwoPhaseCommit)}, grant{"alice", onTopic, "orders", ops(opWrite)},
		grant{"mallory", onTxn, "pay-*", ops(opWrite)}, // and not TWO_PHASE_COMMIT
	)
	if _, err := kadm.NewClient(n.clientAs(t, "admin")).CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	open := func(user string) (*client.Client, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		return client.Open(ctx, client.Options{
			GlobalTransactionalID: "pay-1", Coordinator: []string{n.addr}, CoordinatorOpts: append(n.as(user), kgo.DialTLSConfig(n.tls())),
			Clusters: map[string]client.Cluster{"own": n.participant()},
		})
	}
	cl, err := open("alice")
	if err != nil {
		t.Fatal(err)
	}
	if result, err := write(t, cl, "orders", "v", "own").Commit(t.Context()); err != nil || result.Outcome != client.OutcomeCommitted {
		t.Errorf("%+v, %v", result, err)
	}
	if err := cl.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := open("mallory"); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		t.Errorf("without TWO_PHASE_COMMIT: %v", err)
	}
}

// strangers asks about alice's id in the name of somebody else.
func (w *guardedWorld) strangers(t *testing.T) {
	t.Helper()
	for _, n := range []*guardedCluster{w.us, w.eu, w.home, w.gtc} {
		cl, err := kgo.NewClient(kgo.SeedBrokers(n.addr), kgo.DialTLSConfig(n.tls()), kgo.RequestRetries(0),
			kgo.SASL(scram.Auth{User: "alice", Pass: "geheim-wrong"}.AsSha256Mechanism()))
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		if _, err := kadm.NewClient(cl).BrokerMetadata(t.Context()); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("a wrong password: %v", err)
		}
	}
	if _, err := w.open(t, "mallory", "pay-1"); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		t.Errorf("mallory opens alice's id: %v", err)
	}
	mallory := w.gtc.clientAs(t, "mallory").SeedBrokers()[0]
	end := wire.NewPtrEndGlobalTxnRequest()
	end.GlobalTransactionalID, end.Sequence, end.TimeoutMillis = "pay-1", 1, 1000
	if resp, err := mallory.Request(t.Context(), end); err != nil || resp.(*wire.EndGlobalTxnResponse).ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("EndGlobalTxn: %+v, %v", resp, err)
	}
	if resp, err := mallory.Request(t.Context(), wire.NewPtrListGlobalTransactionsRequest()); err != nil || len(resp.(*wire.ListGlobalTransactionsResponse).GlobalTransactions) != 0 {
		t.Errorf("ListGlobalTransactions: %+v, %v", resp, err)
	}
	find := wire.NewPtrFindCoordinatorRequest()
	find.CoordinatorKeys, find.CoordinatorType = []string{"pay-1"}, wire.CoordinatorTypeGlobalTransaction
	if resp, err := mallory.Request(t.Context(), find); err != nil || resp.(*wire.FindCoordinatorResponse).Coordinators[0].ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
		t.Errorf("FindCoordinator: %+v, %v", resp, err)
	}
	resolve := wire.NewPtrResolveGlobalTransactionRequest()
	resolve.GlobalTransactionalID = "pay-1"
	if resp, err := mallory.Request(t.Context(), resolve); err != nil || resp.(*wire.ResolveGlobalTransactionResponse).ErrorCode != kerr.ClusterAuthorizationFailed.Code {
		t.Errorf("ResolveGlobalTransaction: %+v, %v", resp, err)
	}
	// With an id of one's own the coordinator goes to no cluster that is not
	// configured, whatever the request names.
	init := wire.NewPtrInitGlobalTxnRequest()
	init.GlobalTransactionalID, init.TimeoutMillis, init.ClusterIDs, init.InstanceID = "mallory-1", 1000, []string{"127.0.0.1:1"}, [16]byte{1}
	if resp, err := mallory.Request(t.Context(), init); err != nil || resp.(*wire.InitGlobalTxnResponse).ErrorCode != wire.UnknownParticipant.Code {
		t.Errorf("InitGlobalTxn over a cluster that nobody has configured: %+v, %v", resp, err)
	}
}

func (w *guardedWorld) operator(t *testing.T) {
	t.Helper()
	op := w.gtc.clientAs(t, "ops").SeedBrokers()[0]
	resp, err := op.Request(t.Context(), wire.NewPtrListGlobalTransactionsRequest())
	if err != nil || len(resp.(*wire.ListGlobalTransactionsResponse).GlobalTransactions) != 1 {
		t.Errorf("the operator sees %+v, %v", resp, err)
	}
	resolve := wire.NewPtrResolveGlobalTransactionRequest()
	resolve.GlobalTransactionalID = "pay-1"
	if resp, err := op.Request(t.Context(), resolve); err != nil || resp.(*wire.ResolveGlobalTransactionResponse).ErrorCode != kerr.InvalidTxnState.Code {
		t.Errorf("nothing is to be resolved: %+v, %v", resp, err)
	}
	// The same by the command.
	bin := operatorsTool(t)
	commandConfig := func(lines ...string) string {
		file := filepath.Join(t.TempDir(), "client.properties")
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	access := []string{"security.protocol=SASL_SSL", "ssl.truststore.location=" + w.gtc.ca.File, "sasl.mechanism=SCRAM-SHA-256"}
	login := "sasl.jaas.config=" + scramLogin + `username="ops" password="` + passwordOf("ops") + `";`
	if out, ok := operator(t, bin, w.gtc.addr, "list", "--command-config", commandConfig(append(access, login)...)); !ok || !strings.Contains(out, "pay-1") {
		t.Errorf("list: %s", out)
	}
	for _, lines := range [][]string{access, append(access, "sasl.jaas.config=geheim"), append(access, login, "ssl.geheim=x")} {
		out, ok := operator(t, bin, w.gtc.addr, "list", "--command-config", commandConfig(lines...))
		if ok || !strings.Contains(out, "--command-config") || strings.Contains(out, "config=geheim") {
			t.Errorf("%q: %s", lines, out)
		}
	}
}

// rightTakenAway: what the home cluster says is in force after an interval.
func (w *guardedWorld) rightTakenAway(t *testing.T) {
	t.Helper()
	deny := kadm.NewACLs().Deny("User:alice").DenyHosts().ResourcePatternType(kadm.ACLPatternLiteral).TransactionalIDs("pay-1").Operations(kadm.OpWrite)
	if _, err := kadm.NewClient(w.home.clientAs(t, "admin")).CreateACLs(t.Context(), deny); err != nil {
		t.Fatal(err)
	}
	alice := w.gtc.clientAs(t, "alice").SeedBrokers()[0]
	within(t, patience, func() error {
		init := wire.NewPtrInitGlobalTxnRequest()
		init.GlobalTransactionalID, init.TimeoutMillis, init.ClusterIDs = "pay-1", 1000, []string{"x"}
		resp, err := alice.Request(t.Context(), init)
		if err == nil && resp.(*wire.InitGlobalTxnResponse).ErrorCode != kerr.TransactionalIDAuthorizationFailed.Code {
			err = fmt.Errorf("code %d after WRITE was denied", resp.(*wire.InitGlobalTxnResponse).ErrorCode)
		}
		return err
	})
}

// noSecrets searches what every node has logged, at its most talkative, and
// what it prints of its configuration (C-SEC-5).
func (w *guardedWorld) noSecrets(t *testing.T) {
	t.Helper()
	for name, n := range map[string]*guardedCluster{"us": w.us, "eu": w.eu, "home": w.home, "gtc": w.gtc} {
		print := exec.Command(os.Args[0], n.properties, "--print-config")
		print.Env = append(os.Environ(), "MINIBROKER=1")
		printed, err := print.CombinedOutput()
		if err != nil {
			t.Fatalf("%v: %s", err, printed)
		}
		within(t, patience, func() error { // the log comes by another way than the answers
			if !strings.Contains(n.logged(), "authentication failed") {
				return fmt.Errorf("%s has not logged its details", name)
			}
			return nil
		})
		log := n.logged()
		file, err := os.ReadFile(n.properties)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(file, []byte("geheim")) || !bytes.Contains(file, []byte("PRIVATE KEY")) || !bytes.Contains(printed, []byte(properties.Hidden)) {
			t.Errorf("%s: the search looks for what was never there", name)
		}
		for what, text := range map[string]string{"log": log, "configuration": string(printed)} {
			for _, secret := range []string{"geheim", "PRIVATE KEY", "BEGIN CERT"} {
				if i := strings.Index(text, secret); i >= 0 {
					t.Errorf("the %s of %s shows %q: %.200s", what, name, secret, text[max(0, i-80):])
				}
			}
		}
	}
}
