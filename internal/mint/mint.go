// Package mint makes X.509 certificates for the lab and for tests.
package mint

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
)

// Certificate is a certificate with its private key.
type Certificate struct {
	x509 *x509.Certificate
	key  crypto.Signer
}

// New makes a certificate from template, with a new key of ECDSA P-256 and a new serial number. The
// certificate is signed by parent; nil means self-signed. New sets the SerialNumber
// of template.
func New(template *x509.Certificate, parent *Certificate) (*Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	return NewFor(key, template, parent)
}

// NewFor is New for a key, which it keeps.
func NewFor(key crypto.Signer, template *x509.Certificate, parent *Certificate) (_ *Certificate, err error) {
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		return nil, err
	}
	if parent == nil {
		parent = &Certificate{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent.x509, key.Public(), parent.key)
	if err != nil {
		return nil, err
	}
	made, err := x509.ParseCertificate(der)
	return &Certificate{made, key}, err
}

// X509 returns the certificate. Nobody may change it.
func (c *Certificate) X509() *x509.Certificate { return c.x509 }

// RevocationList signs a list that is made from template. The DER of it is returned.
func (c *Certificate) RevocationList(template *x509.RevocationList) ([]byte, error) {
	return x509.CreateRevocationList(rand.Reader, template, c.x509, c.key)
}

// PEM returns the certificate and its key as PEM blocks.
func (c *Certificate) PEM() (cert, key []byte, err error) {
	private, err := x509.MarshalPKCS8PrivateKey(c.key)
	return block("CERTIFICATE", c.x509.Raw), block("PRIVATE KEY", private), err
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
