package harness

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/internal/testcerts"
)

// Names in the certificates of a test.
const (
	ProviderName = "spiffe://test/provider"
	ConsumerName = "spiffe://test/consumer"
)

// CertFiles issues a certificate with these names, and writes its files.
func CertFiles(t *testing.T, ca *testcerts.CA, names ...string) testcerts.Dir {
	t.Helper()
	cert, key := ca.Issue(testcerts.Leaf{Names: names})
	return testcerts.NewDir(t, ca, cert, key)
}

// Pair returns the certificate in the files.
func Pair(t *testing.T, d testcerts.Dir) tls.Certificate {
	t.Helper()
	c, err := tls.LoadX509KeyPair(d.Cert, d.Key)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Trusting returns a client's configuration that trusts ca.
func Trusting(ca *testcerts.CA) *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	return &tls.Config{RootCAs: pool, ServerName: "web.test"}
}

// Block returns a tls block of the configuration.
func Block(d testcerts.Dir, peer string) string {
	return fmt.Sprintf("{cert: %q, key: %q, ca: %q, peers: [%q]}", d.Cert, d.Key, d.CA, peer)
}

// SecureProvider starts the sidecar of an application, with TLS on its link.
func SecureProvider(t *testing.T, app string, d testcerts.Dir) (*Process, string) {
	ingress := FreeAddrs(t, 1)[0]
	p := Start(t, fmt.Sprintf(`
loops: 2
limits: {message: 16MiB}
timeouts: {body: 2m, write: 2m}
listeners: [{name: ingress, address: %q, protocol: link, service: local, tls: %s}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, ingress, Block(d, ConsumerName), app))
	p.Ready()
	return p, ingress
}

// SecureConsumer starts a sidecar that sends requests to a provider over TLS.
func SecureConsumer(t *testing.T, ingress string, d testcerts.Dir) (*Process, string) {
	egress := FreeAddrs(t, 1)[0]
	p := Start(t, fmt.Sprintf(`
loops: 2
limits: {message: 16MiB}
timeouts: {body: 2m, write: 2m}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m, tls: %s}}`,
		egress, ingress, Block(d, ProviderName)))
	p.Ready()
	return p, egress
}
