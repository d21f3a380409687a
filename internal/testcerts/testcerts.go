// Package testcerts makes certificate authorities and certificates for tests, and
// writes them to files. It is test support; no command may import it.
package testcerts

import (
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

	"github.com/remora-proxy/remora/internal/mint"
)

// CA is a certificate authority.
type CA struct {
	t    testing.TB
	cert *mint.Certificate
	PEM  []byte // its certificate
}

// Leaf describes a certificate. Names are DNS names, URIs (with "://") and IP
// addresses.
type Leaf struct {
	Names   []string
	Expired bool
	Lasts   time.Duration      // from now on, in whole seconds; 0 means an hour
	Usage   []x509.ExtKeyUsage // nil means client and server
}

// New makes a certificate authority.
func New(t testing.TB) *CA {
	t.Helper()
	cert := make509(t, &x509.Certificate{
		Subject:   pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	}, nil)
	pem, _ := encode(t, cert)
	return &CA{t: t, cert: cert, PEM: pem}
}

// Issue signs a certificate and returns it and its key, as PEM.
func (ca *CA) Issue(l Leaf) (cert, key []byte) {
	ca.t.Helper()
	return issue(ca.t, l, ca.cert)
}

// List signs a revocation list of certificates, each in PEM, and returns its DER. change, if not
// nil, changes the list before. The next update is due in an hour.
func (ca *CA) List(change func(*x509.RevocationList), revoked ...[]byte) []byte {
	ca.t.Helper()
	list := &x509.RevocationList{
		Number: big.NewInt(1), ThisUpdate: time.Now().Add(-time.Hour), NextUpdate: time.Now().Add(time.Hour),
	}
	for _, b := range revoked {
		block, _ := pem.Decode(b)
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			ca.t.Fatal(err)
		}
		list.RevokedCertificateEntries = append(list.RevokedCertificateEntries,
			x509.RevocationListEntry{SerialNumber: cert.SerialNumber, RevocationTime: time.Now()})
	}
	if change != nil {
		change(list)
	}
	der, err := ca.cert.RevocationList(list)
	if err != nil {
		ca.t.Fatal(err)
	}
	return der
}

// ListPEM returns lists, each in DER, as PEM.
func ListPEM(lists ...[]byte) (all []byte) {
	for _, der := range lists {
		all = append(all, pem.EncodeToMemory(&pem.Block{Type: "X509 CRL", Bytes: der})...)
	}
	return all
}

// SelfSigned makes a self-signed certificate and its key, as PEM.
func SelfSigned(t testing.TB, l Leaf) (cert, key []byte) {
	t.Helper()
	return issue(t, l, nil)
}

func issue(t testing.TB, l Leaf, parent *mint.Certificate) (certPEM, keyPEM []byte) {
	t.Helper()
	template := &x509.Certificate{
		Subject:   pkix.Name{CommonName: "test"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: l.Usage,
	}
	if l.Usage == nil {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}
	}
	if l.Lasts > 0 {
		template.NotAfter = time.Now().Add(l.Lasts)
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
	return encode(t, make509(t, template, parent))
}

func make509(t testing.TB, template *x509.Certificate, parent *mint.Certificate) *mint.Certificate {
	t.Helper()
	cert, err := mint.New(template, parent)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

func encode(t testing.TB, c *mint.Certificate) (cert, key []byte) {
	t.Helper()
	cert, key, err := c.PEM()
	if err != nil {
		t.Fatal(err)
	}
	return cert, key
}

// Dir is a directory with ca.pem, cert.pem and key.pem.
type Dir struct {
	t             testing.TB
	CA, Cert, Key string // paths
	CRL           string // path of a file that NewDir does not write
}

// NewDir makes a directory whose ca.pem is ca. It writes cert and key if they are
// not nil.
func NewDir(t testing.TB, ca *CA, cert, key []byte) Dir {
	t.Helper()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	d := Dir{t, in("ca.pem"), in("cert.pem"), in("key.pem"), in("crl.pem")}
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

// Write replaces a file with b atomically.
func (d Dir) Write(path string, b []byte) {
	d.t.Helper()
	if err := os.WriteFile(path+".new", b, 0o600); err != nil {
		d.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		d.t.Fatal(err)
	}
}
