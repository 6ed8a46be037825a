package properties

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"slices"
	"strings"
)

// Protocols are Kafka's security protocols.
var Protocols = []string{"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// Mechanisms are the SASL mechanisms that are spoken.
var Mechanisms = []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}

// ClientKeys are the keys of a Kafka client: where a cluster is, and
// SecurityKeys.
func ClientKeys() []Key {
	return append([]Key{{Name: "bootstrap.servers", Type: List, Doc: "Where the cluster is found: host:port, with commas between."}}, SecurityKeys()...)
}

// SecurityKeys say how a Kafka client is let in.
func SecurityKeys() []Key {
	return slices.Concat([]Key{
		{Name: "security.protocol", Type: String, Default: "PLAINTEXT", Values: Protocols, Doc: "How to speak to the cluster."},
		{Name: "sasl.mechanism", Type: String, Values: Mechanisms, Doc: "SASL mechanism; needed with SASL_PLAINTEXT and SASL_SSL."},
		{Name: "sasl.jaas.config", Type: Password, Doc: "The login, as in Kafka: <login module> required username=\"...\" password=\"...\";"},
		{Name: "ssl.endpoint.identification.algorithm", Type: String, Default: "https", Values: []string{"https", ""}, Doc: "https compares the server's name with its certificate; nothing leaves that out."},
	}, StoreKeys("this client", "the authorities to trust; by default those of the system"))
}

// StoreKeys are the certificates of whoever speaks TLS.
func StoreKeys(own, trusted string) []Key {
	return []Key{
		{Name: "ssl.keystore.type", Type: String, Default: "PEM", Values: []string{"PEM"}, Doc: "Keys and certificates are read as PEM."},
		{Name: "ssl.keystore.location", Type: String, Doc: "PEM file of the certificate chain and the unencrypted private key of " + own + "."},
		{Name: "ssl.keystore.key", Type: Password, Doc: "The unencrypted private key itself, in PEM, in place of a file."},
		{Name: "ssl.keystore.certificate.chain", Type: Password, Doc: "The certificate chain itself, in PEM, in place of a file."},
		{Name: "ssl.truststore.type", Type: String, Default: "PEM", Values: []string{"PEM"}, Doc: "Certificates are read as PEM."},
		{Name: "ssl.truststore.location", Type: String, Doc: "PEM file of " + trusted + "."},
		{Name: "ssl.truststore.certificates", Type: Password, Doc: "The same as text, in place of a file."},
	}
}

// KeyStore is a private key and its certificates in PEM: a file with both, or
// the two as text. The zero KeyStore is none.
type KeyStore struct {
	Location   string
	Key, Chain Secret
	place      place // that of the key which gave it
}

// IsSet says whether there is one.
func (k KeyStore) IsSet() bool { return k.Location != "" || k.Key != "" }

// TrustStore is the certificates of authorities in PEM: a file, or text. The
// zero TrustStore is none.
type TrustStore struct {
	Location     string
	Certificates Secret
	place        place
}

// IsSet says whether there is one.
func (t TrustStore) IsSet() bool { return t.Location != "" || t.Certificates != "" }

// KeyStore reads the ssl.keystore keys; of gives the name under which each is
// found.
func (s *Settings) KeyStore(of func(suffix string) string) KeyStore {
	location, key, chain := of("ssl.keystore.location"), of("ssl.keystore.key"), of("ssl.keystore.certificate.chain")
	k := KeyStore{Location: s.Value(location), Key: Secret(s.Value(key)), Chain: Secret(s.Value(chain)), place: s.place(location)}
	if k.Location == "" {
		k.place = s.place(key)
	}
	switch {
	case k.Location != "" && k.Key+k.Chain != "":
		s.Refuse(location, "a file, or %s and %s, not both", key, chain)
	case (k.Key == "") != (k.Chain == ""):
		s.Refuse(key, "%s belongs to it: set both or neither", chain)
	}
	return k
}

// TrustStore reads the ssl.truststore keys.
func (s *Settings) TrustStore(of func(suffix string) string) TrustStore {
	location, certificates := of("ssl.truststore.location"), of("ssl.truststore.certificates")
	t := TrustStore{Location: s.Value(location), Certificates: Secret(s.Value(certificates)), place: s.place(location)}
	if t.Location == "" {
		t.place = s.place(certificates)
	}
	if t.Location != "" && t.Certificates != "" {
		s.Refuse(location, "a file, or %s, not both", certificates)
	}
	return t
}

// Read gives the certificate. An *Error names the key and where it was set, and
// repeats nothing of a private key.
func (k KeyStore) Read() (tls.Certificate, error) {
	chain, key := []byte(k.Chain), []byte(k.Key)
	if k.Location != "" {
		text, err := os.ReadFile(k.Location)
		if err != nil {
			return tls.Certificate{}, k.place.errorf("%w", err)
		}
		chain, key = text, text
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, k.place.errorf("it takes a certificate chain and its unencrypted private key in PEM: %w", err)
	}
	return cert, nil
}

// Read gives the authorities. An *Error names the key and where it was set.
func (t TrustStore) Read() (*x509.CertPool, error) {
	text := []byte(t.Certificates)
	if t.Location != "" {
		var err error
		if text, err = os.ReadFile(t.Location); err != nil {
			return nil, t.place.errorf("%w", err)
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, t.place.errorf("%s", strings.TrimSpace(t.Location+" holds no PEM certificate"))
	}
	return pool, nil
}

// Security is how a Kafka client is to be let in, as configured. No file has
// been read for it yet: a configuration can be checked where those are not.
type Security struct {
	TLS            bool
	TrustStore     TrustStore // none: the system's certificates
	KeyStore       KeyStore
	VerifyHostname bool
	SASLMechanism  string // of Mechanisms; empty: none
	Username       string
	Password       Secret
}

// Security reads SecurityKeys that stand behind a prefix, and refuses those that
// contradict one another or have no effect.
func (s *Settings) Security(prefix string) Security {
	of := func(suffix string) string { return prefix + suffix }
	protocol := s.Value(of("security.protocol"))
	sec := Security{
		TLS: strings.HasSuffix(protocol, "SSL"), TrustStore: s.TrustStore(of), KeyStore: s.KeyStore(of),
		VerifyHostname: s.Value(of("ssl.endpoint.identification.algorithm")) == "https",
	}
	withSASL := strings.HasPrefix(protocol, "SASL")
	for _, name := range s.Names() {
		suffix, ours := strings.CutPrefix(name, prefix)
		switch {
		case !ours:
		case strings.HasPrefix(suffix, "ssl.") && !sec.TLS:
			s.Refuse(name, "has no effect with %s=%s; take SSL or SASL_SSL", of("security.protocol"), protocol)
		case strings.HasPrefix(suffix, "sasl.") && !withSASL:
			s.Refuse(name, "has no effect with %s=%s; take SASL_PLAINTEXT or SASL_SSL", of("security.protocol"), protocol)
		}
	}
	if !withSASL {
		return sec
	}
	sec.SASLMechanism = s.Value(of("sasl.mechanism"))
	login := s.Value(of("sasl.jaas.config"))
	for _, key := range []string{of("sasl.mechanism"), of("sasl.jaas.config")} {
		if s.Value(key) == "" {
			s.Refuse(key, "is missing, and %s is %s", of("security.protocol"), protocol)
		}
	}
	if sec.SASLMechanism == "" || login == "" {
		return sec
	}
	var err error
	if sec.Username, sec.Password, err = parseClientLogin(login, sec.SASLMechanism); err != nil {
		s.Refuse(of("sasl.jaas.config"), "%w", err)
	}
	return sec
}
