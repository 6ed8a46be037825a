package properties

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// dialTimeout is kgo's own: an address that swallows packets holds nobody up
// for minutes.
const dialTimeout = 10 * time.Second

// Access is a Kafka client's way into a cluster, ready for use. The zero Access
// is plain text without login.
type Access struct {
	TLS  *tls.Config    // nil: plain text
	SASL sasl.Mechanism // nil: no login
}

// LoadSecurity reads a file of SecurityKeys and nothing else, as Kafka's tools
// take it with --command-config. The error joins every *Error found.
func LoadSecurity(path string) (Security, error) {
	s, err := Load(path, nil)
	if err != nil {
		return Security{}, err
	}
	s.Check(SchemaOf(SecurityKeys()))
	if err := s.Err(); err != nil {
		return Security{}, err
	}
	sec := s.Security("")
	return sec, s.Err()
}

// Access is the way in that the SecurityKeys behind a prefix describe, for those
// that need it at once; what is wrong with certificates is in Err as well.
func (s *Settings) Access(prefix string) Access {
	before := len(s.errs)
	sec := s.Security(prefix)
	if len(s.errs) > before {
		return Access{}
	}
	a, err := sec.Open()
	if err != nil {
		s.errs = append(s.errs, err)
	}
	return a
}

// Open reads the certificates. An *Error names the key that is to blame.
func (s Security) Open() (a Access, err error) {
	if s.TLS {
		if a.TLS, err = s.tls(); err != nil {
			return Access{}, err
		}
	}
	switch user, password := s.Username, string(s.Password); s.SASLMechanism {
	case "PLAIN":
		a.SASL = plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		a.SASL = scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		a.SASL = scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	}
	return a, nil
}

func (s Security) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if s.TrustStore.IsSet() {
		pool, err := s.TrustStore.Read()
		if err != nil {
			return nil, err
		}
		t.RootCAs = pool
	}
	if s.KeyStore.IsSet() {
		cert, err := s.KeyStore.Read()
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{cert}
	}
	if !s.VerifyHostname {
		// An empty ssl.endpoint.identification.algorithm waives the name, not
		// the chain. crypto/tls has one switch for both, so the chain is
		// verified here.
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
	return t, nil
}

// ClientOpts are those of a kgo client, without its seed brokers.
func (a Access) ClientOpts() []kgo.Opt {
	opts := a.LoginOpts()
	if a.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(a.TLS))
	}
	return opts
}

// LoginOpts are those of a kgo client that is given its dialer, which is to be
// DialContext.
func (a Access) LoginOpts() []kgo.Opt {
	if a.SASL == nil {
		return nil
	}
	return []kgo.Opt{kgo.SASL(a.SASL)}
}

// DialContext connects; the login, if any, is the client's.
func (a Access) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	d := &net.Dialer{Timeout: dialTimeout}
	if a.TLS == nil {
		return d.DialContext(ctx, network, address)
	}
	return (&tls.Dialer{NetDialer: d, Config: a.TLS}).DialContext(ctx, network, address)
}
