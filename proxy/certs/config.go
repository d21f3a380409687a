package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

func (s *Source) use(f files) error {
	trusted := &authorities{}
	next := &configs{trusted: trusted}
	own, err := s.ownCertificates(f)
	if err != nil {
		return err
	}
	for _, pair := range own {
		if end := pair.Leaf.NotAfter; next.expires.IsZero() || end.Before(next.expires) {
			next.begins, next.expires = pair.Leaf.NotBefore, end
		}
	}
	if f.ca != nil {
		trusted.roots = x509.NewCertPool()
		if !trusted.roots.AppendCertsFromPEM(f.ca) {
			return fmt.Errorf("tls: %s: %w", s.opt.CA, errNoCertificate)
		}
	}
	if trusted.lists, err = parseRevocations(s.opt.CRL, f.crl, f.ca); err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	if s.opt.HTTP != nil {
		next.server = s.httpServer(own, trusted)
		next.client = s.httpClient(own)
		next.sessions = tls.NewLRUClientSessionCache(maxSessions)
	} else {
		next.server = s.serverConfig(own, trusted)
		next.client = s.clientConfig(own, trusted)
	}
	s.current.Store(next)
	s.loads.Add(1)
	return nil
}

// ownCertificates returns the certificates of the identity, the default first.
func (s *Source) ownCertificates(f files) (own []tls.Certificate, err error) {
	add := func(cert, key string, pair keyPair) {
		if pair.cert == nil || err != nil {
			return
		}
		var c tls.Certificate
		if c, err = tls.X509KeyPair(pair.cert, pair.key); err != nil {
			err = fmt.Errorf("tls: %s and %s: %w", cert, key, err)
			return
		}
		own = append(own, c)
		if end := c.Leaf.NotAfter; !time.Now().Before(end) {
			s.opt.Logger.Warn("TLS certificate has expired; peers will refuse it", "code", CodeExpired, "cert", cert, "expired", end)
		}
	}
	add(s.opt.Cert, s.opt.Key, keyPair{f.cert, f.key})
	for i, pair := range f.more {
		add(s.opt.HTTP.More[i].Cert, s.opt.HTTP.More[i].Key, pair)
	}
	return own, err
}

func (s *Source) serverConfig(own []tls.Certificate, trusted *authorities) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: own,
		// VerifyConnection verifies the chain, and returns a code for each failure.
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(cs tls.ConnectionState) error {
			return trusted.accept(cs.PeerCertificates, x509.ExtKeyUsageClientAuth, s.peers.acceptLeaf)
		},
		// Links live long, so resuming sessions would save little. Without it each
		// handshake shows a certificate, verified by the current configuration.
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

func (s *Source) clientConfig(own []tls.Certificate, trusted *authorities) *tls.Config {
	c := &tls.Config{
		MinVersion:                  tls.VersionTLS12,
		Certificates:                own,
		RootCAs:                     trusted.roots,
		DynamicRecordSizingDisabled: true,
	}
	if len(s.opt.Peers) == 0 { // package tls verifies the chain and the dialled name
		if trusted.lists != nil {
			c.VerifyConnection = func(cs tls.ConnectionState) error { return trusted.lists.check(cs.VerifiedChains) }
		}
		return c
	}
	// Endpoints are dialled by address, which doesn't say whose certificate to
	// expect: VerifyConnection verifies the chain and the peer's name instead.
	c.MinVersion = tls.VersionTLS13
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		return trusted.accept(cs.PeerCertificates, x509.ExtKeyUsageServerAuth, s.peers.acceptLeaf)
	}
	return c
}
