package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/magiconair/properties"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// accessKeys are the client properties of --command-config, Kafka's names, with
// the values that are allowed where not every one is.
var accessKeys = map[string][]string{
	"security.protocol":     {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"},
	"sasl.mechanism":        {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"},
	"sasl.jaas.config":      nil,
	"ssl.truststore.type":   {"PEM"},
	"ssl.keystore.type":     {"PEM"},
	"ssl.keystore.location": nil, "ssl.truststore.location": nil,
	"ssl.endpoint.identification.algorithm": {"https", ""},
}

// readAccess reads a file of client properties. Errors name the key and repeat
// no value that may be a password.
func readAccess(path string) ([]kgo.Opt, error) {
	if path == "" {
		return nil, nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("--command-config: %w", err)
	}
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	p, err := loader.LoadBytes(text)
	if err != nil {
		// The library's error repeats the text.
		return nil, fmt.Errorf("--command-config: %s is not a file of properties", path)
	}
	values := p.Map()
	for key, value := range values {
		allowed, known := accessKeys[key]
		if !known {
			return nil, fmt.Errorf("--command-config: unknown key %q; known are %s", key, strings.Join(slices.Sorted(maps.Keys(accessKeys)), ", "))
		}
		if allowed != nil && !slices.Contains(allowed, value) {
			return nil, fmt.Errorf("--command-config: %s: %q is not one of %s", key, value, strings.Join(allowed, ", "))
		}
	}
	var opts []kgo.Opt
	protocol := values["security.protocol"]
	if strings.HasSuffix(protocol, "SSL") {
		t, err := readTLS(values)
		if err != nil {
			return nil, fmt.Errorf("--command-config: %w", err)
		}
		opts = append(opts, kgo.DialTLSConfig(t))
	}
	if strings.HasPrefix(protocol, "SASL") {
		login, err := readLogin(values["sasl.mechanism"], values["sasl.jaas.config"])
		if err != nil {
			return nil, fmt.Errorf("--command-config: %w", err)
		}
		opts = append(opts, login)
	}
	return opts, nil
}

func readTLS(values map[string]string) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if path := values["ssl.truststore.location"]; path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("ssl.truststore.location: %w", err)
		}
		t.RootCAs = x509.NewCertPool()
		if !t.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("ssl.truststore.location: %s holds no PEM certificate", path)
		}
	}
	if path := values["ssl.keystore.location"]; path != "" {
		cert, err := tls.LoadX509KeyPair(path, path)
		if err != nil {
			return nil, fmt.Errorf("ssl.keystore.location: %w", err)
		}
		t.Certificates = []tls.Certificate{cert}
	}
	if algorithm, set := values["ssl.endpoint.identification.algorithm"]; set && algorithm == "" {
		// It waives the name, not the chain; crypto/tls has one switch for
		// both.
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

// loginOption finds an option of a login; a quote in a value is escaped.
func loginOption(jaas, name string) string {
	m := regexp.MustCompile(`\s` + name + `\s*=\s*"((?:[^"\\]|\\.)*)"`).FindStringSubmatch(jaas)
	if m == nil {
		return ""
	}
	return regexp.MustCompile(`\\(.)`).ReplaceAllString(m[1], "$1")
}

func readLogin(mechanism, jaas string) (kgo.Opt, error) {
	user, password := loginOption(jaas, "username"), loginOption(jaas, "password")
	if user == "" || password == "" {
		return nil, errors.New(`sasl.jaas.config: it takes <login module> required username="..." password="...";`)
	}
	switch mechanism {
	case "PLAIN":
		return kgo.SASL(plain.Auth{User: user, Pass: password}.AsMechanism()), nil
	case "SCRAM-SHA-256":
		return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha256Mechanism()), nil
	case "SCRAM-SHA-512":
		return kgo.SASL(scram.Auth{User: user, Pass: password}.AsSha512Mechanism()), nil
	}
	return nil, errors.New("sasl.mechanism is missing")
}
