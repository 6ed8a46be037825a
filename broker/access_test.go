package broker_test

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rs/zerolog"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/conformance/certs"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// guarded is a broker over SCRAM with access control.
var guarded = []string{
	"listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=SCRAM-SHA-256", withAuthorizer, "super.users=User:admin",
	"sasl.scram.credentials=SCRAM-SHA-256=[name=admin,password=admin-secret];SCRAM-SHA-256=[name=alice,password=alice-secret];SCRAM-SHA-256=[name=mallory,password=m]",
}

var asAdmin, asAlice, asMallory = asScram256("admin", "admin-secret"), asScram256("alice", "alice-secret"), asScram256("mallory", "m")

func allowAlice(t *testing.T, n *secureNode, b *kadm.ACLBuilder) {
	t.Helper()
	results, err := kadm.NewClient(n.client(t, 0, asAdmin)).CreateACLs(t.Context(), b.Allow("User:alice").AllowHosts())
	if err == nil {
		for _, r := range results {
			err = errors.Join(err, r.Err)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

func TestOrdinaryRequestsAreDeniedWithKafkasCodes(t *testing.T) {
	n := startSecure(t, guarded)
	admin := kadm.NewClient(n.client(t, 0, asAdmin))
	if _, err := admin.CreateTopic(t.Context(), 1, 1, nil, "orders"); err != nil {
		t.Fatal(err)
	}
	literal := func() *kadm.ACLBuilder { return kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral) }
	allowAlice(t, n, literal().Topics("orders").Operations(kadm.OpRead, kadm.OpWrite))
	allowAlice(t, n, literal().Groups("g").Operations(kadm.OpRead))
	allowAlice(t, n, literal().TransactionalIDs("tx").Operations(kadm.OpWrite))
	for name, opt := range map[string]kgo.Opt{"alice": asAlice, "mallory": asMallory} {
		want := func(e *kerr.Error) error {
			if name == "alice" {
				return nil
			}
			return e
		}
		cl := n.client(t, 0, opt, kgo.DefaultProduceTopic("orders"), kgo.DisableIdempotentWrite())
		if err := cl.ProduceSync(t.Context(), kgo.StringRecord("v")).FirstErr(); !errors.Is(err, want(kerr.TopicAuthorizationFailed)) {
			t.Errorf("%s: Produce: %v", name, err)
		}
		offsets, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "orders")
		if err = errors.Join(err, offsets.Error()); !errors.Is(err, want(kerr.TopicAuthorizationFailed)) {
			t.Errorf("%s: ListOffsets: %v", name, err)
		}
		_, err = kadm.NewClient(cl).FetchOffsets(t.Context(), "g")
		if errors.Is(err, kerr.GroupAuthorizationFailed) != (name != "alice") { // alice's group is not there yet
			t.Errorf("%s: OffsetFetch: %v", name, err)
		}
		init := kmsg.NewPtrInitProducerIDRequest()
		init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = kmsg.StringPtr("tx"), 60_000, -1, -1
		resp, err := cl.SeedBrokers()[0].Request(t.Context(), init)
		if err != nil {
			t.Fatal(err)
		}
		if err = kerr.ErrorForCode(resp.(*kmsg.InitProducerIDResponse).ErrorCode); !errors.Is(err, want(kerr.TransactionalIDAuthorizationFailed)) {
			t.Errorf("%s: InitProducerId: %v", name, err)
		}
		created, err := kadm.NewClient(cl).CreateTopic(t.Context(), 1, 1, nil, "new-"+name)
		if err = errors.Join(err, created.Err); !errors.Is(err, kerr.TopicAuthorizationFailed) && !errors.Is(err, kerr.ClusterAuthorizationFailed) {
			t.Errorf("%s: CreateTopics: %v", name, err)
		}
		if err := mayAlter(t, cl); !errors.Is(err, kerr.ClusterAuthorizationFailed) {
			t.Errorf("%s: CreateAcls: %v", name, err)
		}
	}
}

// A change of rights is in force when it is answered, or the answer says no; then
// it is in force as soon as the rights can be read.
func TestAChangeOfRightsIsInForceOrRefused(t *testing.T) {
	var away atomic.Bool
	n := startSecure(t, guarded, func(o *broker.Options) {
		embedded := o.Embedded
		o.ACLs.Close()
		o.ACLs = acl.NewCache(t.Context(), acl.Options{
			Source: func(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
				if away.Load() {
					return nil, errors.New("busy")
				}
				return embedded.ACLs(ctx, req)
			},
			All: true, SuperUsers: []string{"User:admin"}, After: time.After, Log: zerolog.Nop(),
		})
	})
	admin, alice := kadm.NewClient(n.client(t, 0, asAdmin)), n.client(t, 0, asAlice)
	acls := func() *kadm.ACLBuilder {
		return kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).TransactionalIDs("tx").Operations(kadm.OpWrite).Allow("User:alice").AllowHosts()
	}
	may := func() bool {
		init := kmsg.NewPtrInitProducerIDRequest()
		init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = kmsg.StringPtr("tx"), 60_000, -1, -1
		resp, err := init.RequestWith(t.Context(), alice)
		if err != nil {
			t.Fatal(err)
		}
		return resp.ErrorCode == 0
	}
	away.Store(true)
	if created, err := admin.CreateACLs(t.Context(), acls()); err != nil || !errors.Is(created[0].Err, kerr.RequestTimedOut) || may() {
		t.Errorf("granted while the rights cannot be read: %v, %+v; may %v", err, created, may())
	}
	away.Store(false)
	waitFor(t, "the right that was granted", may)
	away.Store(true)
	if deleted, err := admin.DeleteACLs(t.Context(), acls()); err != nil || !errors.Is(deleted[0].Err, kerr.RequestTimedOut) {
		t.Errorf("taken away while the rights cannot be read: %v, %+v", err, deleted)
	}
	away.Store(false)
	waitFor(t, "the end of the right", func() bool { return !may() })
}

