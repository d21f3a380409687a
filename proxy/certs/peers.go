package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Peers is a list of accepted names. Each is matched against the subject
// alternative names of a certificate; the common name is never looked at.
type Peers []peer

// peer is one pattern.
type peer struct {
	uri    string // an exact URI, or the start of one with prefix; "": it is a DNS name
	prefix bool
	dns    string // lower case; with a dot in front: one more label before it
}

// ParsePeers reads a list of
//
//	spiffe://domain/path    that URI; with /* at its end, every one below
//	dns:name or name        that DNS name, in any case
//	dns:*.suffix, *.suffix  every name of one label more
func ParsePeers(list []string) (Peers, error) {
	var out Peers
	for _, text := range list {
		p, err := parsePeer(text)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

func parsePeer(text string) (peer, error) {
	wrong := func() (peer, error) {
		return peer{}, fmt.Errorf("tls: peers: expected spiffe://domain/path, dns:name or *.suffix, got %q", text)
	}
	if strings.Contains(text, "://") {
		p := peer{uri: text}
		if base, ok := strings.CutSuffix(text, "/*"); ok {
			p = peer{uri: base + "/", prefix: true}
		}
		u, err := url.Parse(p.uri)
		if err != nil || u.Host == "" || strings.Contains(p.uri, "*") {
			return wrong()
		}
		return p, nil
	}
	name := strings.ToLower(strings.TrimPrefix(text, "dns:"))
	suffix, isWild := strings.CutPrefix(name, "*")
	if isWild != strings.HasPrefix(suffix, ".") || strings.ContainsAny(suffix, "*/: \t") || strings.Trim(suffix, ".") == "" {
		return wrong()
	}
	return peer{dns: suffix}, nil
}

// match tells whether cert has a name that p accepts. A wildcard in the
// certificate is not a name: it would let its holder be anyone.
func (p peer) match(cert *x509.Certificate) bool {
	if p.uri != "" {
		for _, u := range cert.URIs {
			s := u.String()
			if s == p.uri && !p.prefix || p.prefix && strings.HasPrefix(s, p.uri) && len(s) > len(p.uri) {
				return true
			}
		}
		return false
	}
	for _, name := range cert.DNSNames {
		name = strings.ToLower(name)
		label, wild := strings.CutSuffix(name, p.dns)
		if strings.Contains(name, "*") || !wild {
			continue
		}
		if p.dns[0] != '.' && label == "" || p.dns[0] == '.' && label != "" && !strings.Contains(label, ".") {
			return true
		}
	}
	return false
}

// Codes of refused peers, stable, for logs and metrics.
const (
	CodeNoCertificate = "tls_no_certificate" // it showed none
	CodeExpired       = "tls_expired"        // past its end, or before its start
	CodeUnknownCA     = "tls_unknown_ca"     // signed by itself, or by nobody we trust
	CodeWrongPeer     = "tls_wrong_peer"     // a good certificate, but none of the names in peers
	CodeBadCert       = "tls_bad_certificate"
)

// VerifyError is a refused peer certificate. crypto/tls passes it on as it is
// from the handshake.
type VerifyError struct {
	Code string
	Err  error
}

// Error implements error.
func (e *VerifyError) Error() string {
	return "tls: the peer's certificate is refused: " + e.Err.Error()
}

// Unwrap returns the cause.
func (e *VerifyError) Unwrap() error { return e.Err }

// verify holds a peer's chain, leaf first, against roots and the list.
func (p Peers) verify(chain []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage) error {
	if len(chain) == 0 {
		return &VerifyError{CodeNoCertificate, errors.New("there is none")}
	}
	o := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool(), KeyUsages: []x509.ExtKeyUsage{usage}}
	for _, c := range chain[1:] {
		o.Intermediates.AddCert(c)
	}
	leaf := chain[0]
	if _, err := leaf.Verify(o); err != nil {
		return &VerifyError{codeOf(err), err}
	}
	for _, accepted := range p {
		if accepted.match(leaf) {
			return nil
		}
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
