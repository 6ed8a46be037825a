package properties_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kafka-gtc/kafka-gtc/conformance/certs"
	"github.com/kafka-gtc/kafka-gtc/gtc/client/properties"
)

const (
	plainLogin = properties.PlainModule + ` required username="u" password="geheim";`
	scramLogin = properties.ScramModule + " required\n" + ` username="u" password="a\"${b};=c";`
)

func TestSecurityThatContradictsItselfIsRefused(t *testing.T) {
	sasl := "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
	for name, c := range map[string]struct {
		file, key string
		line      int
		says      string
	}{
		"ssl without SSL":         {"ssl.truststore.location=/x", "ssl.truststore.location", 1, "has no effect with security.protocol=PLAINTEXT; take SSL or SASL_SSL"},
		"sasl without SASL":       {"security.protocol=SSL\nsasl.mechanism=PLAIN", "sasl.mechanism", 2, "has no effect with security.protocol=SSL; take SASL_PLAINTEXT or SASL_SSL"},
		"no mechanism":            {"security.protocol=SASL_SSL", "sasl.mechanism", 0, "is missing, and security.protocol is SASL_SSL"},
		"no login":                {"security.protocol=SASL_SSL", "sasl.jaas.config", 0, "is missing, and security.protocol is SASL_SSL"},
		"another module":          {sasl + "sasl.jaas.config=" + strings.Replace(plainLogin, "Plain", "Scram", 1), "sasl.jaas.config", 3, "must begin with " + properties.PlainModule + ", the login module of PLAIN"},
		"no password":             {sasl + "sasl.jaas.config=" + properties.PlainModule + ` required username="geheim";`, "sasl.jaas.config", 3, "must give username and password"},
		"no semicolon":            {sasl + "sasl.jaas.config=" + strings.TrimSuffix(plainLogin, ";"), "sasl.jaas.config", 3, "must end in a semicolon"},
		"not required":            {sasl + "sasl.jaas.config=" + strings.Replace(plainLogin, "required", "", 1), "sasl.jaas.config", 3, `must have the word "required"`},
		"loose text":              {sasl + "sasl.jaas.config=" + strings.Replace(plainLogin, "required", "required geheim", 1), "sasl.jaas.config", 3, `has text that is not name="value"`},
		"a key without its chain": {"security.protocol=SSL\nssl.keystore.key=geheim", "ssl.keystore.key", 2, "ssl.keystore.certificate.chain belongs to it: set both or neither"},
		"a chain without its key": {"security.protocol=SSL\nssl.keystore.certificate.chain=c", "ssl.keystore.key", 0, "ssl.keystore.certificate.chain belongs to it: set both or neither"},
		"a key twice":             {"security.protocol=SSL\nssl.keystore.key=geheim\nssl.keystore.certificate.chain=c\nssl.keystore.location=/k", "ssl.keystore.location", 4, "not both"},
		"authorities twice":       {"security.protocol=SSL\nssl.truststore.location=/k\nssl.truststore.certificates=geheim", "ssl.truststore.location", 2, "a file, or ssl.truststore.certificates, not both"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustParse(t, c.file)
			s.Security("")
			if err := s.Err(); !refused(err, c.key, c.line, c.says) || strings.Contains(err.Error(), "geheim") {
				t.Errorf("want key %q, line %d, %q; got:\n%v", c.key, c.line, c.says, err)
			}
		})
	}
}

