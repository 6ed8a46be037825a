//go:build kafka

package interop

import (
	"context"
	"crypto/x509/pkix"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kafka-gtc/kafka-gtc/conformance/certs"
	"github.com/kafka-gtc/kafka-gtc/conformance/node"
)

const (
	plainLogin = "org.apache.kafka.common.security.plain.PlainLoginModule required "
	scramLogin = "org.apache.kafka.common.security.scram.ScramLoginModule required "
)

// secured is a mini-broker that asks everybody who he is: by SCRAM or PLAIN over
// TLS at one address, by a certificate at another. It has the role gtc too,
// which clients of Kafka must not notice.
type secured struct {
	ca        *certs.Authority
	sasl, ssl string // addresses
	dir       string
	java      *agent // one for all of Java's users
}

// user is a foreign client with the means to log in.
type user struct {
	*agent
	prefix []string // of each command
}

func (u user) must(t *testing.T, words ...string) answer {
	t.Helper()
	return u.agent.must(t, append(u.prefix, words...)...)
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{ca: certs.New(t), sasl: freeAddr(t), ssl: freeAddr(t), dir: t.TempDir()}
	binary := buildMinibroker(t, s.dir)
	n, err := node.New(binary, s.dir, "secured", s.sasl, []string{
		"process.roles=broker,gtc", "global.transaction.state.log.num.partitions=1", "log.dirs=" + filepath.Join(s.dir, "data"),
		"listeners=SASL_SSL://" + s.sasl + ",SSL://" + s.ssl, "ssl.keystore.location=" + s.ca.Sign(t, pkix.Name{CommonName: "server"}).File,
		"ssl.truststore.location=" + s.ca.File, "ssl.client.auth=required",
		"sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
		"listener.name.sasl_ssl.plain.sasl.jaas.config=" + plainLogin + `user_pat="pat-secret";`,
		"sasl.scram.credentials=SCRAM-SHA-512=[name=admin,password=admin-secret]",
		"authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", "super.users=User:admin",
	})
	if err == nil {
		err = n.Start(context.Background()) // it ends after t.Context does
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Stop)
	s.java = newAgent(t, "java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx128m",
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", script(t, "../java/build"), "interop.Ordinary")
	return s
}

// javaWith is Kafka's client with more client properties.
func (s *secured) javaWith(t *testing.T, properties ...string) user {
	t.Helper()
	file := filepath.Join(t.TempDir(), "client.properties")
	properties = append(properties, "ssl.truststore.type=PEM", "ssl.truststore.location="+s.ca.File,
		"default.api.timeout.ms=110000", "max.block.ms=110000")
	if err := os.WriteFile(file, []byte(strings.Join(properties, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return user{agent: s.java, prefix: []string{file}}
}

func (s *secured) javaByLogin(t *testing.T, mechanism, user, password string) user {
	t.Helper()
	module := scramLogin
	if mechanism == "PLAIN" {
		module = plainLogin
	}
	return s.javaWith(t, "bootstrap.servers="+s.sasl, "security.protocol=SASL_SSL", "sasl.mechanism="+mechanism,
		fmt.Sprintf(`sasl.jaas.config=%susername="%s" password="%s";`, module, user, password))
}

func (s *secured) javaByCertificate(t *testing.T, name pkix.Name) user {
	t.Helper()
	return s.javaWith(t, "bootstrap.servers="+s.ssl, "security.protocol=SSL", "ssl.keystore.type=PEM",
		"ssl.keystore.location="+s.ca.Sign(t, name).File)
}

func (s *secured) librdkafka(t *testing.T, more map[string]string) user {
	t.Helper()
	config := map[string]string{"ssl.ca.location": s.ca.File}
	maps.Copy(config, more)
	text, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "client.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return user{agent: newAgent(t, filepath.Join(script(t, "python/venv"), "bin", "python"), "python/ordinary.py", file)}
}

func (s *secured) librdkafkaByLogin(t *testing.T, mechanism, user, password string) user {
	t.Helper()
	return s.librdkafka(t, map[string]string{
		"bootstrap.servers": s.sasl, "security.protocol": "SASL_SSL", "sasl.mechanism": mechanism,
		"sasl.username": user, "sasl.password": password,
	})
}

func (s *secured) librdkafkaByCertificate(t *testing.T, name pkix.Name) user {
	t.Helper()
	c := s.ca.Sign(t, name)
	return s.librdkafka(t, map[string]string{
		"bootstrap.servers": s.ssl, "security.protocol": "SSL", "ssl.certificate.pem": string(c.Chain), "ssl.key.pem": string(c.Key),
	})
}

// denied asks for what must be refused, by Kafka's own code.
func (u user) denied(t *testing.T, code string, words ...string) {
	t.Helper()
	ans, err := u.ask(deadline(t), append(u.prefix, words...)...)
	if refused := new(refusedError); !errors.As(err, &refused) || refused.text != code {
		t.Errorf("%s: %+v, %v; want %s", strings.Join(words, " "), ans, err, code)
	}
}

// Ordinary clients of an ordinary Kafka: what is granted works as it always
// does, and what is not is refused by the codes that clients know. Users and
// rights are made by Kafka's own admin client.
func TestOrdinaryClientsOverTLSWithLoginsAndACLs(t *testing.T) {
	s := newSecured(t)
	admin := s.javaByLogin(t, "SCRAM-SHA-512", "admin", "admin-secret")
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		admin.must(t, "user", "alice", mechanism, "alice-secret")
		admin.must(t, "user", "mallory", mechanism, "mallory-secret")
	}
	team := pkix.Name{CommonName: "app", OrganizationalUnit: []string{"pay"}}
	for _, topic := range []string{"in", "out"} {
		admin.must(t, "produce", topic, "first")
	}
	for _, who := range []string{"User:alice", "User:pat", "User:CN=app,OU=pay"} {
		for _, topic := range []string{"in", "out"} {
			admin.must(t, "grant", who, "topic", "literal", topic, "read")
			admin.must(t, "grant", who, "topic", "literal", topic, "write")
		}
		admin.must(t, "grant", who, "group", "prefixed", "g-", "read")
		admin.must(t, "grant", who, "transactional_id", "prefixed", "tx-", "write")
	}
	admin.must(t, "grant", "User:alice", "transactional_id", "literal", "tx-1", "two_phase_commit")
	if got, want := admin.must(t, "acls", "transactional_id").Values, []string{"TWO_PHASE_COMMIT", "WRITE", "WRITE", "WRITE"}; !slices.Equal(got, want) {
		t.Errorf("the admin client sees %v, want %v", got, want)
	}

	// Each client reads all that those before it have written to out.
	want := []string{"first"}
	for i, c := range []struct {
		name string
		user
	}{
		{"Java, SCRAM-SHA-512", s.javaByLogin(t, "SCRAM-SHA-512", "alice", "alice-secret")},
		{"Java, PLAIN", s.javaByLogin(t, "PLAIN", "pat", "pat-secret")},
		{"Java, certificate", s.javaByCertificate(t, team)},
		{"librdkafka, SCRAM-SHA-256", s.librdkafkaByLogin(t, "SCRAM-SHA-256", "alice", "alice-secret")},
		{"librdkafka, certificate", s.librdkafkaByCertificate(t, team)},
	} {
		value, id, group := fmt.Sprintf("v%d", i), fmt.Sprintf("tx-%d", i), fmt.Sprintf("g-%d", i)
		c.must(t, "produce", "in", value)
		moved := c.must(t, "transfer", id, group, "in", "out", "commit").Values
		if len(moved) != 2*i+2 || moved[len(moved)-1] != value {
			t.Errorf("%s has moved %v", c.name, moved)
		}
		want = append(want, moved...)
		c.must(t, "produce", "in", value+"-aborted")
		if again := c.must(t, "transfer", id, group, "in", "out", "abort").Values; !slices.Equal(again, []string{value + "-aborted"}) {
			t.Errorf("%s has moved %v in the transaction that it aborts", c.name, again)
		}
		if got := c.must(t, "consume", group+"-reader", "out").Values; !slices.Equal(got, want) {
			t.Errorf("%s reads %v, want %v", c.name, got, want)
		}
	}
}

func TestWhatIsNotGrantedIsDeniedByKafkasCodes(t *testing.T) {
	s := newSecured(t)
	admin := s.javaByLogin(t, "SCRAM-SHA-512", "admin", "admin-secret")
	admin.must(t, "user", "mallory", "SCRAM-SHA-512", "mallory-secret")
	admin.must(t, "produce", "in", "first")
	for _, who := range []string{"User:mallory", "User:CN=nobody"} {
		admin.must(t, "grant", who, "topic", "literal", "seen", "read")
	}
	admin.must(t, "produce", "seen", "first")
	for name, a := range map[string]user{
		"Java": s.javaByLogin(t, "SCRAM-SHA-512", "mallory", "mallory-secret"), "librdkafka": s.librdkafkaByLogin(t, "SCRAM-SHA-512", "mallory", "mallory-secret"),
		"Java, certificate":       s.javaByCertificate(t, pkix.Name{CommonName: "nobody"}),
		"librdkafka, certificate": s.librdkafkaByCertificate(t, pkix.Name{CommonName: "nobody"}),
	} {
		t.Run(name, func(t *testing.T) {
			a.denied(t, "TOPIC_AUTHORIZATION_FAILED", "produce", "in", "x")
			a.denied(t, "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "transfer", "tx-1", "g-1", "in", "out", "commit")
			a.denied(t, "GROUP_AUTHORIZATION_FAILED", "consume", "g-1", "seen")
			if strings.HasPrefix(name, "Java") {
				a.denied(t, "CLUSTER_AUTHORIZATION_FAILED", "grant", "User:mallory", "topic", "literal", "in", "all")
				a.denied(t, "CLUSTER_AUTHORIZATION_FAILED", "user", "admin", "SCRAM-SHA-512", "mine")
				a.denied(t, "CLUSTER_AUTHORIZATION_FAILED", "acls", "topic")
			}
		})
	}
	for _, wrong := range []user{
		s.javaByLogin(t, "SCRAM-SHA-512", "mallory", "guess"), s.javaByLogin(t, "SCRAM-SHA-256", "mallory", "mallory-secret"),
		s.javaByLogin(t, "PLAIN", "mallory", "mallory-secret"),
	} {
		wrong.denied(t, "SASL_AUTHENTICATION_FAILED", "produce", "in", "x")
	}
	s.librdkafkaByLogin(t, "SCRAM-SHA-512", "mallory", "guess").denied(t, "_AUTHENTICATION", "produce", "in", "x")
}
