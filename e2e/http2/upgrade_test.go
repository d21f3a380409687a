package http2

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// startUpgradeCaller starts a sidecar whose routes lead to endpoints of both versions of HTTP. Each tells
// what it got of an upgrade.
func startUpgradeCaller(t *testing.T) (addr string) {
	tell := func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		fmt.Fprintf(w, "%s %s upgrade=%q settings=%q connection=%q body=%s", r.Proto, r.Method,
			r.Header.Values("Upgrade"), r.Header.Values("HTTP2-Settings"), r.Header.Values("Connection"), body)
	}
	old := httptest.NewServer(http.HandlerFunc(tell))
	t.Cleanup(old.Close)
	addr = harness.FreeAddrs(t, 1)[0]
	p := harness.Start(t, fmt.Sprintf(`
listeners: [{name: egress, address: %q, protocol: http}]
routes:
  - {match: {host: old}, service: old}
  - {match: {host: new}, service: new}
services:
  old: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}
  new: {discover: static, endpoints: [%q], protocol: http2, connect_timeout: 15s}`,
		addr, old.Listener.Addr(), harness.StartHTTP2Endpoint(t, "127.0.0.1:0", tell, nil).Addr))
	p.Ready()
	return addr
}

// TestUpgradeToHTTP2: a request that asks for HTTP/2 by an upgrade is served as one of HTTP/1.1, and its
// endpoint does not learn of it: else what follows could be requests that no route has seen.
func TestUpgradeToHTTP2(t *testing.T) {
	addr := startUpgradeCaller(t)
	for _, host := range []string{"old", "new"} {
		for _, fields := range []string{
			"Connection: Upgrade, HTTP2-Settings\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n",
			"Connection: Upgrade\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n",
			"Upgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n",
			"Connection: HTTP2-Settings\nUpgrade: h2c, websocket\nHTTP2-Settings: AAMAAABkAAQAAP__\n",
			"Connection: Upgrade, HTTP2-Settings\nUpgrade: websocket\nUpgrade: h2c\nHTTP2-Settings: AAMAAABkAAQAAP__\n",
		} {
			s := harness.DialPlain(t, addr)
			for i := range 2 { // the connection goes on with HTTP/1.1
				s.Say(fmt.Sprintf("POST / HTTP/1.1\nHost: %s\n%sContent-Length: 1\n\n%d", host, fields, i))
				resp, err := http.ReadResponse(s.In, nil)
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(resp.Body)
				want := fmt.Sprintf("POST upgrade=[] settings=[] connection=[] body=%d", i)
				if resp.StatusCode != 200 || resp.Header.Get("Upgrade") != "" || !strings.HasSuffix(string(body), want) {
					t.Errorf("%s, %q: %s, %v, %q", host, fields, resp.Status, resp.Header, body)
				}
			}
		}
	}
}

// TestTunnelsToHTTP2: a host whose endpoints speak HTTP/2 has no tunnels, but one of requests, with HTTP/1.1
// and with HTTP/2. That is how gRPC's libraries use http_proxy.
func TestTunnelsToHTTP2(t *testing.T) {
	addr := startUpgradeCaller(t)
	s := harness.DialPlain(t, addr)
	s.Say("GET / HTTP/1.1\nHost: new\nConnection: Upgrade\nUpgrade: websocket\nSec-WebSocket-Version: 13\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\n\n")
	resp, err := http.ReadResponse(s.In, nil)
	if err != nil || resp.StatusCode != 501 || resp.Header.Get("X-Remora-Error") != "not-supported" {
		t.Errorf("WebSocket: %v %v", resp, err)
	}
	for says, want := range map[string]string{
		"GET / HTTP/1.1\nHost: new\nConnection: close\n\n": "HTTP/2.0 GET",
		"\x16\x03\x01\x02\x00\x01":                         "\x15\x03\x03\x00\x02\x02\x31", // TLS, and an alert
		"PRI * HTTP/2.1":                                   "",                             // GOAWAY
	} {
		s, status := harness.ConnectTo(t, addr, "new:80", says)
		if heard, err := io.ReadAll(s.In); status != 200 || err != nil || !strings.Contains(string(heard), want) {
			t.Errorf("%q: %d %q %v", says, status, heard, err)
		}
	}

	tr := &http.Transport{
		Protocols: new(http.Protocols),
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			s, status := harness.ConnectTo(t, addr, "new:80", "")
			if status != 200 || s.In.Buffered() > 0 {
				t.Errorf("CONNECT: %d and %d bytes", status, s.In.Buffered())
			}
			return s.TCPConn, nil
		},
	}
	tr.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(tr.CloseIdleConnections)
	for range 3 {
		resp, body := must.Post(t, &http.Client{Transport: tr, Timeout: harness.Patience}, "http://new:80/", "text/plain", strings.NewReader("x"))
		if resp.ProtoMajor != 2 || !strings.HasPrefix(body, "HTTP/2.0 POST") || !strings.HasSuffix(body, "body=x") {
			t.Errorf("%s %s %q", resp.Proto, resp.Status, body)
		}
	}
}
