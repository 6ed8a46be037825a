package rig

import (
	"crypto/x509/pkix"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/kafka-gtc/kafka-gtc/conformance"
	"github.com/kafka-gtc/kafka-gtc/conformance/certs"
)

// users are the principals of a target, all with the same password. The suite's
// own is also the coordinator's at the participants.
var users = []string{"suite", "reader", "stranger", "operator"}

const (
	password    = "conformance-secret"
	plainModule = "org.apache.kafka.common.security.plain.PlainLoginModule"
)

// login is how clients are let in: by SASL PLAIN, with an authority over TLS.
type login struct {
	dir       string
	authority *certs.Authority // nil: no TLS
}

func newLogin(o Options) (l *login, err error) {
	l = &login{dir: o.Dir}
	if o.Secure {
		l.authority, err = certs.In(o.Dir)
	}
	return l, err
}

func (l *login) protocol() string {
	if l.authority == nil {
		return "SASL_PLAINTEXT"
	}
	return "SASL_SSL"
}

// listener are the properties of a node that all users can log in to.
func (l *login) listener(addr string) ([]string, error) {
	var all strings.Builder
	for _, name := range users {
		fmt.Fprintf(&all, " user_%s=%q", name, password)
	}
	properties := []string{
		"listeners=" + l.protocol() + "://" + addr, "sasl.enabled.mechanisms=PLAIN",
		"listener.name." + strings.ToLower(l.protocol()) + ".plain.sasl.jaas.config=" + plainModule + " required" + all.String() + ";",
	}
	if l.authority == nil {
		return properties, nil
	}
	c, err := l.authority.Issue(pkix.Name{CommonName: addr})
	return append(properties, "ssl.keystore.type=PEM", "ssl.keystore.location="+c.File), err
}

// properties are those of a client, each behind a prefix.
func (l *login) properties(prefix, user string) []string {
	properties := []string{
		prefix + "security.protocol=" + l.protocol(), prefix + "sasl.mechanism=PLAIN",
		fmt.Sprintf("%ssasl.jaas.config=%s required username=%q password=%q;", prefix, plainModule, user, password),
	}
	if l.authority != nil {
		properties = append(properties, prefix+"ssl.truststore.type=PEM", prefix+"ssl.truststore.location="+l.authority.File)
	}
	return properties
}

// client is a user's client.properties.
func (l *login) client(user string) (*conformance.Security, error) {
	file := filepath.Join(l.dir, user+".client.properties")
	text := strings.Join(l.properties("", user), "\n") + "\n"
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return nil, err
	}
	return conformance.ReadSecurity(file)
}
