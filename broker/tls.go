package broker

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// serverTLS is how a listener speaks TLS.
func serverTLS(s config.ServerTLS) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	cert, err := readKeyStore(s.KeyStore)
	if err != nil {
		return nil, err
	}
	t.Certificates = []tls.Certificate{cert}
	switch s.ClientAuth {
	case config.ClientAuthNone:
		return t, nil
	case config.ClientAuthRequested:
		t.ClientAuth = tls.VerifyClientCertIfGiven
	case config.ClientAuthRequired:
		t.ClientAuth = tls.RequireAndVerifyClientCert
	}
	t.ClientCAs, err = readTrustStore(s.TrustStore)
	return t, err
}

// ClientTLS is how this node speaks TLS to a cluster.
func ClientTLS(s config.Security) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	var err error
	if s.TrustStore.Setting != "" {
		if t.RootCAs, err = readTrustStore(s.TrustStore); err != nil {
			return nil, err
		}
	}
	if s.KeyStore.Setting != "" {
		cert, err := readKeyStore(s.KeyStore)
		if err != nil {
			return nil, err
		}
		t.Certificates = []tls.Certificate{cert}
	}
	if !s.VerifyHostname {
		// An empty ssl.endpoint.identification.algorithm waives the name,
		// not the chain. crypto/tls has one switch for both, so the chain is
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

// readKeyStore gives the certificate of a node. Errors name the setting and
// repeat nothing of a key.
func readKeyStore(k config.KeyStore) (tls.Certificate, error) {
	chain, key := []byte(k.Chain), []byte(k.Key)
	if k.Location != "" {
		text, err := os.ReadFile(k.Location)
		if err != nil {
			return tls.Certificate{}, fmt.Errorf("%s: %w", k.Setting, err)
		}
		chain, key = text, text
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("%s: it takes a certificate chain and its unencrypted private key in PEM: %w", k.Setting, err)
	}
	return cert, nil
}

func readTrustStore(s config.TrustStore) (*x509.CertPool, error) {
	text := []byte(s.Certificates)
	if s.Location != "" {
		var err error
		if text, err = os.ReadFile(s.Location); err != nil {
			return nil, fmt.Errorf("%s: %w", s.Setting, err)
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return nil, fmt.Errorf("%s holds no PEM certificate", s.Setting)
	}
	return pool, nil
}
