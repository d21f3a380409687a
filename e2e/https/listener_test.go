package https

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/e2e/harness/h2"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// dialTLS makes one connection and returns its state, or the error of the handshake or, since a
// client of TLS 1.3 is done before the server has verified it, of the first response.
func dialTLS(addr string, c *tls.Config) (cs tls.ConnectionState, status int, err error) {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: harness.Patience}, "tcp", addr, c)
	if err != nil {
		return cs, 0, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: web.test\r\n\r\n"); err != nil {
		return cs, 0, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return cs, 0, err
	}
	return conn.ConnectionState(), resp.StatusCode, nil
}

func TestHTTPSListener(t *testing.T) {
	t.Parallel() // it mostly waits
	ca := testcerts.New(t)
	web, other := harness.CertFiles(t, ca, "web.test"), harness.CertFiles(t, ca, "other.test", "*.wild.test")
	p, addr := harness.StartHTTPS(t, harness.Describing(t), fmt.Sprintf("cert: %q, key: %q, certificates: [{cert: %q, key: %q}]",
		web.Cert, web.Key, other.Cert, other.Key))

	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c := harness.Trusting(ca)
		c.MinVersion, c.MaxVersion, c.NextProtos = version, version, []string{"http/1.1"}
		cs, status, err := dialTLS(addr, c)
		if err != nil || status != 200 || cs.Version != version || cs.NegotiatedProtocol != "http/1.1" {
			t.Errorf("version %x: %d, %x, %q, %v", version, status, cs.Version, cs.NegotiatedProtocol, err)
		}
	}
	for name, want := range map[string]string{
		"web.test": "web.test", "other.test": "other.test", "a.wild.test": "other.test", "a.b.wild.test": "web.test", "none.test": "web.test", "": "web.test",
	} {
		cs, _, err := dialTLS(addr, &tls.Config{InsecureSkipVerify: true, ServerName: name})
		if err != nil || cs.PeerCertificates[0].DNSNames[0] != want {
			t.Errorf("asked for %q: %v, %v", name, cs.PeerCertificates, err)
		}
	}

	old := harness.Trusting(ca)
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	if _, _, err := dialTLS(addr, old); err == nil {
		t.Error("TLS 1.1 was accepted")
	}
	p.AwaitMetric(`remora_tls_failures_total{code="tls_version"}`, 1)
	h3 := harness.Trusting(ca)
	h3.NextProtos = []string{"h3"}
	if _, _, err := dialTLS(addr, h3); err == nil || !strings.Contains(err.Error(), "no application protocol") {
		t.Errorf("a client of HTTP/3 alone: %v", err)
	}
	p.AwaitMetric(`remora_tls_failures_total{code="tls_protocol"}`, 1)

	resp, _ := must.Get(t, http.DefaultClient, "http://"+addr+"/x")
	if resp.StatusCode != 400 || resp.Header.Get("x-remora-error") != "tls-required" {
		t.Errorf("plain HTTP: %s %s", resp.Status, resp.Header.Get("x-remora-error"))
	}

	client := &http.Client{Transport: &http.Transport{TLSClientConfig: harness.Trusting(ca)}}
	defer client.CloseIdleConnections()
	for size, want := range map[int]string{0: "https web.test 0", 300: "https web.test 300", 3 << 20: "https web.test 3145728"} { // the last one is a stream
		req := must.Request(t, http.MethodPost, "https://"+addr+"/x", bytes.NewReader(make([]byte, size)))
		req.Host = "web.test"
		if _, got := must.Do(t, client, req); got != want {
			t.Errorf("the application saw %q, want %q", got, want)
		}
	}

	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		c := harness.Trusting(ca)
		c.MaxVersion, c.ClientSessionCache = version, tls.NewLRUClientSessionCache(1)
		for i, want := range []bool{false, true, true} {
			if cs, status, err := dialTLS(addr, c); err != nil || status != 200 || cs.DidResume != want {
				t.Errorf("version %x, connection %d: %d, resumed %t, %v", version, i, status, cs.DidResume, err)
			}
		}
	}
	p.Counts("remora_tls_resumed_total", 4)

	// A new certificate is shown without a reload, and its end is a metric.
	other.Rotate(ca.Issue(testcerts.Leaf{Names: []string{"new.test"}, Lasts: 10 * time.Minute}))
	p.AwaitMetric(`remora_tls_certificate_loads_total{identity="listeners.web.tls"}`, 2)
	c := harness.Trusting(ca)
	c.ServerName = "new.test"
	if cs, _, err := dialTLS(addr, c); err != nil || cs.PeerCertificates[0].DNSNames[0] != "new.test" {
		t.Errorf("after the rotation: %v", err)
	}
	if end := p.Metric(`remora_tls_certificate_expiry_timestamp_seconds{identity="listeners.web.tls"}`); end == 0 || int64(end) > time.Now().Add(10*time.Minute).Unix() {
		t.Errorf("the first certificate ends at %d", end)
	}
}

