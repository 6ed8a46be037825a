package config

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// access is a Kafka client's way into one cluster.
type access struct {
	servers []string
	tls     *tls.Config // nil: none
	sasl    sasl.Mechanism
}

// clientOptions are those of a client that is given its dialer.
func (a access) clientOptions() []kgo.Opt {
	opts := []kgo.Opt{kgo.SeedBrokers(a.servers...)}
	if a.sasl != nil {
		opts = append(opts, kgo.SASL(a.sasl))
	}
	return opts
}

// options are those of a client by itself.
func (a access) options() []kgo.Opt {
	opts := a.clientOptions()
	if a.tls != nil {
		opts = append(opts, kgo.DialTLSConfig(a.tls))
	}
	return opts
}

func (a access) dialer() func(context.Context, string, string) (net.Conn, error) {
	if a.tls == nil {
		return nil
	}
	return (&tls.Dialer{Config: a.tls}).DialContext
}

// access reads the client keys behind a prefix.
func (b *builder) access(prefix string) access {
	a := access{servers: list(b.value(prefix + "bootstrap.servers"))}
	if len(a.servers) == 0 {
		b.refuse(prefix+"bootstrap.servers", "is missing")
	}
	for _, server := range a.servers {
		if host, port, err := net.SplitHostPort(server); err != nil || host == "" || port == "" {
			b.refuse(prefix+"bootstrap.servers", "%q is not host:port", server)
		}
	}
	protocol := b.value(prefix + "security.protocol")
	withTLS, withSASL := strings.HasSuffix(protocol, "SSL"), strings.HasPrefix(protocol, "SASL")
	for _, name := range slices.Sorted(maps.Keys(b.settings)) {
		suffix, ours := strings.CutPrefix(name, prefix)
		switch {
		case !ours:
		case strings.HasPrefix(suffix, "ssl.") && !withTLS:
			b.refuse(name, "has no effect with %ssecurity.protocol=%s; take SSL or SASL_SSL", prefix, protocol)
		case strings.HasPrefix(suffix, "sasl.") && !withSASL:
			b.refuse(name, "has no effect with %ssecurity.protocol=%s; take SASL_PLAINTEXT or SASL_SSL", prefix, protocol)
		}
	}
	if withTLS {
		a.tls = b.tls(prefix)
	}
	if withSASL {
		a.sasl = b.login(prefix, protocol)
	}
	return a
}

func (b *builder) login(prefix, protocol string) sasl.Mechanism {
	mechanism, jaas := b.value(prefix+"sasl.mechanism"), b.value(prefix+"sasl.jaas.config")
	if mechanism == "" || jaas == "" {
		for _, key := range []string{"sasl.mechanism", "sasl.jaas.config"} {
			if b.value(prefix+key) == "" {
				b.refuse(prefix+key, "is missing, and %ssecurity.protocol is %s", prefix, protocol)
			}
		}
		return nil
	}
	user, password, err := parseJAAS(jaas, mechanism)
	if err != nil {
		b.refuse(prefix+"sasl.jaas.config", "%v", err)
		return nil
	}
	switch mechanism {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: string(password)}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: string(password)}.AsSha512Mechanism()
	}
	return plain.Auth{User: user, Pass: string(password)}.AsMechanism()
}

func (b *builder) tls(prefix string) *tls.Config {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := b.value(prefix + "ssl.truststore.location"); path != "" {
		pem, err := os.ReadFile(path)
		t.RootCAs = x509.NewCertPool()
		switch {
		case err != nil:
			b.refuse(prefix+"ssl.truststore.location", "%v", err)
		case !t.RootCAs.AppendCertsFromPEM(pem):
			b.refuse(prefix+"ssl.truststore.location", "%s holds no PEM certificate", path)
		}
	}
	if b.value(prefix+"ssl.endpoint.identification.algorithm") == "" {
		// It waives the name, not the chain. crypto/tls has one switch for
		// both, so the chain is verified here.
		t.InsecureSkipVerify = true
		t.VerifyConnection = func(cs tls.ConnectionState) error {
			o := x509.VerifyOptions{Roots: t.RootCAs, Intermediates: x509.NewCertPool()}
			for _, c := range cs.PeerCertificates[1:] {
				o.Intermediates.AddCert(c)
			}
			_, err := cs.PeerCertificates[0].Verify(o)
			return err
		}
	}
	if path := b.value(prefix + "ssl.keystore.location"); path != "" {
		cert, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			b.refuse(prefix+"ssl.keystore.location", "%v", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	return t
}

// jaasOption is one name="value" of a login; a quote in a value is escaped.
var jaasOption = regexp.MustCompile(`\s+([A-Za-z0-9_.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s";]+))`)

// parseJAAS reads <module> required name="value" ...;. Errors do not repeat the
// text, which holds a password.
func parseJAAS(text, mechanism string) (user string, password Secret, err error) {
	module := "org.apache.kafka.common.security.scram.ScramLoginModule"
	if mechanism == "PLAIN" {
		module = "org.apache.kafka.common.security.plain.PlainLoginModule"
	}
	body, ended := strings.CutSuffix(strings.TrimSpace(text), ";")
	rest, named := strings.CutPrefix(body, module)
	options, required := strings.CutPrefix(strings.TrimLeft(rest, " \t\r\n"), "required")
	if !ended || !named || !required {
		return "", "", fmt.Errorf(`write %s required username="..." password="..."; for %s`, module, mechanism)
	}
	values := map[string]string{}
	left := jaasOption.ReplaceAllStringFunc(options, func(option string) string {
		m := jaasOption.FindStringSubmatch(option)
		values[m[1]] = regexp.MustCompile(`\\(.)`).ReplaceAllString(m[2], "$1") + m[3]
		return ""
	})
	switch {
	case strings.TrimSpace(left) != "":
		return "", "", errors.New(`has text that is not name="value"`)
	case values["username"] == "" || values["password"] == "":
		return "", "", errors.New("must give username and password")
	}
	return values["username"], Secret(values["password"]), nil
}
