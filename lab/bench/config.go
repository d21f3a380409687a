package bench

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"embed"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"text/template"
	"time"

	"github.com/remora-proxy/remora/internal/mint"
)

//go:embed conf
var configFiles embed.FS

var configs = template.Must(template.New("").Funcs(template.FuncMap{"port": port}).ParseFS(configFiles, "conf/*"))

func port(addr string) string {
	_, p, _ := net.SplitHostPort(addr)
	return p
}

// place is a hop with its files and addresses. It is the data of the templates.
type place struct {
	hop
	Dir       string // for its own files; it exists
	Shared    string // the folder of the certificate
	Listen    string
	Upstreams []string
	Admin     string // of a sidecar
	Spans     string // where an observed sidecar exports its spans
	Idle      int    // connections that it must be able to hold beside those of a load
}

// MaxConnections is how many connections the proxy may have. It must not come near: a sidecar
// then closes idle ones.
func (p place) MaxConnections() int { return 16384 + 2*p.Idle }

// arguments writes the configuration of the proxy, and returns its arguments.
func (p place) arguments() ([]string, error) {
	if p.config == "" {
		return append(slices.Clip(p.args), port(p.Listen), port(p.Upstreams[0])), nil
	}
	path := filepath.Join(p.Dir, p.config)
	f, err := os.Create(path)
	if err == nil {
		err = errors.Join(configs.ExecuteTemplate(f, p.config, p), f.Close())
	}
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return append(slices.Clip(p.args), path), nil
}

// writeCertificate writes cert.pem, self-signed and trusted by all sidecars of a row, key.pem, and both in bundle.pem.
func writeCertificate(dir string) error {
	const name = "bench" // as in remora.yaml
	now := time.Now()
	made, err := mint.New(&x509.Certificate{
		Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, nil)
	if err != nil {
		return err
	}
	cert, key, err := made.PEM()
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "cert.pem"), cert, 0o600),
		os.WriteFile(filepath.Join(dir, "key.pem"), key, 0o600),
		os.WriteFile(filepath.Join(dir, "bundle.pem"), slices.Concat(cert, key), 0o600))
}