// What the front itself answers about a producer must not be told to strangers:
// every request about an id is refused alike, whether anybody uses it or not.
func TestNobodyLearnsWhetherATransactionalIDIsInUse(t *testing.T) {
	n := startSecure(t, append(guarded, "transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true"))
	allowAlice(t, n, kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).TransactionalIDs("used").Operations(kadm.OpWrite))
	owner := n.client(t, 0, asAlice)
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis, init.ProducerID, init.ProducerEpoch = kmsg.StringPtr("used"), 60_000, -1, -1
	given, err := init.RequestWith(t.Context(), owner)
	if err != nil || given.ErrorCode != 0 {
		t.Fatal(err, kerr.ErrorForCode(given.ErrorCode))
	}
	mallory := n.client(t, 0, asMallory)
	for _, make := range []func(id string) kmsg.Request{
		func(id string) kmsg.Request {
			r := kmsg.NewPtrInitProducerIDRequest()
			r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &id, 60_000, given.ProducerID, given.ProducerEpoch
			return r
		},
		func(id string) kmsg.Request {
			r := wire.NewPtrInitProducerIDRequestV6()
			r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch = &id, 60_000, -1, -1
			r.Enable2PC, r.KeepPreparedTxn = true, true
			return r
		},
		func(id string) kmsg.Request {
			r := kmsg.NewPtrEndTxnRequest()
			r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Commit = id, given.ProducerID, given.ProducerEpoch, true
			return r
		},
		func(id string) kmsg.Request {
			r := kmsg.NewPtrAddOffsetsToTxnRequest()
			r.TransactionalID, r.ProducerID, r.ProducerEpoch, r.Group = id, given.ProducerID, given.ProducerEpoch, "g"
			return r
		},
		func(id string) kmsg.Request {
			r := kmsg.NewPtrDescribeTransactionsRequest()
			r.TransactionalIDs = []string{id}
			return r
		},
	} {
		var answers []string
		for _, id := range []string{"used", "free"} {
			resp, askErr := mallory.SeedBrokers()[0].Request(t.Context(), make(id))
			if askErr != nil {
				t.Fatal(askErr)
			}
			answers = append(answers, strings.ReplaceAll(fmt.Sprintf("%T %+v", resp, resp), id, "ID"))
		}
		if answers[0] != answers[1] || !strings.Contains(answers[0], "53") {
			t.Errorf("the one in use: %s\nthe other: %s", answers[0], answers[1])
		}
	}
	listed, err := kadm.NewClient(mallory).ListTransactions(t.Context(), nil, nil)
	if err != nil || len(listed) > 0 {
		t.Errorf("ListTransactions shows %v, %v", listed, err)
	}
	again, err := init.RequestWith(t.Context(), owner)
	if err != nil || again.ErrorCode != 0 || again.ProducerID != given.ProducerID {
		t.Errorf("the owner: %+v, %v", again, err)
	}
}

