package https

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// secureApp is an HTTPS server that counts requests and resumed sessions.
type secureApp struct {
	addr            string
	served, resumed atomic.Int64
}

// startSecureApp starts an application with these certificates. change, if not nil, changes its TLS.
func startSecureApp(t *testing.T, change func(*tls.Config), certs ...tls.Certificate) *secureApp {
	t.Helper()
	a := &secureApp{}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.served.Add(1)
		if r.TLS.DidResume {
			a.resumed.Add(1)
		}
		if r.URL.Path == "/close" {
			w.Header().Set("Connection", "close")
		}
		host, _, _ := strings.Cut(r.Host, ":")
		who := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			who = r.TLS.PeerCertificates[0].URIs[0].String()
		}
		_, _ = io.Copy(io.Discard, r.Body)
		fmt.Fprintf(w, "sni=%s host=%s client=%s", r.TLS.ServerName, strings.ToLower(host), who)
	}))
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	srv.TLS = &tls.Config{Certificates: certs, NextProtos: []string{"http/1.1"}}
	if change != nil {
		change(srv.TLS)
	}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	a.addr = srv.Listener.Addr().String()
	return a
}

// TestHTTPSService: an endpoint gets requests only if it proves the right name, and sees ours.
func TestHTTPSService(t *testing.T) {
	ca, strange := testcerts.New(t), testcerts.New(t)
	leaf := func(of *testcerts.CA, l testcerts.Leaf) []tls.Certificate {
		cert, key := of.Issue(l)
		c, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		return []tls.Certificate{c}
	}
	own := harness.CertFiles(t, ca, "spiffe://test/sidecar")
	names := []string{"app.test", "127.0.0.1", "localhost", "spiffe://test/app"}
	good := leaf(ca, testcerts.Leaf{Names: names})
	wantsCertificate := func(c *tls.Config) {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		c.ClientCAs.AppendCertsFromPEM(ca.PEM)
	}
	only := func(version uint16) func(*tls.Config) {
		return func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version }
	}
	for _, c := range []struct {
		name   string
		certs  []tls.Certificate
		server func(*tls.Config)
		named  bool // the endpoint is localhost, not an address
		block  string
		want   string // of the body
		code   string // of the failure
	}{
		{"fixed name", good, nil, false, "sni: app.test", "sni=app.test host=h.test client=nobody", ""},
		{"address", good, nil, false, "", "sni= host=h.test client=nobody", ""},
		{"host name of the endpoint", good, nil, true, "", "sni=localhost host=h.test client=nobody", ""},
		{"peers", good, nil, false, `peers: ["spiffe://test/app"]`, "sni= host=h.test client=nobody", ""},
		{"peers and a name to ask for", good, nil, false, `sni: x.test, peers: ["spiffe://test/app"]`, "sni=x.test host=h.test client=nobody", ""},
		{"TLS 1.2", good, only(tls.VersionTLS12), false, "sni: app.test", "sni=app.test", ""},
		{"TLS 1.3", good, only(tls.VersionTLS13), false, "sni: app.test", "sni=app.test", ""},
		{"TLS 1.1", good, only(tls.VersionTLS11), false, "sni: app.test", "", "tls_refused"},
		{"client certificate", good, wantsCertificate, false, fmt.Sprintf("sni: app.test, cert: %q, key: %q", own.Cert, own.Key), "client=spiffe://test/sidecar", ""},
		{"wrong name", good, nil, false, "sni: other.test", "", "tls_wrong_peer"},
		{"wrong peer", good, nil, false, `peers: ["spiffe://test/other"]`, "", "tls_wrong_peer"},
		{"right name, wrong peer", good, nil, false, `sni: app.test, peers: ["spiffe://test/other"]`, "", "tls_wrong_peer"},
		{"no address", leaf(ca, testcerts.Leaf{Names: []string{"app.test"}}), nil, false, "", "", "tls_wrong_peer"},
		{"expired", leaf(ca, testcerts.Leaf{Names: names, Expired: true}), nil, false, "sni: app.test", "", "tls_expired"},
		{"untrusted", leaf(strange, testcerts.Leaf{Names: names}), nil, false, "sni: app.test", "", "tls_unknown_ca"},
		{"only for clients", leaf(ca, testcerts.Leaf{Names: names, Usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}), nil, false, "sni: app.test", "", "tls_bad_certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			app := startSecureApp(t, c.server, c.certs...)
			endpoint := app.addr
			if c.named {
				endpoint = strings.Replace(endpoint, "127.0.0.1", "localhost", 1)
			}
			p, egress := harness.CallHTTPS(t, endpoint, fmt.Sprintf("ca: %q, %s", own.CA, c.block), "")
			status, body, err := harness.GetAs(egress, "h.test", "/")
			if err != nil {
				t.Fatal(err)
			}
			if c.code == "" {
				if status != 200 || !strings.Contains(body, c.want) {
					t.Errorf("%d %q, want %q", status, body, c.want)
				}
				return
			}
			p.AwaitMetric(fmt.Sprintf("remora_tls_failures_total{code=%q}", c.code), 1)
			if status != 502 || app.served.Load() > 0 {
				t.Errorf("%d %q; %d requests arrived", status, body, app.served.Load())
			}
		})
	}
	t.Run("missing client certificate", func(t *testing.T) {
		app := startSecureApp(t, wantsCertificate, good...)
		_, egress := harness.CallHTTPS(t, app.addr, fmt.Sprintf("ca: %q, sni: app.test", own.CA), "")
		if status, body, err := harness.GetAs(egress, "h.test", "/"); err != nil || status != 502 || app.served.Load() > 0 {
			t.Errorf("%d %q, %v", status, body, err)
		}
	})
	t.Run("system authorities", func(t *testing.T) {
		app := startSecureApp(t, nil, good...)
		p, egress := harness.CallHTTPS(t, app.addr, "ca: system, sni: app.test", "")
		if status, body, err := harness.GetAs(egress, "h.test", "/"); err != nil || status != 502 || app.served.Load() > 0 {
			t.Errorf("%d %q, %v", status, body, err)
		}
		p.AwaitMetric(`remora_tls_failures_total{code="tls_unknown_ca"}`, 1)
	})
}

