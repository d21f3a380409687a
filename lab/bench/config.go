package bench

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
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
	Shared    string // the folder of the certificates
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

// serverName is the name in the certificate of a row, as in remora.yaml.
const serverName = "bench"

// writeCertificates writes cert.pem, which all proxies and loads of a row show, and its key.pem, both in
// bundle.pem, and the authority that has signed it, ca.pem. Keys are of ECDSA P-256, or of RSA with 2,048 bits.
func writeCertificates(dir string, withRSA bool) error {
	now := time.Now()
	issue := func(name string, template x509.Certificate, by *mint.Certificate) (*mint.Certificate, error) {
		template.Subject.CommonName = name // OpenSSL takes a certificate whose issuer has its name for self-signed
		template.NotBefore, template.NotAfter = now.Add(-time.Hour), now.Add(24*time.Hour)
		template.BasicConstraintsValid = true
		if !withRSA {
			return mint.New(&template, by)
		}
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			return nil, err
		}
		return mint.NewFor(key, &template, by)
	}
	ca, err := issue("authority", x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign}, nil)
	if err != nil {
		return err
	}
	leaf, err := issue(serverName, x509.Certificate{
		DNSNames: []string{serverName}, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca)
	if err != nil {
		return err
	}
	authority, _, err := ca.PEM()
	if err != nil {
		return err
	}
	cert, key, err := leaf.PEM()
	for name, content := range map[string][]byte{
		"ca.pem": authority, "cert.pem": cert, "key.pem": key, "bundle.pem": slices.Concat(cert, key),
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, name), content, 0o600))
	}
	return err
}
