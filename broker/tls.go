package broker

import (
	"crypto/tls"

	"github.com/kafka-gtc/kafka-gtc/broker/config"
)

// serverTLS is how a listener speaks TLS.
func serverTLS(s config.ServerTLS) (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	cert, err := s.KeyStore.Read()
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
	t.ClientCAs, err = s.TrustStore.Read()
	return t, err
}
