package broker_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-gtc/kafka-gtc/broker"
	"github.com/kafka-gtc/kafka-gtc/broker/acl"
	"github.com/kafka-gtc/kafka-gtc/broker/config"
	"github.com/kafka-gtc/kafka-gtc/conformance/certs"
	"github.com/kafka-gtc/kafka-gtc/wire"
)

// secureNode is a node with the listeners of its configuration.
type secureNode struct {
	addrs    []string
	front    *broker.Front
	embedded *broker.Embedded
	stop     func()
}

func startSecure(t *testing.T, overrides []string, opts ...nodeOption) *secureNode {
	t.Helper()
	if !slices.Contains(overrides, "process.roles=gtc") {
		overrides = append([]string{"log.dirs="}, overrides...)
	}
	cfg, err := config.Load("", overrides)
	if err != nil {
		t.Fatal(err)
	}
	n := &secureNode{}
	o := broker.Options{Config: cfg, Now: time.Now, Log: testLog(t)}
	var sockets []net.Listener
	var as []broker.Listener
	for _, l := range cfg.Listeners {
		ln, listenErr := net.Listen("tcp", "127.0.0.1:0")
		if listenErr != nil {
			t.Fatal(listenErr)
		}
		b, tlsErr := broker.NewListener(l, broker.Node{ID: cfg.NodeID, Host: "127.0.0.1", Port: int32(ln.Addr().(*net.TCPAddr).Port)})
		if tlsErr != nil {
			t.Fatal(tlsErr)
		}
		sockets, as, n.addrs = append(sockets, ln), append(as, b), append(n.addrs, ln.Addr().String())
	}
	o.Node = as[0].Advertised
	if cfg.Roles.Broker {
		if o.Embedded, err = broker.OpenEmbedded(cfg, o.Node, nil, o.Log); err != nil {
			t.Fatal(err)
		}
		if err = o.Embedded.AddScramUsers(t.Context(), cfg.ScramUsers); err != nil {
			t.Fatal(err)
		}
		if cfg.Authorizer != nil {
			o.ACLs = acl.NewCache(t.Context(), acl.Options{Source: o.Embedded.ACLs, All: true, SuperUsers: cfg.Authorizer.SuperUsers, Log: o.Log})
		}
	}
	if cfg.Home != nil {
		if o.DialHome, err = broker.HomeDialer(*cfg.Home); err != nil {
			t.Fatal(err)
		}
	}
	for _, opt := range opts {
		opt(&o)
	}
	if n.front, err = broker.NewFront(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	served := make(chan error, len(sockets))
	for i, ln := range sockets {
		go func() { served <- n.front.ServeListener(ln, as[i]) }()
	}
	n.embedded = o.Embedded
	n.stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := n.front.Shutdown(ctx); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		for range sockets {
			if err := <-served; err != nil {
				t.Errorf("Serve: %v", err)
			}
		}
		if o.ACLs != nil {
			o.ACLs.Close()
		}
		if o.Embedded != nil {
			o.Embedded.Close()
		}
	})
	t.Cleanup(n.stop)
	return n
}

func (n *secureNode) client(t *testing.T, listener int, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.addrs[listener]), kgo.MaxVersions(wire.Versions()), kgo.RequestRetries(0), kgo.RecordRetries(0),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

func asPlain(user, pass string) kgo.Opt {
	return kgo.SASL(plain.Auth{User: user, Pass: pass}.AsMechanism())
}

func asScram256(user, pass string) kgo.Opt {
	return kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha256Mechanism())
}

func asScram512(user, pass string) kgo.Opt {
	return kgo.SASL(scram.Auth{User: user, Pass: pass}.AsSha512Mechanism())
}

