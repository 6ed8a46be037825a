package conformance

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"regexp"
	"strings"

	"github.com/magiconair/properties"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// Security is how clients connect: what a client.properties file says. The nil
// Security is plain text.
type Security struct {
	TLS  *tls.Config
	SASL sasl.Mechanism

	password string
}

var errConfig = errors.New("conformance: client configuration")

// ReadSecurity reads the security keys of a client's properties file as Kafka's
// tools do with --command-config: security.protocol, sasl.mechanism,
// sasl.jaas.config, ssl.truststore.location and ssl.keystore.location (PEM), and
// ssl.endpoint.identification.algorithm.
func ReadSecurity(file string) (*Security, error) {
	p, err := properties.LoadFile(file, properties.UTF8)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errConfig, err)
	}
	s := &Security{}
	protocol := p.GetString("security.protocol", "PLAINTEXT")
	if protocol == "SSL" || protocol == "SASL_SSL" {
		if s.TLS, err = readTLS(p); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errConfig, file, err)
		}
	}
	if strings.HasPrefix(protocol, "SASL_") {
		if err = s.readSASL(p); err != nil {
			return nil, fmt.Errorf("%w: %s: %w", errConfig, file, err)
		}
	}
	return s, nil
}

func readTLS(p *properties.Properties) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if at := p.GetString("ssl.truststore.location", ""); at != "" {
		pem, err := os.ReadFile(at)
		if err != nil {
			return nil, err
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("%s holds no certificate in PEM: %w", at, os.ErrInvalid)
		}
	}
	if at := p.GetString("ssl.keystore.location", ""); at != "" {
		pair, err := tls.LoadX509KeyPair(at, at)
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{pair}
	}
	c.InsecureSkipVerify = p.GetString("ssl.endpoint.identification.algorithm", "https") == ""
	return c, nil
}

var jaas = regexp.MustCompile(`(username|password)="((?:[^"\\]|\\.)*)"`)

func (s *Security) readSASL(p *properties.Properties) error {
	login := map[string]string{}
	for _, m := range jaas.FindAllStringSubmatch(p.GetString("sasl.jaas.config", ""), -1) {
		login[m[1]] = m[2]
	}
	s.password = login["password"]
	switch mechanism := p.GetString("sasl.mechanism", ""); mechanism {
	case "PLAIN":
		s.SASL = plain.Auth{User: login["username"], Pass: s.password}.AsMechanism()
	case "SCRAM-SHA-256":
		s.SASL = scram.Auth{User: login["username"], Pass: s.password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		s.SASL = scram.Auth{User: login["username"], Pass: s.password}.AsSha512Mechanism()
	default:
		return fmt.Errorf("sasl.mechanism %q is not known here (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512): %w", mechanism, os.ErrInvalid)
	}
	return nil
}

// opts are for a kgo client.
func (s *Security) opts() []kgo.Opt {
	var opts []kgo.Opt
	if s != nil && s.TLS != nil {
		opts = append(opts, kgo.DialTLSConfig(s.TLS.Clone()))
	}
	if s != nil && s.SASL != nil {
		opts = append(opts, kgo.SASL(s.SASL))
	}
	return opts
}

func (s *Security) dial(ctx context.Context, addr string) (net.Conn, error) {
	if s == nil || s.TLS == nil {
		return (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	}
	c := s.TLS.Clone()
	if host, _, err := net.SplitHostPort(addr); err == nil && c.ServerName == "" {
		c.ServerName = host
	}
	return (&tls.Dialer{Config: c}).DialContext(ctx, "tcp", addr)
}