// TestHTTPSResumes: connections after the first resume its session, until the identity changes.
func TestHTTPSResumes(t *testing.T) {
	t.Parallel() // it mostly waits
	ca := testcerts.New(t)
	server := harness.CertFiles(t, ca, "app.test")
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		app := startSecureApp(t, func(c *tls.Config) { c.MinVersion, c.MaxVersion = version, version }, harness.Pair(t, server))
		own := harness.CertFiles(t, ca, "spiffe://test/sidecar")
		p, egress := harness.CallHTTPS(t, app.addr, fmt.Sprintf("ca: %q, cert: %q, key: %q, sni: app.test", own.CA, own.Cert, own.Key), "")
		const n = 10
		for range n {
			if status, body, err := harness.GetAs(egress, "h.test", "/close"); err != nil || status != 200 {
				t.Fatalf("%d %q, %v", status, body, err)
			}
		}
		if got := app.resumed.Load(); got != n-1 {
			t.Errorf("version %x: %d of %d connections resumed a session", version, got, n)
		}
		if got := p.Metric("remora_tls_resumed_total"); got != n-1 {
			t.Errorf("version %x: %d were counted", version, got)
		}
		own.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"spiffe://test/sidecar"}}))
		p.AwaitMetric(`remora_tls_certificate_loads_total{identity="services.app.tls"}`, 2)
		if _, _, err := harness.GetAs(egress, "h.test", "/close"); err != nil || app.resumed.Load() != n-1 {
			t.Errorf("version %x: a session of the former certificate was resumed, %v", version, err)
		}
	}
}

// TestHTTPSByHost: with the Host as name, no request uses a connection that was verified for another.
func TestHTTPSByHost(t *testing.T) {
	ca := testcerts.New(t)
	var confused atomic.Int64
	app := startSecureApp(t, nil, harness.Pair(t, harness.CertFiles(t, ca, "a.test", "127.0.0.1")), harness.Pair(t, harness.CertFiles(t, ca, "b.test")), harness.Pair(t, harness.CertFiles(t, ca, "*.many.test")))
	ask := func(egress, host string, want int) {
		status, body, err := harness.GetAs(egress, host, "/")
		name := strings.ToLower(strings.TrimSuffix(host, ":80"))
		if err != nil || status != want || want == 200 && body != "sni="+name+" host="+name+" client=nobody" {
			confused.Add(1)
			t.Errorf("%s: %d %q, %v", host, status, body, err)
		}
	}
	p, egress := harness.CallHTTPS(t, app.addr, fmt.Sprintf("ca: %q, sni: host", harness.CertFiles(t, ca, "x").CA), "")
	var clients sync.WaitGroup
	for i := range 8 {
		clients.Go(func() {
			for n := range 50 {
				ask(egress, []string{"a.test", "b.test", "B.test:80"}[(i+n)%3], 200)
			}
		})
	}
	clients.Wait()
	ask(egress, "c.test", 502)
	p.AwaitMetric(`remora_tls_failures_total{code="tls_wrong_peer"}`, 1)
	for n := range 200 { // more than there are pools
		ask(egress, fmt.Sprintf("n%d.many.test", n), 200)
	}
	if confused.Load() == 0 && p.Metric("remora_reactor_dialed_total") > 300 {
		t.Errorf("%d connections: they are not reused", p.Metric("remora_reactor_dialed_total"))
	}
}

