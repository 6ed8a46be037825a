//go:build kafka

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/conformance/cluster"
	"github.com/kafka-gtc/kafka-gtc/gtc/client"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// kafkaHome is an Apache Kafka with users and ACLs: at one address everybody is
// a super user, at the other everybody has to log in.
type kafkaHome struct{ open, guarded string }

func newKafkaHome(t *testing.T) kafkaHome {
	t.Helper()
	guarded := freeAddr(t)
	p := cluster.V44
	p.Config = append(p.Config[:len(p.Config):len(p.Config)],
		"listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://"+guarded+",CONTROLLER://127.0.0.1:{controller.port}",
		"advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL_PLAINTEXT://"+guarded,
		"listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
		"listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "+
			`user_gtc="gtc-secret" user_alice="alice-secret";`,
		"listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"connections.max.reauth.ms=60000",
		"authorizer.class.name="+config.StandardAuthorizer, "super.users=User:ANONYMOUS")
	_ = (&cluster.Cluster{Name: "guarded"}).Down(t.Context()) // of a run that was killed
	c := cluster.Up(t, "guarded", p)
	t.Cleanup(func() {
		if err := c.Down(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return kafkaHome{open: c.Bootstrap, guarded: guarded}
}

// A node that is gtc alone in front of Apache Kafka: Kafka says who a client
// is, and by Kafka's ACLs the node says what he may do.
func TestKafkaAuthenticatesAndItsACLsAreObeyed(t *testing.T) {
	home := newKafkaHome(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(home.open))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	adm := kadm.NewClient(cl)
	if _, err = adm.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{"alice", "mallory"} {
		if _, err = adm.AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{User: u, Mechanism: kadm.ScramSha256, Iterations: 8192, Password: u + "-secret"}}); err != nil {
			t.Fatal(err)
		}
	}
	grants := []grant{
		{"gtc", onTopic, "__global_transaction_state", ops(opDescribe, opRead, opWrite, opDescribeConfigs, opCreate)},
		{"gtc", onTxn, "__gtc-*", ops(opWrite)},
		{"gtc", onGroup, "__gtc-coordinators", ops(opRead)},
		{"gtc", onCluster, acl.ClusterName, ops(opDescribe, opDescribeConfigs)},
		{"gtc", onTxn, "pay-*", ops(opDescribe, opWrite)},
		{"gtc", onTopic, "orders", ops(opDescribe, opRead)},
		{"gtc", onTopic, "__consumer_offsets", ops(opDescribe)},
		{"gtc", onTopic, "__transaction_state", ops(opDescribe)},
		{"alice", onTxn, "pay-*", ops(opWrite, acl.TwoPhaseCommit)},
		{"alice", onTopic, "orders", ops(opWrite)},
		{"mallory", onTxn, "mallory-*", ops(opWrite)},
	}
	allowBy(t, cl, grants...)
	awaitACLs(t, adm, grants)
	login := `sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required username="gtc" password="gtc-secret";`
	lines := []string{
		"process.roles=gtc", "node.id=1", "listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"authorizer.class.name=" + config.StandardAuthorizer, "global.transaction.acl.refresh.interval.ms=100",
		"global.transaction.state.log.num.partitions=1", "global.transaction.state.log.replication.factor=1", "global.transaction.state.log.min.isr=1",
		"gtc.clusters=us",
	}
	for _, prefix := range []string{"gtc.home.", "gtc.cluster.us."} {
		lines = append(lines, prefix+"bootstrap.servers="+home.guarded, prefix+"security.protocol=SASL_PLAINTEXT", prefix+"sasl.mechanism=PLAIN", prefix+login)
	}
	dir := t.TempDir()
	properties, ready := filepath.Join(dir, "server.properties"), filepath.Join(dir, "ready")
	if err = os.WriteFile(properties, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	node := start(t, properties, "--ready-file", ready, "--log-level", "debug")
	within(t, patience, func() error {
		text, err := os.ReadFile(ready)
		node.addr = strings.TrimSpace(string(text))
		return err
	})

	for name, m := range map[string]sasl.Mechanism{
		"PLAIN": plain.Auth{User: "alice", Pass: "alice-secret"}.AsMechanism(),
		"SCRAM": scram.Auth{User: "alice", Pass: "alice-secret"}.AsSha256Mechanism(), // with 8192 iterations
	} {
		commitOverKafka(t, home, node.addr, name, m)
	}
	for name, m := range map[string]sasl.Mechanism{
		"PLAIN": plain.Auth{User: "alice", Pass: "guess"}.AsMechanism(), "SCRAM": scram.Auth{User: "alice", Pass: "guess"}.AsSha256Mechanism(),
		"nobody": scram.Auth{User: "nobody", Pass: "guess"}.AsSha256Mechanism(), "PLAIN by another": plain.Auth{User: "mallory", Pass: "mallory-secret"}.AsMechanism(),
	} {
		within(t, patience, func() error {
			code, err := listAs(t, node.addr, m)
			if err == nil {
				t.Fatalf("%s: let in, code %d", name, code)
			}
			if !errors.Is(err, kerr.SaslAuthenticationFailed) {
				return fmt.Errorf("%s: %w, want SASL_AUTHENTICATION_FAILED", name, err)
			}
			return nil
		})
	}
	mallory := scram.Auth{User: "mallory", Pass: "mallory-secret"}.AsSha256Mechanism()
	for id, want := range map[string]*kerr.Error{"pay-PLAIN": kerr.TransactionalIDAuthorizationFailed, "mallory-1": kerr.TransactionalIDAuthorizationFailed} {
		// Of his own id he has WRITE and not TWO_PHASE_COMMIT.
		init := wire.NewPtrInitGlobalTxnRequest()
		init.GlobalTransactionalID, init.TimeoutMillis, init.ClusterIDs = id, 1000, []string{"x"}
		var resp kmsg.Response
		within(t, patience, func() (err error) {
			resp, err = clientOf(t, node.addr, mallory).SeedBrokers()[0].Request(t.Context(), init)
			return err
		})
		if resp.(*wire.InitGlobalTxnResponse).ErrorCode != want.Code {
			t.Errorf("mallory opens %s: %+v", id, resp)
		}
	}
	if log := node.logged(); strings.Contains(log, "-secret") || strings.Contains(log, "guess") {
		t.Error("the log shows a password")
	}
}

// awaitACLs waits until the broker has the ACLs, and so all that was written
// before them: the controller answers before the broker knows.
func awaitACLs(t *testing.T, adm *kadm.Client, grants []grant) {
	t.Helper()
	want := 0
	for _, g := range grants {
		want += len(g.ops)
	}
	within(t, patience, func() error {
		any := kadm.NewACLs().AnyResource().ResourcePatternType(kadm.ACLPatternAny).Operations().Allow().AllowHosts().Deny().DenyHosts()
		results, err := adm.DescribeACLs(t.Context(), any)
		if err != nil {
			return err
		}
		n := 0
		for _, r := range results {
			if r.Err != nil {
				return r.Err
			}
			n += len(r.Described)
		}
		if n < want {
			return fmt.Errorf("%d ACLs, want %d", n, want)
		}
		return nil
	})
}

func clientOf(t *testing.T, addr string, m sasl.Mechanism) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.SASL(m), kgo.MaxVersions(wire.Versions()), kgo.RequestRetries(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func listAs(t *testing.T, addr string, m sasl.Mechanism) (int16, error) {
	t.Helper()
	resp, err := clientOf(t, addr, m).SeedBrokers()[0].Request(t.Context(), wire.NewPtrListGlobalTransactionsRequest())
	if err != nil {
		return 0, err
	}
	return resp.(*wire.ListGlobalTransactionsResponse).ErrorCode, nil
}

// commitOverKafka runs one global transaction as alice.
func commitOverKafka(t *testing.T, home kafkaHome, gtc, name string, m sasl.Mechanism) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cl, err := client.Open(ctx, client.Options{
		GlobalTransactionalID: "pay-" + name, Coordinator: []string{gtc}, CoordinatorOpts: []kgo.Opt{kgo.SASL(m)},
		Clusters: map[string]client.Cluster{"us": {ClientOpts: []kgo.Opt{kgo.SeedBrokers(home.guarded), kgo.SASL(m)}}},
	})
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	defer func() { _ = cl.Close(context.WithoutCancel(ctx)) }()
	txn := write(t, cl, "orders", name, "us")
	if result, err := txn.Commit(ctx); err != nil || result.Outcome != client.OutcomeCommitted {
		t.Fatalf("%s: %+v, %v", name, result, err)
	}
}