// TestHTTPSMinVersion: a listener for TLS 1.3 refuses 1.2.
func TestHTTPSMinVersion(t *testing.T) {
	ca := testcerts.New(t)
	web := harness.CertFiles(t, ca, "web.test")
	_, addr := harness.StartHTTPS(t, harness.Describing(t), fmt.Sprintf("cert: %q, key: %q, min_version: 1.3", web.Cert, web.Key))
	c := harness.Trusting(ca)
	if _, status, err := dialTLS(addr, c); err != nil || status != 200 {
		t.Errorf("%d, %v", status, err)
	}
	c.MaxVersion = tls.VersionTLS12
	if _, _, err := dialTLS(addr, c); err == nil {
		t.Error("TLS 1.2 was accepted")
	}
}

// TestHTTPSClientCertificates: whose requests pass depends on what their certificates prove, also
// when the session was resumed.
func TestHTTPSClientCertificates(t *testing.T) {
	ca, strange := testcerts.New(t), testcerts.New(t)
	web := harness.CertFiles(t, ca, "web.test")
	admin, user, outsider := harness.CertFiles(t, ca, "spiffe://test/admin"), harness.CertFiles(t, ca, "spiffe://test/user"), harness.CertFiles(t, ca, "spiffe://elsewhere/user")
	expired, expiredKey := ca.Issue(testcerts.Leaf{Names: []string{"spiffe://test/admin"}, Expired: true})
	unknown := harness.CertFiles(t, strange, "spiffe://test/admin")
	const none, admitted, forbidden = 0, 200, 403
	for _, mode := range []string{"optional", "required"} {
		keys := fmt.Sprintf("cert: %q, key: %q, ca: %q, client_certificate: %s, peers: [\"spiffe://test/*\"]", web.Cert, web.Key, web.CA, mode)
		app := harness.Describing(t)
		p, addr := harness.StartHTTPS(t, app, keys)
		for _, c := range []struct {
			name        string
			dir         *testcerts.Dir
			code        string // of the refusal, which is that of the handshake
			open, admin int    // statuses
		}{
			{"admin", &admin, "", admitted, admitted},
			{"user", &user, "", admitted, forbidden},
			{"anonymous", nil, map[string]string{"required": "tls_no_certificate"}[mode], admitted, forbidden},
			{"outsider", &outsider, "tls_wrong_peer", none, none},
			{"expired", ptr(testcerts.NewDir(t, ca, expired, expiredKey)), "tls_expired", none, none},
			{"unknown", &unknown, "tls_unknown_ca", none, none},
		} {
			t.Run(mode+"/"+c.name, func(t *testing.T) {
				config := harness.Trusting(ca)
				config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
				if c.dir != nil {
					config.Certificates = []tls.Certificate{harness.Pair(t, *c.dir)}
				}
				client := &http.Client{Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
				for path, want := range map[string]int{"/open": c.open, "/admin": c.admin} {
					for round := range 2 { // the second one resumes
						resp, err := client.Get("https://" + addr + path)
						if c.code != "" {
							if err == nil {
								t.Errorf("%s: %s", path, resp.Status)
							}
							continue
						}
						if err != nil {
							t.Fatal(err)
						}
						resp.Body.Close()
						if resp.StatusCode != want {
							t.Errorf("%s, round %d: %s", path, round, resp.Status)
						}
					}
				}
				if c.code != "" {
					p.AwaitMetric(fmt.Sprintf("remora_tls_failures_total{code=%q}", c.code), 1)
				}
			})
		}
		if mode == "required" {
			withdrawn(t, p, addr, app, user, strings.Replace(keys, "spiffe://test/*", "spiffe://test/admin", 1))
		}
	}
}

func ptr[T any](v T) *T { return &v }

// withdrawn: an open connection of a client ends when a reload no longer accepts it.
func withdrawn(t *testing.T, p *harness.Process, addr, app string, user testcerts.Dir, keys string) {
	t.Helper()
	c := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{harness.Pair(t, user)}}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: harness.Patience}, "tcp", addr, c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(harness.Patience))
	in := bufio.NewReader(conn)
	ask := func() error {
		if _, err := io.WriteString(conn, "GET /x HTTP/1.1\r\nHost: web.test\r\n\r\n"); err != nil {
			return err
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	checkHTTP2 := withdrawnHTTP2(t, addr, user)
	p.Reload(harness.HTTPSListener(addr, app, keys), "applied")
	checkHTTP2()
	if b, err := io.ReadAll(in); len(b) > 0 || err != nil {
		t.Errorf("after the reload: %q, %v, want the end", b, err)
	}
	if err := ask(); err == nil {
		t.Error("the connection goes on")
	}
}

// withdrawnHTTP2 is withdrawn for HTTP/2: the request in flight gets its response, and no later one.
func withdrawnHTTP2(t *testing.T, addr string, user testcerts.Dir) (check func()) {
	t.Helper()
	c := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{harness.Pair(t, user)}, NextProtos: []string{"h2"}}
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: harness.Patience}, "tcp", addr, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	peer := h2.NewPeer(conn)
	go peer.Listen()
	ended := func(id uint32) func(*h2.Heard) bool {
		return func(h *h2.Heard) bool { return h.Streams[id] != nil && h.Streams[id].Ended }
	}
	must := func(err error) {
		if t.Helper(); err != nil {
			t.Fatal(err)
		}
	}
	peer.Send(h2.Hello(), h2.SettingsAck(), h2.Post(1, "/x"), h2.Get(3, "/x"))
	must(peer.Until("a response", ended(3)))
	return func() {
		t.Helper()
		must(peer.Until("GOAWAY", func(h *h2.Heard) bool { return h.GoingAway }))
		peer.Send(h2.Get(5, "/x"), h2.Data(1, h2.EndStream, []byte("x")))
		must(peer.UntilEnd(func(h *h2.Heard) bool {
			return ended(1)(h) && h.Stream(1).Field(":status") == "200" && h.Streams[5] == nil
		}))
	}
}

