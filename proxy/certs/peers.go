package certs

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/url"
	"strings"
)

// Peers is a list of accepted names. Each is matched against the subject
// alternative names of a certificate; the common name is ignored.
type Peers []peer

type peer struct {
	uri    string // a URI, or its beginning if prefix is set; empty for a DNS name
	prefix bool
	dns    string // in lower case; after a leading dot, a suffix of names with one more label
}

// ParsePeers reads a list of
//
//	spiffe://domain/path    that URI; with /* at its end, each URI below it, if its path is valid in SPIFFE
//	dns:name or name        that DNS name; case is ignored
//	dns:*.suffix, *.suffix  each name with one more label
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

// match reports whether cert has a name that p accepts. Wildcards in the
// certificate match nothing: their holder could claim any name.
func (p peer) match(cert *x509.Certificate) bool {
	if p.uri != "" {
		for _, u := range cert.URIs {
			below, starts := strings.CutPrefix(u.String(), p.uri)
			if starts && (below == "" && !p.prefix || p.prefix && validPath(below)) {
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

// validPath reports whether path is valid in a SPIFFE ID (SPIFFE-ID, section 2.2). Others might
// name something that is not below the prefix: "../x", "%2e%2e/x", "?x".
func validPath(path string) bool {
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" || segment == "." || segment == ".." || strings.ContainsFunc(segment, func(r rune) bool {
			return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("-._", r)
		}) {
			return false
		}
	}
	return true
}

// Codes of refused peers. They are stable, for logs and metrics.
const (
	CodeNoCertificate = "tls_no_certificate" // the peer showed none
	CodeExpired       = "tls_expired"        // expired, or not valid yet
	CodeUnknownCA     = "tls_unknown_ca"     // self-signed, or signed by an unknown authority
	CodeWrongPeer     = "tls_wrong_peer"     // valid, but none of its names is in peers
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

// verify checks a peer's chain, leaf first, against roots and the accepted names.
func (p Peers) verify(chain []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage) error {
	if len(chain) == 0 {
		return &VerifyError{CodeNoCertificate, errors.New("no certificate")}
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