func trusting(t *testing.T, a *certs.Authority, own ...certs.Certificate) kgo.Opt {
	t.Helper()
	c := &tls.Config{RootCAs: x509.NewCertPool()}
	c.RootCAs.AppendCertsFromPEM(a.PEM)
	for _, o := range own {
		pair, err := tls.X509KeyPair(o.Chain, o.Key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = append(c.Certificates, pair)
	}
	return kgo.DialTLSConfig(c)
}

const (
	withAuthorizer = "authorizer.class.name=" + config.StandardAuthorizer
	plainLogin     = "org.apache.kafka.common.security.plain.PlainLoginModule required "
)

// mayAlter tries what only super users may.
func mayAlter(t *testing.T, cl *kgo.Client) error {
	t.Helper()
	results, err := kadm.NewClient(cl).CreateACLs(t.Context(), kadm.NewACLs().Allow("User:x").AllowHosts().
		Topics("t").ResourcePatternType(kadm.ACLPatternLiteral).Operations(kadm.OpRead))
	if err != nil {
		return err
	}
	return results[0].Err
}

func TestPlainAndScramLogInAndNothingElseDoes(t *testing.T) {
	n := startSecure(t, []string{
		"listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.sasl_plaintext.plain.sasl.jaas.config=" + plainLogin + `user_alice="al-secret" user_empty-not="x";`,
		"sasl.scram.credentials=SCRAM-SHA-256=[name=bob,password=bob-secret];SCRAM-SHA-512=[name=carol,password=c,a]r]",
	})
	for name, opt := range map[string]kgo.Opt{
		"PLAIN": asPlain("alice", "al-secret"), "SCRAM-SHA-256": asScram256("bob", "bob-secret"), "SCRAM-SHA-512": asScram512("carol", "c,a]r"),
	} {
		if _, err := kadm.NewClient(n.client(t, 0, opt)).BrokerMetadata(t.Context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, opt := range map[string]kgo.Opt{
		"wrong password":           asPlain("alice", "secret"),
		"no such user":             asPlain("mallory", "secret"),
		"wrong SCRAM password":     asScram256("bob", "secret"),
		"no such SCRAM user":       asScram256("alice", "al-secret"),
		"user of the other SCRAM":  asScram512("bob", "bob-secret"),
		"SCRAM user with PLAIN":    asPlain("bob", "bob-secret"),
		"the prefix of a password": asPlain("alice", "al-secre"),
	} {
		_, err := kadm.NewClient(n.client(t, 0, opt)).BrokerMetadata(t.Context())
		if !errors.Is(err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%s: %v, want SASL_AUTHENTICATION_FAILED", name, err)
		}
	}
	// kgo does not send an empty password.
	r := dialRaw(t, n.addrs[0])
	handshake(t, r, "PLAIN")
	if code := authenticate(t, r, "\x00mallory\x00"); code != kerr.SaslAuthenticationFailed.Code {
		t.Errorf("a user that is not there, with the empty password: %v", kerr.ErrorForCode(code))
	}
}

func dialRaw(t *testing.T, addr string) *raw {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &raw{t: t, Conn: c, in: bufio.NewReader(c)}
}

func handshake(t *testing.T, r *raw, mechanism string) *kmsg.SASLHandshakeResponse {
	t.Helper()
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Version, req.Mechanism = 1, mechanism
	return ask[*kmsg.SASLHandshakeResponse](t, r, req)
}

func authenticate(t *testing.T, r *raw, token string) int16 {
	t.Helper()
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.Version, req.SASLAuthBytes = 2, []byte(token)
	return ask[*kmsg.SASLAuthenticateResponse](t, r, req).ErrorCode
}

func (r *raw) ended() bool {
	_, err := r.in.Peek(1)
	return errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) || err != nil && strings.Contains(err.Error(), "reset")
}

const plainOnly = "listener.name.sasl_plaintext.plain.sasl.jaas.config=" + plainLogin + `user_alice="al-secret";`

func TestBeforeTheLoginNothingIsServed(t *testing.T) {
	n := startSecure(t, []string{"listeners=SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN", plainOnly})
	metadata := kmsg.NewPtrMetadataRequest()
	early := kmsg.NewPtrSASLAuthenticateRequest()
	early.SASLAuthBytes = []byte("\x00alice\x00al-secret")
	for name, req := range map[string]kmsg.Request{"Metadata": metadata, "SaslAuthenticate without a handshake": early} {
		r := dialRaw(t, n.addrs[0])
		r.send(frameOf(req, 1))
		if !r.ended() {
			t.Errorf("%s is answered", name)
		}
	}
	t.Run("an illegal mechanism", func(t *testing.T) {
		r := dialRaw(t, n.addrs[0])
		resp := handshake(t, r, "SCRAM-SHA-256")
		if resp.ErrorCode != kerr.UnsupportedSaslMechanism.Code || !slices.Equal(resp.SupportedMechanisms, []string{"PLAIN"}) {
			t.Errorf("%+v", resp)
		}
		if !r.ended() {
			t.Error("the connection goes on")
		}
	})
	t.Run("a request between handshake and login", func(t *testing.T) {
		r := dialRaw(t, n.addrs[0])
		handshake(t, r, "PLAIN")
		r.send(frameOf(metadata, 3))
		if !r.ended() {
			t.Error("it is answered")
		}
	})
	t.Run("a large frame", func(t *testing.T) {
		r := dialRaw(t, n.addrs[0])
		r.send([]byte{0, 0x10, 0, 0}) // 1 MiB
		if !r.ended() {
			t.Error("it is waited for")
		}
	})
	t.Run("ApiVersions", func(t *testing.T) {
		r := dialRaw(t, n.addrs[0])
		req := kmsg.NewPtrApiVersionsRequest()
		req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "test", "1"
		resp := ask[*kmsg.ApiVersionsResponse](t, r, req)
		if resp.ErrorCode != 0 || len(resp.ApiKeys) < 30 || len(resp.FinalizedFeatures) == 0 {
			t.Errorf("%+v", resp)
		}
		handshake(t, r, "PLAIN")
		if code := authenticate(t, r, "\x00alice\x00al-secret"); code != 0 {
			t.Fatal(kerr.ErrorForCode(code))
		}
		if len(ask[*kmsg.MetadataResponse](t, r, metadata).Brokers) != 1 {
			t.Error("not served after the login")
		}
		// Nobody logs in twice, as in Kafka without connections.max.reauth.ms.
		if resp := handshake(t, r, "PLAIN"); resp.ErrorCode != kerr.IllegalSaslState.Code {
			t.Errorf("a second handshake: %+v", resp)
		}
		if code := authenticate(t, r, "\x00alice\x00al-secret"); code != kerr.IllegalSaslState.Code {
			t.Errorf("a second login: %v", kerr.ErrorForCode(code))
		}
	})
	t.Run("after a refusal", func(t *testing.T) {
		r := dialRaw(t, n.addrs[0])
		handshake(t, r, "PLAIN")
		authenticate(t, r, "\x00alice\x00wrong")
		if !r.ended() {
			t.Error("the connection goes on")
		}
	})
}

func TestSaslOnAPlainListenerIsAnIllegalState(t *testing.T) {
	n := startSecure(t, []string{"listeners=PLAINTEXT://127.0.0.1:0"})
	r := dialRaw(t, n.addrs[0])
	if resp := handshake(t, r, "PLAIN"); resp.ErrorCode != kerr.IllegalSaslState.Code {
		t.Errorf("handshake: %+v", resp)
	}
	if code := authenticate(t, r, "\x00alice\x00al-secret"); code != kerr.IllegalSaslState.Code {
		t.Errorf("login: %v", kerr.ErrorForCode(code))
	}
}

var errNoConnection = errors.New("no connection")

func TestACertificateIsAPrincipal(t *testing.T) {
	ca, other := certs.New(t), certs.New(t)
	server := ca.Sign(t, pkix.Name{CommonName: "server"})
	ops := ca.Sign(t, pkix.Name{CommonName: "ops", OrganizationalUnit: []string{"kafka"}})
	lines := []string{
		withAuthorizer, "super.users=User:CN=ops,OU=kafka",
		"ssl.keystore.location=" + server.File, "ssl.truststore.location=" + ca.File,
	}
	n := startSecure(t, append(lines, "listeners=SSL://127.0.0.1:0,ASK://127.0.0.1:0,OPEN://127.0.0.1:0",
		"listener.security.protocol.map=ASK:SSL,OPEN:SSL", "ssl.client.auth=required",
		"listener.name.ask.ssl.client.auth=requested", "listener.name.open.ssl.client.auth=none"))
	const required, requested, none = 0, 1, 2
	app := ca.Sign(t, pkix.Name{CommonName: "app"})
	foreign := other.Sign(t, pkix.Name{CommonName: "ops", OrganizationalUnit: []string{"kafka"}})
	denied := kerr.ClusterAuthorizationFailed
	for name, c := range map[string]struct {
		listener int
		opt      kgo.Opt
		want     error // nil: may do everything; errNoConnection
	}{
		"a super user":                     {required, trusting(t, ca, ops), nil},
		"somebody":                         {required, trusting(t, ca, app), denied},
		"no certificate":                   {required, trusting(t, ca), errNoConnection},
		"of another authority":             {required, trusting(t, ca, foreign), errNoConnection},
		"requested, a super user":          {requested, trusting(t, ca, ops), nil},
		"requested, no certificate":        {requested, trusting(t, ca), denied},
		"requested, of another authority":  {requested, trusting(t, ca, foreign), errNoConnection},
		"not asked for, but offered":       {none, trusting(t, ca, ops), denied},
		"a server that nobody has vouched": {none, trusting(t, other), errNoConnection},
	} {
		err := mayAlter(t, n.client(t, c.listener, c.opt))
		connected := err == nil || errors.Is(err, denied)
		switch {
		case errors.Is(c.want, errNoConnection):
			if connected {
				t.Errorf("%s: connected (%v)", name, err)
			}
		case !errors.Is(err, c.want):
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	// Without TLS nothing of it answers.
	r := dialRaw(t, n.addrs[none])
	r.send(frameOf(kmsg.NewPtrApiVersionsRequest(), 1))
	if b, err := io.ReadAll(r.in); err == nil && len(b) > 0 && b[0] != 0x15 {
		t.Errorf("plain text is answered with % x", b)
	}
}

func TestKeysAreTakenAsTextToo(t *testing.T) {
	ca := certs.New(t)
	server := ca.Sign(t, pkix.Name{CommonName: "server"})
	n := startSecure(t, []string{
		"listeners=SSL://127.0.0.1:0", "ssl.client.auth=required", "ssl.truststore.certificates=" + string(ca.PEM),
		"ssl.keystore.key=" + string(server.Key), "ssl.keystore.certificate.chain=" + string(server.Chain),
	})
	if _, err := kadm.NewClient(n.client(t, 0, trusting(t, ca, ca.Sign(t, pkix.Name{CommonName: "app"})))).BrokerMetadata(t.Context()); err != nil {
		t.Error(err)
	}
}

// Each listener's clients are told that listener's address, and nobody gets in
// by another one's rules.
func TestEachListenerHasItsOwnAddressAndRules(t *testing.T) {
	n := startSecure(t, []string{
		"listeners=PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN", plainOnly,
		"process.roles=broker,gtc",
	}, func(o *broker.Options) {
		o.Coordinator = coordinator{find: func(string) (int32, string, int32, error) { return o.Node.ID, o.Node.Host, o.Node.Port, nil }}
	})
	for i, want := range n.addrs {
		r := dialRaw(t, want)
		if i == 1 {
			handshake(t, r, "PLAIN")
			if code := authenticate(t, r, "\x00alice\x00al-secret"); code != 0 {
				t.Fatal(kerr.ErrorForCode(code))
			}
		}
		if b := ask[*kmsg.MetadataResponse](t, r, kmsg.NewPtrMetadataRequest()).Brokers[0]; hostPort(b.Host, b.Port) != want {
			t.Errorf("Metadata names %s:%d, want %s", b.Host, b.Port, want)
		}
		if b := ask[*kmsg.DescribeClusterResponse](t, r, kmsg.NewPtrDescribeClusterRequest()).Brokers[0]; hostPort(b.Host, b.Port) != want {
			t.Errorf("DescribeCluster names %s:%d, want %s", b.Host, b.Port, want)
		}
		old := kmsg.NewPtrFindCoordinatorRequest()
		old.Version, old.CoordinatorKey = 3, "g"
		if f := ask[*kmsg.FindCoordinatorResponse](t, r, old); hostPort(f.Host, f.Port) != want {
			t.Errorf("FindCoordinator v3 names %s:%d, want %s", f.Host, f.Port, want)
		}
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKeys = 6, []string{"g"}
		if f := ask[*kmsg.FindCoordinatorResponse](t, r, find).Coordinators[0]; hostPort(f.Host, f.Port) != want {
			t.Errorf("FindCoordinator v6 names %s:%d, want %s", f.Host, f.Port, want)
		}
		for _, kind := range []int8{0, wire.CoordinatorTypeGlobalTransaction} {
			ours := wire.NewPtrFindCoordinatorRequest()
			ours.CoordinatorKeys, ours.CoordinatorType = []string{"g"}, kind
			if f := ask[*wire.FindCoordinatorResponse](t, r, ours).Coordinators[0]; hostPort(f.Host, f.Port) != want {
				t.Errorf("FindCoordinator v7 of type %d names %s:%d, want %s", kind, f.Host, f.Port, want)
			}
		}
	}
	if _, err := kadm.NewClient(n.client(t, 1)).BrokerMetadata(t.Context()); err == nil {
		t.Error("the second listener serves a client without login")
	}
}

// Each listener could keep a place that another one's client needs.
func TestListenersShareTheLimitOfConnections(t *testing.T) {
	n := startSecure(t, []string{
		"listeners=PLAINTEXT://127.0.0.1:0,A://127.0.0.1:0,B://127.0.0.1:0", "listener.security.protocol.map=A:PLAINTEXT,B:PLAINTEXT", "max.connections=1",
	})
	for range 2 {
		for _, addr := range n.addrs {
			r := dialRaw(t, addr)
			if len(ask[*kmsg.MetadataResponse](t, r, kmsg.NewPtrMetadataRequest()).Brokers) != 1 {
				t.Fatalf("%s does not serve", addr)
			}
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// Clients that say nothing hold up neither the node's end nor one another.
func TestSilentClientsOfASecureListenerDelayNobody(t *testing.T) {
	ca := certs.New(t)
	n := startSecure(t, []string{
		"listeners=SASL_SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0", "sasl.enabled.mechanisms=PLAIN", plainOnly,
		"listener.name.sasl_ssl.plain.sasl.jaas.config=" + plainLogin + `user_alice="al-secret";`,
		"ssl.keystore.location=" + ca.Sign(t, pkix.Name{CommonName: "server"}).File,
	})
	for _, addr := range n.addrs {
		for range 3 {
			dialRaw(t, addr)
		}
	}
	handshake(t, dialRaw(t, n.addrs[1]), "PLAIN")
	if _, err := kadm.NewClient(n.client(t, 0, trusting(t, ca), asPlain("alice", "al-secret"))).BrokerMetadata(t.Context()); err != nil {
		t.Error(err)
	}
	n.stop() // complains when it takes five seconds
}

func hostPort(host string, port int32) string { return net.JoinHostPort(host, strconv.Itoa(int(port))) }