// TWO_PHASE_COMMIT is an operation that kfake does not know: it is kept in it
// under another name, and asked for by version 6 (KIP-939).
func TestTwoPhaseCommitIsARightOfItsOwn(t *testing.T) {
	dir := t.TempDir()
	lines := append(guarded, "transaction.two.phase.commit.enable=true", "unstable.api.versions.enable=true", "log.dirs="+dir)
	n := startSecure(t, lines)
	init := func(n *secureNode, enable bool) error {
		r := wire.NewPtrInitProducerIDRequestV6()
		r.TransactionalID, r.TransactionTimeoutMillis, r.ProducerID, r.ProducerEpoch, r.Enable2PC = kmsg.StringPtr("tx"), 60_000, -1, -1, enable
		resp, err := n.client(t, 0, asAlice).SeedBrokers()[0].Request(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(resp.(*wire.InitProducerIDResponseV6).ErrorCode)
	}
	allowAlice(t, n, kadm.NewACLs().ResourcePatternType(kadm.ACLPatternLiteral).TransactionalIDs("tx").Operations(kadm.OpWrite))
	if err := init(n, true); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		t.Errorf("with WRITE alone: %v", err)
	}
	admin := n.client(t, 0, asAdmin)
	create := kmsg.NewPtrCreateACLsRequest()
	for _, op := range []kmsg.ACLOperation{acl.TwoPhaseCommit, kmsg.ACLOperationIdempotentWrite} {
		c := kmsg.NewCreateACLsRequestCreation()
		c.ResourceType, c.ResourceName, c.ResourcePatternType = kmsg.ACLResourceTypeTransactionalId, "tx", kmsg.ACLResourcePatternTypeLiteral
		c.Principal, c.Host, c.Operation, c.PermissionType = "User:alice", "*", op, kmsg.ACLPermissionTypeAllow
		create.Creations = append(create.Creations, c)
	}
	onCluster := create.Creations[1]
	onCluster.ResourceType, onCluster.ResourceName = kmsg.ACLResourceTypeCluster, acl.ClusterName
	create.Creations = append(create.Creations, onCluster)
	created, err := create.RequestWith(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	var codes []int16
	for _, r := range created.Results {
		codes = append(codes, r.ErrorCode)
	}
	if want := []int16{0, kerr.InvalidRequest.Code, 0}; !slices.Equal(codes, want) {
		t.Fatalf("CreateAcls: %v, want %v", codes, want)
	}
	// The change is in force when it is answered, and outlasts a restart.
	if err := init(n, true); err != nil {
		t.Errorf("with both: %v", err)
	}
	n.stop()
	n = startSecure(t, lines)
	if err := init(n, true); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	admin = n.client(t, 0, asAdmin)
	if got, want := operations(t, admin, kmsg.ACLOperationAny), "TRANSACTIONAL_ID:4 TRANSACTIONAL_ID:15 CLUSTER:12"; !sameWords(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
	if got := operations(t, admin, acl.TwoPhaseCommit); got != "TRANSACTIONAL_ID:15" {
		t.Errorf("of TWO_PHASE_COMMIT there is %q", got)
	}
	if got := operations(t, admin, kmsg.ACLOperationIdempotentWrite); got != "CLUSTER:12" {
		t.Errorf("of IDEMPOTENT_WRITE there is %q", got)
	}
	if got := deleteACLs(t, admin, kmsg.ACLOperationIdempotentWrite); got != "CLUSTER:12" {
		t.Errorf("deleting IDEMPOTENT_WRITE has deleted %q", got)
	}
	if got := deleteACLs(t, admin, acl.TwoPhaseCommit); got != "TRANSACTIONAL_ID:15" {
		t.Errorf("deleting TWO_PHASE_COMMIT has deleted %q", got)
	}
	if err := init(n, true); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
		t.Errorf("taken away: %v", err)
	}
}

func sameWords(a, b string) bool {
	x, y := strings.Fields(a), strings.Fields(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

func operations(t *testing.T, cl *kgo.Client, op kmsg.ACLOperation) string {
	t.Helper()
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = op, kmsg.ACLPermissionTypeAny
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			out = append(out, fmt.Sprintf("%v:%d", r.ResourceType, a.Operation))
		}
	}
	return strings.Join(out, " ")
}

func deleteACLs(t *testing.T, cl *kgo.Client, op kmsg.ACLOperation) string {
	t.Helper()
	req := kmsg.NewPtrDeleteACLsRequest()
	f := kmsg.NewDeleteACLsRequestFilter()
	f.ResourceType, f.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	f.Operation, f.PermissionType = op, kmsg.ACLPermissionTypeAny
	req.Filters = append(req.Filters, f)
	resp, err := req.RequestWith(t.Context(), cl)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, a := range resp.Results[0].MatchingACLs {
		out = append(out, fmt.Sprintf("%v:%d", a.ResourceType, a.Operation))
	}
	return strings.Join(out, " ")
}

func TestWithoutAnAuthorizerACLsAreDisabled(t *testing.T) {
	n := startSecure(t, []string{"listeners=PLAINTEXT://127.0.0.1:0"})
	cl := n.client(t, 0)
	if err := mayAlter(t, cl); !errors.Is(err, kerr.SecurityDisabled) {
		t.Errorf("CreateAcls: %v", err)
	}
	describe := kmsg.NewPtrDescribeACLsRequest()
	if resp, err := describe.RequestWith(t.Context(), cl); err != nil || resp.ErrorCode != kerr.SecurityDisabled.Code {
		t.Errorf("DescribeAcls: %+v, %v", resp, err)
	}
	del := kmsg.NewPtrDeleteACLsRequest()
	del.Filters = append(del.Filters, kmsg.NewDeleteACLsRequestFilter())
	if resp, err := del.RequestWith(t.Context(), cl); err != nil || len(resp.Results) != 1 || resp.Results[0].ErrorCode != kerr.SecurityDisabled.Code {
		t.Errorf("DeleteAcls: %+v, %v", resp, err)
	}
}

// Credentials change while the node runs, and what the configuration began
// with does not come back at a restart.
func TestScramCredentialsChangeAndStay(t *testing.T) {
	lines := append(guarded, "log.dirs="+t.TempDir())
	n := startSecure(t, lines)
	alter := func(iterations int32, password string) error {
		done, err := kadm.NewClient(n.client(t, 0, asAdmin)).AlterUserSCRAMs(t.Context(), nil, []kadm.UpsertSCRAM{{
			User: "alice", Mechanism: kadm.ScramSha256, Iterations: iterations, Password: password,
		}})
		if err != nil {
			t.Fatal(err)
		}
		return done["alice"].Err
	}
	logsIn := func(opt kgo.Opt) error {
		_, err := kadm.NewClient(n.client(t, 0, opt)).BrokerMetadata(t.Context())
		return err
	}
	if err := alter(8192, "other"); !errors.Is(err, kerr.UnacceptableCredential) {
		t.Errorf("8192 iterations, with which nobody could log in: %v", err)
	}
	if err := errors.Join(logsIn(asAlice), alter(4096, "new-secret")); err != nil {
		t.Fatal(err)
	}
	for _, restarted := range []bool{false, true} {
		if restarted {
			n.stop()
			n = startSecure(t, lines)
		}
		if err := logsIn(asScram256("alice", "new-secret")); err != nil {
			t.Errorf("restarted %v, the new password: %v", restarted, err)
		}
		if err := logsIn(asAlice); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("restarted %v, the old password: %v", restarted, err)
		}
	}
}

