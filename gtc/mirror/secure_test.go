package mirror_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/kafka-gtc/kafka-gtc/conformance/certs"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror"
	"github.com/kafka-gtc/kafka-gtc/gtc/mirror/config"
)

const login = `org.apache.kafka.common.security.scram.ScramLoginModule required username="mirror" password="geheim-7f3a";`

// Clusters and coordinator over TLS with logins, as the properties file says.
func TestTLSAndLogins(t *testing.T) {
	ca := certs.New(t)
	server := ca.Sign(t, pkix.Name{CommonName: "server"})
	escape := func(pem []byte) string { return strings.ReplaceAll(string(pem), "\n", `\n`) }
	access := func(prefix, addr string) []string {
		return []string{
			prefix + "bootstrap.servers=" + addr, prefix + "security.protocol=SASL_SSL", prefix + "ssl.truststore.location=" + ca.File,
			prefix + "sasl.mechanism=SCRAM-SHA-256", prefix + "sasl.jaas.config=" + login,
		}
	}
	guarded := func(name string, more ...string) string {
		return startNode(t, name, append(more, "!SASL_SSL", "sasl.enabled.mechanisms=SCRAM-SHA-256",
			"sasl.scram.credentials=SCRAM-SHA-256=[name=mirror,password=geheim-7f3a]",
			"ssl.keystore.key="+escape(server.Key), "ssl.keystore.certificate.chain="+escape(server.Chain))...).Addr
	}
	us, eu := guarded("us", "process.roles=broker"), guarded("eu", "process.roles=broker")
	own := append([]string{"process.roles=broker,gtc", "gtc.clusters=us,eu"}, access("gtc.cluster.us.", us)...)
	gtc := guarded("gtc", append(own, access("gtc.cluster.eu.", eu)...)...)

	lines := append([]string{"clusters=us,eu", "us->eu.enabled=true", "topics=t", "instance.id=one", "refresh.topics.interval.seconds=1"}, access("us.", us)...)
	lines = append(append(lines, access("eu.", eu)...), access("gtc.", gtc)...)
	cfg, err := config.Parse("mirror.properties", strings.NewReader(strings.Join(lines, "\n")), nil)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	opts := []kgo.Opt{
		kgo.DialTLSConfig(&tls.Config{RootCAs: pool}), kgo.SASL(scram.Auth{User: "mirror", Pass: "geheim-7f3a"}.AsSha256Mechanism()),
	}
	source := newClient(t, us, append(opts, kgo.DefaultProduceTopic("t"))...)
	if _, err := kadm.NewClient(source).CreateTopic(within(t), 1, 1, nil, "t"); err != nil {
		t.Fatal(err)
	}
	o := cfg.Mirror
	o.Clock = mirror.SystemClock()
	m := run(t, o)
	if err := source.ProduceSync(within(t), kgo.StringRecord("a")).FirstErr(); err != nil {
		t.Fatal(err)
	}
	target := newClient(t, eu, append(opts, kgo.ConsumeTopics("us.t"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.UnknownTopicRetries(-1), kgo.MetadataMaxAge(time.Second))...)
	fetches := target.PollRecords(within(t), 1)
	if got := fetches.Records(); len(got) != 1 || string(got[0].Value) != "a" {
		t.Errorf("read %v, %v", got, fetches.Errors())
	}
	m.stop(t)
}
