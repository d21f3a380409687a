package certs

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"net"
	"slices"
)

// HTTP says how an identity serves or calls by HTTP/1.1. What an HTTP client may do that a
// sidecar may not: speak TLS 1.2, and resume a session.
type HTTP struct {
	More       []KeyPair          // further certificates of a server, of which the client's name chooses one
	Clients    tls.ClientAuthType // of a server: NoClientCert, RequestClientCert or RequireAnyClientCert; the Source verifies
	MinVersion uint16             // of a server; 0 means TLS 1.2
}

// KeyPair names the files of a chain, leaf first, and of its private key.
type KeyPair struct{ Cert, Key string }

func (h *HTTP) equal(o *HTTP) bool {
	if h == nil || o == nil {
		return h == o
	}
	return slices.Equal(h.More, o.More) && h.Clients == o.Clients && h.MinVersion == o.MinVersion
}

// httpProtocols are the application protocols of HTTP identities, for ALPN.
var httpProtocols = []string{"http/1.1"}

// serverProtocols are those that a listener offers, in the order of its preference.
var serverProtocols = []string{"h2", "http/1.1"}

// serverSuites are the cipher suites of TLS 1.2 that a listener accepts: those with forward secrecy and authenticated
// encryption. Those of TLS 1.3 all have both.
var serverSuites = []uint16{
	tls.TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, tls.TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
	tls.TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, tls.TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
	tls.TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256, tls.TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
}

// maxSessions bounds the sessions of a client's configuration, which are forgotten with it. The
// one unused for longest is forgotten first.
const maxSessions = 512

// httpServer returns the configuration of an HTTP server. Its sessions may be resumed as long as
// it is in use: what it verified at first it verifies again then.
func (s *Source) httpServer(own []tls.Certificate, trusted *authorities) *tls.Config {
	h := s.opt.HTTP
	c := &tls.Config{
		MinVersion:                  cmp.Or(h.MinVersion, tls.VersionTLS12),
		CipherSuites:                serverSuites,
		Certificates:                own,
		NextProtos:                  serverProtocols,
		DynamicRecordSizingDisabled: true,
	}
	if h.Clients == tls.NoClientCert {
		return c
	}
	c.ClientAuth = h.Clients
	c.ClientCAs = trusted.roots // only to name them to the client
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		if len(cs.PeerCertificates) == 0 && h.Clients == tls.RequestClientCert {
			return nil
		}
		return trusted.accept(cs.PeerCertificates, x509.ExtKeyUsageClientAuth, s.acceptClient)
	}
	return c
}

// acceptClient accepts every verified client if no peers are configured.
func (s *Source) acceptClient(leaf *x509.Certificate) error {
	if len(s.peers.names) == 0 {
		return nil
	}
	return s.peers.acceptLeaf(leaf)
}

// httpClient returns the configuration of an HTTP client, without a name. ClientFor adds one.
func (s *Source) httpClient(own []tls.Certificate) *tls.Config {
	return &tls.Config{
		MinVersion:                  tls.VersionTLS12,
		Certificates:                own,
		NextProtos:                  httpProtocols,
		DynamicRecordSizingDisabled: true,
		// VerifyConnection verifies chain and name, also of a resumed session.
		InsecureSkipVerify: true,
	}
}

// ClientFor returns the configuration for the next connection to addr ("ip:port"), which must
// prove name, or its IP address if name is empty. Peers, if configured, are accepted in place of
// the name. For an identity without HTTP it is Client. The caller must not change it.
func (s *Source) ClientFor(addr, name string) *tls.Config {
	now := s.current.Load()
	if s.opt.HTTP == nil {
		return now.client
	}
	if name == "" {
		name, _, _ = net.SplitHostPort(addr)
	}
	c := now.client.Clone()
	c.ServerName = name
	c.ClientSessionCache = endpointSessions{now.sessions, addr}
	accept := s.peers.acceptLeaf
	if len(s.peers.names) == 0 {
		accept = func(leaf *x509.Certificate) error { return acceptName(leaf, name) }
	}
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		return now.trusted.accept(cs.PeerCertificates, x509.ExtKeyUsageServerAuth, accept)
	}
	return c
}

func acceptName(leaf *x509.Certificate, name string) error {
	if err := leaf.VerifyHostname(name); err != nil {
		return &VerifyError{CodeWrongPeer, err}
	}
	return nil
}

// endpointSessions are the sessions with one endpoint. Another endpoint of the same name can't
// resume them, unless both share their keys.
type endpointSessions struct {
	all  tls.ClientSessionCache
	addr string
}

// Get implements tls.ClientSessionCache.
func (e endpointSessions) Get(name string) (*tls.ClientSessionState, bool) {
	return e.all.Get(e.addr + " " + name)
}

// Put implements tls.ClientSessionCache.
func (e endpointSessions) Put(name string, session *tls.ClientSessionState) {
	e.all.Put(e.addr+" "+name, session)
}