// gtcOnly is a node without the broker role in front of a home cluster.
func gtcOnly(t *testing.T, home *secureNode, ca *certs.Authority, opts ...nodeOption) *secureNode {
	t.Helper()
	return startSecure(t, []string{
		"process.roles=gtc", "node.id=1", "gtc.clusters=us", "gtc.cluster.us.bootstrap.servers=127.0.0.1:1",
		"listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"gtc.home.bootstrap.servers=" + home.addrs[0], "gtc.home.security.protocol=SASL_SSL", "gtc.home.ssl.truststore.location=" + ca.File,
		"gtc.home.sasl.mechanism=PLAIN", `gtc.home.sasl.jaas.config=` + plainLogin + `username="alice" password="al-secret";`,
	}, append(opts, withCoordinator(whoAsks{}))...)
}

// whoAsks is a coordinator that tells each client who it is.
type whoAsks struct{}

func (whoAsks) Handle(_ context.Context, principal, host string, req kmsg.Request) kmsg.Response {
	resp := req.ResponseKind().(*wire.ListGlobalTransactionsResponse)
	resp.ErrorMessage = kmsg.StringPtr(principal + " from " + host)
	return resp
}

func (whoAsks) FindCoordinator(_, _, _ string) (int32, string, int32, error) {
	return 1, "127.0.0.1", 1, nil
}

