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
	"slices"
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
	a, err := In(tb.TempDir())
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// In makes an authority whose files are in a directory.
func In(dir string) (*Authority, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	a := &Authority{dir: dir, key: key}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: pkix.Name{CommonName: "authority of a test"},
		NotBefore: time.Now().Add(-lifetime), NotAfter: time.Now().Add(lifetime),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.PEM = block("CERTIFICATE", der)
	a.File, err = a.write("authority.pem", a.PEM)
	return a, err
}

// Sign makes a certificate for a name, good for servers on this machine and
// for clients.
func (a *Authority) Sign(tb testing.TB, name pkix.Name) Certificate {
	tb.Helper()
	c, err := a.Issue(name)
	if err != nil {
		tb.Fatal(err)
	}
	return c
}

// Issue is Sign outside a test.
func (a *Authority) Issue(name pkix.Name) (c Certificate, err error) {
	key, err := newKey()
	if err != nil {
		return c, err
	}
	template := &x509.Certificate{
		SerialNumber: serial(), Subject: name,
		NotBefore: time.Now().Add(-lifetime), NotAfter: time.Now().Add(lifetime),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		return c, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return c, err
	}
	c.Key, c.Chain = block("PRIVATE KEY", private), block("CERTIFICATE", der)
	c.File, err = a.write(template.SerialNumber.String()+".pem", slices.Concat(c.Key, c.Chain))
	return c, err
}

func (a *Authority) write(name string, text []byte) (string, error) {
	path := filepath.Join(a.dir, name)
	return path, os.WriteFile(path, text, 0o600)
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func newKey() (*ecdsa.PrivateKey, error) { return ecdsa.GenerateKey(elliptic.P256(), rand.Reader) }

func serial() *big.Int {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails, says package rand
	return new(big.Int).SetBytes(b[:])
}