// The file is that of a tool: SecurityKeys alone.
func TestLoadSecurity(t *testing.T) {
	write := func(text string) string {
		path := filepath.Join(t.TempDir(), "client.properties")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	escaped := strings.NewReplacer("\n", `\n`, `\`, `\\`).Replace(scramLogin)
	for _, mechanism := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
		sec, err := properties.LoadSecurity(write("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=" + mechanism + "\nsasl.jaas.config=" + escaped))
		if err != nil || sec.TLS || sec.Username != "u" || string(sec.Password) != `a"${b};=c` {
			t.Fatalf("%+v, %v", sec, err)
		}
		if a, err := sec.Open(); err != nil || a.SASL.Name() != mechanism || a.TLS != nil || len(a.ClientOpts()) != 1 || len(a.LoginOpts()) != 1 {
			t.Errorf("%+v, %v", a, err)
		}
	}
	for text, want := range map[string]string{
		"bootstrap.servers=a:1":            ":1: bootstrap.servers: unknown key; known are security.protocol, ",
		"\nsecurity.protokol=SSL":          ":2: security.protokol: unknown key; did you mean security.protocol?",
		"security.protocol=TLS":            ":1: security.protocol: \"TLS\" is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
		"ssl.truststore.type=JKS":          ":1: ssl.truststore.type: \"JKS\" is not one of PEM",
		"security.protocol=SASL_PLAINTEXT": ": sasl.mechanism: is missing",
	} {
		path := write(text)
		if _, err := properties.LoadSecurity(path); err == nil || !strings.Contains(err.Error(), path+want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
	if sec, err := properties.LoadSecurity(""); err != nil || sec.TLS || sec.SASLMechanism != "" {
		t.Errorf("without a file: %+v, %v", sec, err)
	}
}

// A file that is not what it should be is named with the key that names it.
func TestCertificatesThatCannotBeRead(t *testing.T) {
	none, empty := filepath.Join(t.TempDir(), "none.pem"), filepath.Join(t.TempDir(), "empty.pem")
	if err := os.WriteFile(empty, []byte("geheim"), 0o600); err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"ssl.truststore.location=" + none:                                    "f.properties:2: ssl.truststore.location: open " + none,
		"ssl.truststore.location=" + empty:                                   "f.properties:2: ssl.truststore.location: " + empty + " holds no PEM certificate",
		"ssl.truststore.certificates=geheim":                                 "f.properties:2: ssl.truststore.certificates: holds no PEM certificate",
		"ssl.keystore.location=" + none:                                      "f.properties:2: ssl.keystore.location: open " + none,
		"ssl.keystore.location=" + empty:                                     "f.properties:2: ssl.keystore.location: it takes a certificate chain and its unencrypted private key in PEM: ",
		"ssl.keystore.key=geheim\nssl.keystore.certificate.chain=geheim too": "f.properties:2: ssl.keystore.key: it takes a certificate chain",
	} {
		s := mustParse(t, "security.protocol=SSL\n"+line)
		sec := s.Security("")
		if err := s.Err(); err != nil {
			t.Fatal(err)
		}
		_, err := sec.Open()
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s\n  gave %v\n  want %s", line, err, want)
		}
		if errors.Is(err, os.ErrNotExist) != strings.Contains(line, none) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// The server's certificate is for 127.0.0.1, and not for 127.0.0.2, where it is
// met as well. Stores are read from a file and inline.
func TestTLS(t *testing.T) {
	ca, other := certs.New(t), certs.New(t)
	server, client := ca.Sign(t, pkix.Name{CommonName: "server"}), ca.Sign(t, pkix.Name{CommonName: "alice"})
	inline := func(pem []byte) string { return strings.ReplaceAll(string(pem), "\n", `\n`) }
	own := "ssl.keystore.key=" + inline(client.Key) + "\nssl.keystore.certificate.chain=" + inline(client.Chain)
	const anyName = "\nssl.endpoint.identification.algorithm="
	for name, c := range map[string]struct {
		host, file string
		refused    bool
		asked      string // the name that the server sees
	}{
		"authority in a file":      {"127.0.0.1", "ssl.truststore.location=" + ca.File, false, ""},
		"authority inline":         {"127.0.0.1", "ssl.truststore.certificates=" + inline(ca.PEM), false, ""},
		"the system's authorities": {"127.0.0.1", "", true, ""},
		"another authority":        {"127.0.0.1", "ssl.truststore.location=" + other.File, true, ""},
		"another name":             {"127.0.0.2", "ssl.truststore.location=" + ca.File, true, ""},
		"any name":                 {"127.0.0.2", "ssl.truststore.location=" + ca.File + anyName, false, ""},
		"any name, not any chain":  {"127.0.0.2", "ssl.truststore.location=" + other.File + anyName, true, ""},
		"own certificate, a file":  {"127.0.0.1", "ssl.truststore.location=" + ca.File + "\nssl.keystore.location=" + client.File, false, "alice"},
		"own certificate, inline":  {"127.0.0.1", "ssl.truststore.location=" + ca.File + "\n" + own, false, "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			s := mustParse(t, "security.protocol=SSL\n"+c.file)
			sec := s.Security("")
			if err := s.Err(); err != nil {
				t.Fatal(err)
			}
			a, err := sec.Open()
			if err != nil {
				t.Fatal(err)
			}
			addr, seen := serve(t, c.host, server, ca)
			conn, err := a.DialContext(t.Context(), "tcp", addr)
			if err == nil {
				t.Cleanup(func() { _ = conn.Close() })
			}
			if (err != nil) != c.refused {
				t.Fatalf("%v, refused is to be %v", err, c.refused)
			}
			if got := <-seen; !c.refused && got != c.asked {
				t.Errorf("the server met %q, want %q", got, c.asked)
			}
			if _, err := kgo.NewClient(a.ClientOpts()...); err != nil {
				t.Error(err)
			}
		})
	}
}

// serve accepts one connection and tells whom it was from.
func serve(t *testing.T, host string, cert certs.Certificate, ca *certs.Authority) (addr string, seen <-chan string) {
	t.Helper()
	pair, err := tls.X509KeyPair(cert.Chain, cert.Key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	l, err := tls.Listen("tcp", host+":0", &tls.Config{Certificates: []tls.Certificate{pair}, ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	names := make(chan string, 1)
	go func() {
		defer close(names)
		c, err := l.Accept()
		if err != nil {
			return
		}
		secure := c.(*tls.Conn)
		defer func() { _ = secure.Close() }()
		if secure.HandshakeContext(t.Context()) != nil {
			return
		}
		if shown := secure.ConnectionState().PeerCertificates; len(shown) > 0 {
			names <- shown[0].Subject.CommonName
		}
	}()
	return l.Addr().String(), names
}
