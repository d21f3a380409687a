// Package testcerts makes certificate authorities and certificates for tests.
package testcerts

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// CA is an authority.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	PEM  []byte // its certificate
}

// Leaf says what is particular about a certificate. Names are DNS names, URIs
// (with "://") and IP addresses.
type Leaf struct {
	Names   []string
	Expired bool
	Usage   []x509.ExtKeyUsage // nil: client and server
}

// New makes an authority.
func New(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &CA{t: t, cert: cert, key: key, PEM: block("CERTIFICATE", der)}
}

// Issue signs a certificate and returns it and its key, as PEM.
func (ca *CA) Issue(l Leaf) (cert, key []byte) {
	ca.t.Helper()
	return issue(ca.t, l, ca.cert, ca.key)
}

// SelfSigned makes a certificate that nobody has signed but itself.
func SelfSigned(t testing.TB, l Leaf) (cert, key []byte) {
	t.Helper()
	return issue(t, l, nil, nil)
}

func issue(t testing.TB, l Leaf, parent *x509.Certificate, signer *ecdsa.PrivateKey) (certPEM, keyPEM []byte) {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.Usage,
	}
	if l.Usage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	if l.Expired {
		template.NotAfter = time.Now().Add(-time.Hour)
	}
	for _, name := range l.Names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else if u, err := url.Parse(name); err == nil && strings.Contains(name, "://") {
			template.URIs = append(template.URIs, u)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return block("CERTIFICATE", der), block("PRIVATE KEY", private)
}

// Dir is a directory with ca.pem, cert.pem and key.pem.
type Dir struct {
	t             testing.TB
	CA, Cert, Key string // paths
}

// NewDir makes a directory that trusts ca; cert and key, if any, are put there.
func NewDir(t testing.TB, ca *CA, cert, key []byte) Dir {
	t.Helper()
	dir := t.TempDir()
	d := Dir{t, filepath.Join(dir, "ca.pem"), filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	d.Write(d.CA, ca.PEM)
	if cert != nil {
		d.Rotate(cert, key)
	}
	return d
}

// Rotate replaces the certificate and its key, one after the other.
func (d Dir) Rotate(cert, key []byte) {
	d.t.Helper()
	d.Write(d.Cert, cert)
	d.Write(d.Key, key)
}

// Write puts b in the place of a file, whole.
func (d Dir) Write(path string, b []byte) {
	d.t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		d.t.Fatal(err)
	}
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func serial(t testing.TB) *big.Int {
	t.Helper()
	n, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
