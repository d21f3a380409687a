package tls

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
	"github.com/remora-proxy/remora/lab"
	labcerts "github.com/remora-proxy/remora/lab/certs"
	"github.com/remora-proxy/remora/proxy/certs"
)

// TestTLSRetryAfterRefusal: one of two providers refuses the consumer. The consumer's
// handshake is complete before the refusal arrives, but it has sent no request. So even
// requests that must not be sent twice go to the other provider.
func TestTLSRetryAfterRefusal(t *testing.T) {
	a := harness.NewApp(t)
	ca, other := testcerts.New(t), testcerts.New(t)
	_, accepting := harness.SecureProvider(t, a.Addr, harness.CertFiles(t, ca, harness.ProviderName))
	strict := harness.CertFiles(t, ca, harness.ProviderName)
	strict.Write(strict.CA, other.PEM)
	p, refusing := harness.SecureProvider(t, a.Addr, strict)
	egress := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q, %q], protocol: link, connect_timeout: 15s, tls: %s}}`,
		egress, refusing, accepting, harness.Block(harness.CertFiles(t, ca, harness.ConsumerName), harness.ProviderName))).Ready()
	for i := range 50 {
		if err := harness.Post(http.DefaultClient, egress, fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	p.AwaitMetric(`remora_tls_failures_total{code="tls_unknown_ca"}`, 1)
}

// TestTLSLabCerts: two sidecars link with certificates of "remora-lab certs", and not with those
// of another authority.
func TestTLSLabCerts(t *testing.T) {
	made := func() (consumer, provider testcerts.Dir) {
		dir := t.TempDir()
		if _, err := labcerts.Make(dir, []labcerts.Leaf{
			{Name: "consumer", Names: []string{harness.ConsumerName}}, {Name: "provider", Names: []string{harness.ProviderName, "localhost"}},
		}, time.Hour); err != nil {
			t.Fatal(err)
		}
		in := func(name string) string { return filepath.Join(dir, name) }
		return testcerts.Dir{CA: in("ca.pem"), Cert: in("consumer.pem"), Key: in("consumer-key.pem")},
			testcerts.Dir{CA: in("ca.pem"), Cert: in("provider.pem"), Key: in("provider-key.pem")}
	}
	consumer, provider := made()
	p, ingress := harness.SecureProvider(t, harness.NewApp(t).Addr, provider)
	_, egress := harness.SecureConsumer(t, ingress, consumer)
	if err := harness.Post(http.DefaultClient, egress, "hello"); err != nil {
		t.Error(err)
	}
	stranger, _ := made()
	stranger.CA = consumer.CA
	_, egress = harness.SecureConsumer(t, ingress, stranger)
	if err := harness.Post(http.DefaultClient, egress, "hello"); err == nil {
		t.Error("a certificate of another authority was accepted")
	}
	p.AwaitMetric(`remora_tls_failures_total{code="tls_unknown_ca"}`, 1)
}

// TestTLSEtcd: a consumer finds its provider in an etcd that requires certificates.
// Without a certificate it finds none.
func TestTLSEtcd(t *testing.T) {
	t.Parallel() // it mostly waits
	ca := testcerts.New(t)
	server := harness.CertFiles(t, ca, "127.0.0.1")
	e, err := lab.StartEtcd(lab.EtcdOptions{CertFile: server.Cert, KeyFile: server.Key, ClientCA: server.CA})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	client := harness.CertFiles(t, ca, "sidecar")
	shown := fmt.Sprintf("{ca: %q, cert: %q, key: %q}", client.CA, client.Cert, client.Key)
	registered := func(tls string) string {
		return fmt.Sprintf("registry: {etcd: {endpoints: [%q], tls: %s}}\n", e.Endpoint(), tls)
	}

	a := harness.NewApp(t)
	addrs := harness.FreeAddrs(t, 3)
	ingress, egress, blind := addrs[0], addrs[1], addrs[2]
	provider := harness.Start(t, registered(shown)+fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}
register: [{service: compute, listener: ingress, advertise: %[1]q}]`, ingress, a.Addr))
	provider.Ready()
	finding := func(egress, tls string) *harness.Process {
		return harness.Start(t, registered(tls)+fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: etcd, protocol: link, connect_timeout: 15s}}`, egress))
	}
	finding(egress, shown).Ready()
	eventually.Nil(t, "the consumer to find the provider", func() error {
		return harness.Post(http.DefaultClient, egress, "hello")
	})

	anonymous := finding(blind, fmt.Sprintf("{ca: %q}", client.CA))
	anonymous.Await("/readyz", http.StatusServiceUnavailable, "")
	eventually.Nil(t, "a failed look at etcd", func() error {
		if _, body := anonymous.Get("/endpoints"); !strings.Contains(body, `"error"`) {
			return errors.New(body)
		}
		return nil
	})
	if err := harness.Post(http.DefaultClient, blind, "hello"); err == nil {
		t.Error("a sidecar without a certificate found the provider")
	}

	provider.Signal(syscall.SIGTERM) // removes the registration
	provider.Ends()
}

// TestTLSTCP: opaque streams to a service with tls are encrypted. Half-close and reset
// pass in both directions.
func TestTLSTCP(t *testing.T) {
	ca := testcerts.New(t)
	own := openIdentity(t, harness.CertFiles(t, ca, harness.ProviderName), harness.ConsumerName)
	ln, err := tls.Listen("tcp", "127.0.0.1:0", own.Server())
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	apps := make(chan *tls.Conn, 1)
	go func() {
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			_ = nc.SetDeadline(time.Now().Add(harness.Patience))
			apps <- nc.(*tls.Conn)
		}
	}()
	in := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: in, address: %q, protocol: tcp, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s, tls: %s}}`,
		in, ln.Addr(), harness.Block(harness.CertFiles(t, ca, harness.ConsumerName), harness.ProviderName)))
	p.Ready()
	pair := func() (client *net.TCPConn, app *tls.Conn) {
		t.Helper()
		nc := harness.Dial(t, "tcp", in)
		return nc.(*net.TCPConn), harness.Receive(t, "the application to get the connection", apps)
	}

	sent := bytes.Repeat([]byte("0123456789abcdef"), 64<<10)
	client, app := pair()
	go func() {
		_, _ = client.Write(sent)
		_ = client.CloseWrite()
	}()
	if got, err := io.ReadAll(app); !bytes.Equal(got, sent) || err != nil {
		t.Errorf("the application got %d bytes, %v", len(got), err)
	}
	go func() { // the other direction is still open
		_, _ = app.Write(sent)
		app.Close()
	}()
	if got, err := io.ReadAll(client); !bytes.Equal(got, sent) || err != nil {
		t.Errorf("the client got %d bytes, %v", len(got), err)
	}

	client, app = pair()
	if err := app.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := client.SetLinger(0); err != nil {
		t.Fatal(err)
	}
	client.Close()
	if _, err := io.ReadAll(app); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the application read to %v, want a reset", err)
	}
	app.Close()

	client, app = pair()
	if err := app.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := app.NetConn().(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	app.NetConn().Close()
	if _, err := io.ReadAll(client); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the client read to %v, want a reset", err)
	}
	eventually.Nil(t, "all connections to be over", func() error {
		for _, direction := range []string{"in", "out"} {
			if n := p.Metric(fmt.Sprintf("remora_reactor_connections{direction=%q}", direction)); n != 0 {
				return fmt.Errorf("%d %s", n, direction)
			}
		}
		return nil
	})
}

// openIdentity opens the identity of an application of the test.
func openIdentity(t *testing.T, d testcerts.Dir, peer string) *certs.Source {
	t.Helper()
	s, err := certs.Open(certs.Options{Cert: d.Cert, Key: d.Key, CA: d.CA, Peers: []string{peer}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}