func principalOf(t *testing.T, cl *kgo.Client) (string, error) {
	t.Helper()
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), wire.NewPtrListGlobalTransactionsRequest())
	if err != nil {
		return "", err
	}
	return *resp.(*wire.ListGlobalTransactionsResponse).ErrorMessage, nil
}

func startHome(t *testing.T, ca *certs.Authority) *secureNode {
	t.Helper()
	return startSecure(t, []string{
		"listeners=SASL_SSL://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256",
		"ssl.keystore.location=" + ca.Sign(t, pkix.Name{CommonName: "home"}).File,
		"listener.name.sasl_ssl.plain.sasl.jaas.config=" + plainLogin + `user_alice="al-secret";`,
		"sasl.scram.credentials=SCRAM-SHA-256=[name=bob,password=bob-secret]",
	})
}

// A node that is gtc alone knows no passwords: the home cluster says who a
// client is, and the client is known to the coordinator by that name.
func TestTheHomeClusterAuthenticatesForACoordinator(t *testing.T) {
	ca := certs.New(t)
	n := gtcOnly(t, startHome(t, ca), ca)
	for name, opt := range map[string]kgo.Opt{"alice": asPlain("alice", "al-secret"), "bob": asScram256("bob", "bob-secret")} {
		who, err := principalOf(t, n.client(t, 0, opt))
		if err != nil || who != "User:"+name+" from 127.0.0.1" {
			t.Errorf("%s is %q, %v", name, who, err)
		}
	}
	for name, opt := range map[string]kgo.Opt{
		"wrong PLAIN password": asPlain("alice", "wrong"), "wrong SCRAM password": asScram256("bob", "wrong"),
		"no such user": asScram256("mallory", "x"),
	} {
		if who, err := principalOf(t, n.client(t, 0, opt)); !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%s: %q, %v", name, who, err)
		}
	}
	// Offered here, and not by the home cluster.
	if who, err := principalOf(t, n.client(t, 0, asScram512("bob", "bob-secret"))); err == nil {
		t.Errorf("a mechanism that the home cluster does not offer: %q", who)
	}
}

