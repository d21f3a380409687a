package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/remora-proxy/remora/proxy/identity"
)

// Peers is a list of accepted names. Each is matched against the subject
// alternative names of a certificate; the common name is ignored.
type Peers struct{ names identity.Patterns }

// ParsePeers reads a list of patterns, as identity.Parse does.
func ParsePeers(list []string) (Peers, error) {
	names, err := identity.Parse(list)
	if err != nil {
		return Peers{}, fmt.Errorf("tls: peers: %w", err)
	}
	return Peers{names}, nil
}

func (p Peers) accept(cert *x509.Certificate) bool { return p.names.Match(Names(cert)) }

// Names returns the subject alternative names of a certificate. Wildcards in the certificate
// are left out: their holder could claim any name.
func Names(cert *x509.Certificate) *identity.Names {
	n := &identity.Names{}
	for _, u := range cert.URIs {
		n.URIs = append(n.URIs, u.String())
	}
	for _, name := range cert.DNSNames {
		if !strings.Contains(name, "*") {
			n.DNS = append(n.DNS, strings.ToLower(name))
		}
	}
	return n
}

// Codes of refused peers. They are stable, for logs and metrics.
const (
	CodeNoCertificate = "tls_no_certificate" // the peer showed none
	CodeExpired       = "tls_expired"        // expired, or not valid yet
	CodeUnknownCA     = "tls_unknown_ca"     // self-signed, or signed by an unknown authority
	CodeWrongPeer     = "tls_wrong_peer"     // valid, but none of its names is in peers
	CodeRevoked       = "tls_revoked"        // its certificate, or an authority of its chain, is on a list
	CodeBadCert       = "tls_bad_certificate"
)

// VerifyError says why a peer's certificate was refused. crypto/tls returns it from
// the handshake without wrapping.
type VerifyError struct {
	Code string
	Err  error
}

// Error implements error.
func (e *VerifyError) Error() string {
	return "tls: peer's certificate refused: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *VerifyError) Unwrap() error { return e.Err }

// Is makes it an fs.ErrPermission, for those who only ask whether something is refused.
func (e *VerifyError) Is(target error) bool { return target == fs.ErrPermission }

// acceptLeaf returns an error unless one of the names of leaf is accepted.
func (p Peers) acceptLeaf(leaf *x509.Certificate) error {
	if p.accept(leaf) {
		return nil
	}
	return &VerifyError{CodeWrongPeer, fmt.Errorf("none of its names is in peers: DNS %q, URI %q", leaf.DNSNames, leaf.URIs)}
}

func codeOf(err error) string {
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	switch {
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return CodeExpired
	case errors.As(err, &unknown):
		return CodeUnknownCA
	}
	return CodeBadCert
}
