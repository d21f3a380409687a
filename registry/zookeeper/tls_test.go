package zookeeper

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/internal/zktest"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestTLS: connections use TLS, and a server that does not prove its address is refused.
func TestTLS(t *testing.T) {
	srv := zktest.Start(t)
	ca, stranger := testcerts.New(t), testcerts.New(t)
	pair := func(ca *testcerts.CA) tls.Certificate {
		cert, key := ca.Issue(testcerts.Leaf{Names: []string{"127.0.0.1"}})
		p, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	secure := tls.NewListener(must.Listen(t), &tls.Config{Certificates: []tls.Certificate{pair(ca)}})
	t.Cleanup(func() { secure.Close() })
	go func() {
		for {
			in, err := secure.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", srv.Addr())
			if err != nil {
				in.Close()
				continue
			}
			go func() { io.Copy(out, in); out.Close() }()
			go func() { io.Copy(in, out); in.Close() }()
		}
	}()
	s := storeAt(t, srv.Addr())
	s.set(providerPath(hello, "dubbo://10.0.0.1:1/a"), "")
	trusting := func(ca *testcerts.CA) func(*Options) {
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(ca.PEM)
		return func(o *Options) { o.TLS = func() *tls.Config { return &tls.Config{RootCAs: pool} } }
	}
	addr := secure.Addr().String()
	registrytest.Watch(t, s.openAt(addr, grace, trusting(ca)), hello).WaitAddrs("10.0.0.1:1")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	for name, isProven := range map[string]bool{"": true, "127.0.0.1": true, "other.test": false} {
		config := &tls.Config{RootCAs: pool, ServerName: name}
		c, err := dialTLS(t.Context(), addr, config)
		if (err == nil) != isProven || config.ServerName != name {
			t.Errorf("the name %q: %v; the configuration has %q", name, err, config.ServerName)
		}
		if err == nil {
			c.Close()
		}
	}
	other := s.openAt(addr, grace, trusting(stranger))
	eventually.True(t, "an error", func() bool { now := other.Condition(); return !now.Up && now.Err != nil && now.Code != "" })
}