// That the home cluster is away does not mean that a password is wrong: clients
// give up on that.
func TestAHomeClusterThatIsAwayRefusesNobody(t *testing.T) {
	ca := certs.New(t)
	home := startHome(t, ca)
	n := gtcOnly(t, home, ca)
	home.stop()
	who, err := principalOf(t, n.client(t, 0, asPlain("alice", "al-secret")))
	if err == nil || errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("%q, %v", who, err)
	}
	stranger := certs.New(t)
	other := gtcOnly(t, startHome(t, ca), stranger)
	if who, err := principalOf(t, other.client(t, 0, asPlain("alice", "al-secret"))); err == nil || errors.Is(err, kerr.SaslAuthenticationFailed) {
		t.Errorf("a home cluster whose certificate nobody vouches for: %q, %v", who, err)
	}
}

// movable is a clock that can be put forward.
type movable struct{ ahead atomic.Int64 }

func (m *movable) option(o *broker.Options) {
	o.Now = func() time.Time { return time.Now().Add(time.Duration(m.ahead.Load())) }
}

func (m *movable) pass(d time.Duration) { m.ahead.Add(int64(d)) }

// scramOver logs in on a connection by hand.
func scramOver(t *testing.T, r *raw, user, pass string) (last *kmsg.SASLAuthenticateResponse) {
	t.Helper()
	session, token, err := scram.Auth{User: user, Pass: pass}.AsSha256Mechanism().Authenticate(t.Context(), "")
	for done := false; !done; {
		if err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = 2, token
		if last = ask[*kmsg.SASLAuthenticateResponse](t, r, req); last.ErrorCode != 0 {
			return last
		}
		done, token, err = session.Challenge(last.SASLAuthBytes)
	}
	return last
}

// KIP-368: the home cluster's connections.max.reauth.ms holds here too, and who
// does not authenticate again in time is cut off.
func TestASessionOfTheHomeClusterExpires(t *testing.T) {
	ca := certs.New(t)
	home := startHome(t, ca)
	set := kadm.AlterConfig{Op: kadm.SetConfig, Name: "connections.max.reauth.ms", Value: kmsg.StringPtr("2000")}
	if _, err := kadm.NewClient(home.client(t, 0, trusting(t, ca), asPlain("alice", "al-secret"))).AlterBrokerConfigs(t.Context(), []kadm.AlterConfig{set}, 0); err != nil {
		t.Fatal(err)
	}
	var now movable
	n := gtcOnly(t, home, ca, now.option)
	r := dialRaw(t, n.addrs[0])
	login := func(user string) *kmsg.SASLAuthenticateResponse {
		if resp := handshake(t, r, "SCRAM-SHA-256"); resp.ErrorCode != 0 {
			t.Fatal(kerr.ErrorForCode(resp.ErrorCode))
		}
		return scramOver(t, r, user, user+"-secret")
	}
	if resp := login("bob"); resp.ErrorCode != 0 || resp.SessionLifetimeMillis != 2000 {
		t.Fatalf("%+v", resp)
	}
	list := wire.NewPtrListGlobalTransactionsRequest()
	now.pass(1900 * time.Millisecond)
	ask[*wire.ListGlobalTransactionsResponse](t, r, list)
	if resp := login("bob"); resp.ErrorCode != 0 {
		t.Fatalf("again: %+v", resp)
	}
	now.pass(1900 * time.Millisecond)
	ask[*wire.ListGlobalTransactionsResponse](t, r, list)
	now.pass(200 * time.Millisecond)
	r.send(frameOf(list, 9))
	if !r.ended() {
		t.Error("served after the session has expired")
	}
	t.Run("as somebody else", func(t *testing.T) {
		r = dialRaw(t, n.addrs[0])
		login("bob")
		handshake(t, r, "PLAIN")
		if code := authenticate(t, r, "\x00alice\x00al-secret"); code != kerr.SaslAuthenticationFailed.Code {
			t.Errorf("%v", kerr.ErrorForCode(code))
		}
	})
}