// TestHTTPSPerSource: clients without a certificate count by their address.
func TestHTTPSPerSource(t *testing.T) {
	ca := testcerts.New(t)
	web, user := harness.CertFiles(t, ca, "web.test"), harness.CertFiles(t, ca, "spiffe://test/user")
	addr := harness.FreeAddrs(t, 1)[0]
	text := harness.HTTPSListener(addr, harness.Describing(t), fmt.Sprintf("cert: %q, key: %q, ca: %q, client_certificate: optional", web.Cert, web.Key, web.CA))
	p := harness.Start(t, strings.Replace(text, "limits: {", "limits: {per_source: 2, ", 1))
	p.Ready()
	connect := func(c *tls.Config) error {
		conn, err := tls.DialWithDialer(&net.Dialer{Timeout: harness.Patience}, "tcp", addr, c)
		if err == nil {
			t.Cleanup(func() { conn.Close() })
		}
		return err
	}
	known := harness.Trusting(ca)
	known.Certificates = []tls.Certificate{harness.Pair(t, user)}
	for range 4 { // each is proven before the next one comes
		before := p.Metric("remora_tls_handshakes_total")
		if err := connect(known); err != nil {
			t.Fatal(err)
		}
		p.AwaitMetric("remora_tls_handshakes_total", before+1)
	}
	for i, accepted := range []bool{true, true, false} {
		if err := connect(harness.Trusting(ca)); (err == nil) != accepted {
			t.Errorf("anonymous client %d: %v", i, err)
		}
	}
	p.AwaitMetric("remora_reactor_refused_source_total", 1)
}