// TestHTTPSTruncated: a body that ends with its connection is whole only after a close_notify.
func TestHTTPSTruncated(t *testing.T) {
	ca := testcerts.New(t)
	cert := harness.Pair(t, harness.CertFiles(t, ca, "app.test"))
	addr := harness.ServeTCP(t, func(nc net.Conn) {
		c := tls.Server(nc, &tls.Config{Certificates: []tls.Certificate{cert}})
		req, err := http.ReadRequest(bufio.NewReader(c))
		if err != nil {
			return
		}
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\npart")
		if req.URL.Path == "/whole" {
			_ = c.CloseWrite()
		}
		_ = nc.(*net.TCPConn).CloseWrite()
		_, _ = io.Copy(io.Discard, nc)
	})
	_, egress := harness.CallHTTPS(t, addr, fmt.Sprintf("ca: %q, sni: app.test", harness.CertFiles(t, ca, "x").CA), "")
	if status, body, err := harness.GetAs(egress, "h", "/whole"); status != 200 || body != "part" || err != nil {
		t.Errorf("with a close_notify: %d %q, %v", status, body, err)
	}
	if status, body, err := harness.GetAs(egress, "h", "/truncated"); status == 200 && err == nil {
		t.Errorf("without: %d %q looks whole", status, body)
	}
}

// TestHTTPSCheck: checks by HTTP verify the endpoint as requests do.
func TestHTTPSCheck(t *testing.T) {
	ca := testcerts.New(t)
	app := startSecureApp(t, nil, harness.Pair(t, harness.CertFiles(t, ca, "app.test")))
	files := harness.CertFiles(t, ca, "x")
	const check = ", check: {http: /, interval: 20ms, timeout: 15s}"
	p, egress := harness.CallHTTPS(t, app.addr, fmt.Sprintf("ca: %q, sni: app.test", files.CA), check)
	eventually.Nil(t, "checks", func() error {
		if app.served.Load() < 3 {
			return errors.New("too few")
		}
		return nil
	})
	p.AwaitHealth("app", app.addr, true)
	if _, body, err := harness.GetAs(egress, "h", "/"); err != nil || !strings.HasPrefix(body, "sni=app.test ") {
		t.Errorf("%q, %v", body, err)
	}
	wrong, _ := harness.CallHTTPS(t, app.addr, fmt.Sprintf("ca: %q, sni: other.test", files.CA), check)
	wrong.AwaitHealth("app", app.addr, false)
}

// TestHTTPSBothSides: a WebSocket, an upload and an endless response pass through TLS on both sides.
func TestHTTPSBothSides(t *testing.T) {
	ca := testcerts.New(t)
	web := harness.CertFiles(t, ca, "web.test", "127.0.0.1")
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/socket":
			nc, rw, err := http.NewResponseController(w).Hijack()
			if err != nil {
				return
			}
			defer nc.Close()
			_, _ = io.WriteString(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: x\r\n\r\n")
			_, _ = io.Copy(nc, rw)
		case "/upload":
			n, _ := io.Copy(io.Discard, r.Body)
			fmt.Fprintf(w, "%d by %s", n, r.TLS.ServerName)
		case "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			for i := 0; r.Context().Err() == nil && i < 3; i++ {
				fmt.Fprintf(w, "data: %d\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
			<-r.Context().Done()
		}
	}))
	srv.TLS = &tls.Config{Certificates: []tls.Certificate{harness.Pair(t, web)}, NextProtos: []string{"http/1.1"}}
	srv.StartTLS()
	t.Cleanup(srv.Close)
	for _, sni := range []string{"web.test", "host"} {
		t.Run(sni, func(t *testing.T) { bothSides(t, ca, web, srv.Listener.Addr().String(), sni) })
	}
}

func bothSides(t *testing.T, ca *testcerts.CA, web testcerts.Dir, app, sni string) {
	addr := harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
limits: {message: 1MiB}
listeners: [{name: web, address: %q, protocol: http, service: app, tls: {cert: %q, key: %q}}]
services: {app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m, tls: {ca: %q, sni: %s}}}`,
		addr, web.Cert, web.Key, app, web.CA, sni))
	p.Ready()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: harness.Trusting(ca)}}
	defer client.CloseIdleConnections()
	do := func(ctx context.Context, path string, size int64) *http.Response {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+addr+path, io.LimitReader(harness.Zeros{}, size))
		if err != nil {
			t.Fatal(err)
		}
		req.Host = "web.test"
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	resp := do(t.Context(), "/upload", 20<<20)
	if b, err := io.ReadAll(resp.Body); err != nil || string(b) != "20971520 by web.test" {
		t.Errorf("upload: %q, %v", b, err)
	}
	resp.Body.Close()
	ctx, leave := context.WithCancel(t.Context())
	resp = do(ctx, "/events", 0)
	events := make([]byte, len("data: 0\n\ndata: 1\n\ndata: 2\n\n"))
	if _, err := io.ReadFull(resp.Body, events); err != nil || !strings.HasSuffix(string(events), "data: 2\n\n") {
		t.Errorf("events: %q, %v", events, err)
	}
	leave()
	resp.Body.Close()

	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: harness.Patience}, "tcp", addr, harness.Trusting(ca))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	_, err = io.WriteString(conn, "GET /socket HTTP/1.1\r\nHost: web.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\nearly")
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	upgraded, err := http.ReadResponse(in, nil)
	if err != nil || upgraded.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%+v, %v", upgraded, err)
	}
	_, _ = io.WriteString(conn, " and late")
	echo := make([]byte, len("early and late"))
	if _, err := io.ReadFull(in, echo); err != nil || string(echo) != "early and late" {
		t.Errorf("socket: %q, %v", echo, err)
	}
}
