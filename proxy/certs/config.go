package certs

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

func (s *Source) use(f files) error {
	next := &configs{}
	var own []tls.Certificate
	if f.cert != nil {
		pair, err := tls.X509KeyPair(f.cert, f.key)
		if err != nil {
			return fmt.Errorf("tls: %s and %s: %w", s.opt.Cert, s.opt.Key, err)
		}
		own = []tls.Certificate{pair}
		next.expires = pair.Leaf.NotAfter
		if !time.Now().Before(next.expires) {
			s.opt.Logger.Warn("TLS certificate has expired; peers will refuse it",
				"code", CodeExpired, "cert", s.opt.Cert, "expired", next.expires)
		}
	}
	var roots *x509.CertPool // nil means those of the system
	if f.ca != nil {
		roots = x509.NewCertPool()
		if !roots.AppendCertsFromPEM(f.ca) {
			return fmt.Errorf("tls: %s: %w", s.opt.CA, errNoCertificate)
		}
	}
	lists, err := parseRevocations(s.opt.CRL, f.crl, f.ca)
	if err != nil {
		return fmt.Errorf("tls: %w", err)
	}
	next.lists = lists
	next.server = s.serverConfig(own, roots, lists)
	next.client = s.clientConfig(own, roots, lists)
	s.current.Store(next)
	s.loads.Add(1)
	return nil
}

func (s *Source) serverConfig(own []tls.Certificate, roots *x509.CertPool, lists *revocations) *tls.Config {
	return &tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: own,
		// VerifyConnection verifies the chain, and returns a code for each failure.
		ClientAuth: tls.RequireAnyClientCert,
		VerifyConnection: func(cs tls.ConnectionState) error {
			return s.peers.verify(cs.PeerCertificates, roots, lists, x509.ExtKeyUsageClientAuth)
		},
		// Links live long, so resuming sessions would save little. Without it each
		// handshake shows a certificate, verified by the current configuration.
		SessionTicketsDisabled:      true,
		DynamicRecordSizingDisabled: true,
	}
}

func (s *Source) clientConfig(own []tls.Certificate, roots *x509.CertPool, lists *revocations) *tls.Config {
	c := &tls.Config{
		MinVersion:                  tls.VersionTLS12,
		Certificates:                own,
		RootCAs:                     roots,
		DynamicRecordSizingDisabled: true,
	}
	if len(s.opt.Peers) == 0 { // package tls verifies the chain and the dialled name
		if lists != nil {
			c.VerifyConnection = func(cs tls.ConnectionState) error { return lists.check(cs.VerifiedChains) }
		}
		return c
	}
	// Endpoints are dialled by address, which doesn't say whose certificate to
	// expect: VerifyConnection verifies the chain and the peer's name instead.
	c.MinVersion = tls.VersionTLS13
	c.InsecureSkipVerify = true
	c.VerifyConnection = func(cs tls.ConnectionState) error {
		return s.peers.verify(cs.PeerCertificates, roots, lists, x509.ExtKeyUsageServerAuth)
	}
	return c
}
