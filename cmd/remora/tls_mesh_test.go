package main

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
	a := newApp(t)
	ca, other := testcerts.New(t), testcerts.New(t)
	_, accepting := secureProvider(t, a.addr, identityOf(t, ca, providerName))
	strict := identityOf(t, ca, providerName)
	strict.Write(strict.CA, other.PEM)
	p, refusing := secureProvider(t, a.addr, strict)
	egress := freeAddrs(t, 1)[0]
	startRemora(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q, %q], protocol: link, connect_timeout: 15s, tls: %s}}`,
		egress, refusing, accepting, block(identityOf(t, ca, consumerName), providerName))).ready()
	for i := range 50 {
		if err := post(http.DefaultClient, egress, fmt.Sprint(i)); err != nil {
			t.Error(err)
		}
	}
	p.awaitMetric(`remora_tls_failures_total{code="tls_unknown_ca"}`, 1)
}

// TestTLSLabCerts: two sidecars link with certificates of "remora-lab certs", and not with those
// of another authority.
func TestTLSLabCerts(t *testing.T) {
	made := func() (consumer, provider testcerts.Dir) {
		dir := t.TempDir()
		if _, err := labcerts.Make(dir, []labcerts.Leaf{
			{Name: "consumer", Names: []string{consumerName}}, {Name: "provider", Names: []string{providerName, "localhost"}},
		}, time.Hour); err != nil {
			t.Fatal(err)
		}
		in := func(name string) string { return filepath.Join(dir, name) }
		return testcerts.Dir{CA: in("ca.pem"), Cert: in("consumer.pem"), Key: in("consumer-key.pem")},
			testcerts.Dir{CA: in("ca.pem"), Cert: in("provider.pem"), Key: in("provider-key.pem")}
	}
	consumer, provider := made()
	p, ingress := secureProvider(t, newApp(t).addr, provider)
	_, egress := secureConsumer(t, ingress, consumer)
	if err := post(http.DefaultClient, egress, "hello"); err != nil {
		t.Error(err)
	}
	stranger, _ := made()
	stranger.CA = consumer.CA
	_, egress = secureConsumer(t, ingress, stranger)
	if err := post(http.DefaultClient, egress, "hello"); err == nil {
		t.Error("a certificate of another authority was accepted")
	}
	p.awaitMetric(`remora_tls_failures_total{code="tls_unknown_ca"}`, 1)
}

// TestTLSEtcd: a consumer finds its provider in an etcd that requires certificates.
// Without a certificate it finds none.
func TestTLSEtcd(t *testing.T) {
	t.Parallel() // it mostly waits
	ca := testcerts.New(t)
	server := identityOf(t, ca, "127.0.0.1")
	e, err := lab.StartEtcd(lab.EtcdOptions{CertFile: server.Cert, KeyFile: server.Key, ClientCA: server.CA})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	client := identityOf(t, ca, "sidecar")
	shown := fmt.Sprintf("{ca: %q, cert: %q, key: %q}", client.CA, client.Cert, client.Key)
	registered := func(tls string) string {
		return fmt.Sprintf("registry: {etcd: {endpoints: [%q], tls: %s}}\n", e.Endpoint(), tls)
	}

	a := newApp(t)
	addrs := freeAddrs(t, 3)
	ingress, egress, blind := addrs[0], addrs[1], addrs[2]
	provider := startRemora(t, registered(shown)+fmt.Sprintf(`
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http}}
register: [{service: compute, listener: ingress, advertise: %[1]q}]`, ingress, a.addr))
	provider.ready()
	finding := func(egress, tls string) *process {
		return startRemora(t, registered(tls)+fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: etcd, protocol: link, connect_timeout: 15s}}`, egress))
	}
	finding(egress, shown).ready()
	eventually.Nil(t, "the consumer to find the provider", func() error {
		return post(http.DefaultClient, egress, "hello")
	})

	anonymous := finding(blind, fmt.Sprintf("{ca: %q}", client.CA))
	anonymous.await("/readyz", http.StatusServiceUnavailable, "")
	eventually.Nil(t, "a failed look at etcd", func() error {
		if _, body := anonymous.get("/endpoints"); !strings.Contains(body, `"error"`) {
			return errors.New(body)
		}
		return nil
	})
	if err := post(http.DefaultClient, blind, "hello"); err == nil {
		t.Error("a sidecar without a certificate found the provider")
	}

	provider.signal(syscall.SIGTERM) // removes the registration
	if code := provider.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestTLSTCP: opaque streams to a service with tls are encrypted. Half-close and reset
// pass in both directions.
func TestTLSTCP(t *testing.T) {
	ca := testcerts.New(t)
	own := openIdentity(t, identityOf(t, ca, providerName), consumerName)
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
			_ = nc.SetDeadline(time.Now().Add(patience))
			apps <- nc.(*tls.Conn)
		}
	}()
	in := freeAddrs(t, 1)[0]
	p := startRemora(t, fmt.Sprintf(`
listeners: [{name: in, address: %q, protocol: tcp, service: app}]
services: {app: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s, tls: %s}}`,
		in, ln.Addr(), block(identityOf(t, ca, consumerName), providerName)))
	p.ready()
	pair := func() (client *net.TCPConn, app *tls.Conn) {
		t.Helper()
		nc, err := net.Dial("tcp", in)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		_ = nc.SetDeadline(time.Now().Add(patience))
		return nc.(*net.TCPConn), receive(t, "the application to get the connection", apps)
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
			if n := p.metric(fmt.Sprintf("remora_reactor_connections{direction=%q}", direction)); n != 0 {
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
