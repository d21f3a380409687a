package bench

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/remora-proxy/remora/internal/mint"
)

// shared is what the sidecars of a chain have in common. Each is made when the first
// of them asks for it.
type shared struct {
	dir      string
	tls      string // YAML; "": not made yet
	observer *observer
}

// identity is the tls block of a certificate that signs itself and is trusted by
// all, in YAML without its braces.
func (s *shared) identity() (string, error) {
	if s.tls != "" {
		return s.tls, nil
	}
	cert, key := filepath.Join(s.dir, "cert.pem"), filepath.Join(s.dir, "key.pem")
	if err := writeCertificate(cert, key); err != nil {
		return "", fmt.Errorf("certificate: %w", err)
	}
	s.tls = fmt.Sprintf("cert: %q, key: %q, ca: %q, peers: [%s]", cert, key, cert, peerName)
	return s.tls, nil
}

const peerName = "bench"

func writeCertificate(cert, key string) error {
	now := time.Now()
	made, err := mint.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: peerName}, DNSNames: []string{peerName},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil)
	if err != nil {
		return err
	}
	certPEM, keyPEM, err := made.PEM()
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(cert, certPEM, 0o600), os.WriteFile(key, keyPEM, 0o600))
}

// observe is what a sidecar's configuration says of who observes it, in YAML.
func (s *shared) observe(p place) (string, error) {
	if s.observer == nil {
		o, err := newObserver()
		if err != nil {
			return "", err
		}
		s.observer = o
	}
	s.observer.watch(p.Admin)
	return s.observer.config(filepath.Join(p.Dir, "access.log")), nil
}

func (s *shared) close() {
	if s.observer != nil {
		s.observer.close()
	}
}
