// Package certs makes the certificates of tests: an authority for one test, and
// what it signs. Nothing of it is kept.
package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// lifetime of what is signed.
const lifetime = 24 * time.Hour

// Authority signs certificates.
type Authority struct {
	// File is the PEM file of its own certificate.
	File string
	// PEM is what File holds.
	PEM []byte

	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// Certificate is a signed one, in the two forms that Kafka takes.
type Certificate struct {
	// File is a PEM file of the private key (PKCS #8) and the certificate.
	File string
	// Key and Chain are the same as text.
	Key, Chain []byte
}

// New makes an authority whose files are in a directory of the test.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{dir: tb.TempDir(), key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-lifetime), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.PEM = block("CERTIFICATE", der)
	a.File = a.write(tb, "authority.pem", a.PEM)
	return a
}

// Sign makes a certificate for a name, good for servers on this machine and
// for clients.
func (a *Authority) Sign(tb testing.TB, name pkix.Name) Certificate {
	tb.Helper()
	key := newKey(tb)
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: name,
		NotBefore: time.Now().Add(-lifetime), NotAfter: time.Now().Add(lifetime),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		tb.Fatal(err)
	}
	c := Certificate{Key: block("PRIVATE KEY", private), Chain: block("CERTIFICATE", der)}
	c.File = a.write(tb, template.SerialNumber.String()+".pem", append(append([]byte{}, c.Key...), c.Chain...))
	return c
}

func (a *Authority) write(tb testing.TB, name string, text []byte) string {
	tb.Helper()
	path := filepath.Join(a.dir, name)
	if err := os.WriteFile(path, text, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	var b [8]byte
	if _, err := rand.Read(b[:]); err != nil {
		tb.Fatal(err)
	}
	return new(big.Int).SetBytes(b[:])
}
