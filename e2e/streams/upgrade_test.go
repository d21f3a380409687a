package streams

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// switchTo is an application. To a request with ?to=P it responds 101 with protocol P, says what it has received,
// and then returns all bytes. To others it responds with what it has received.
func switchTo(nc net.Conn) {
	in := bufio.NewReader(nc)
	r, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	got := fmt.Sprintf("%s [%s] %d", r.Method, r.Header.Get("Upgrade"), len(body))
	if to := r.FormValue("to"); to != "" {
		fmt.Fprintf(nc, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: %s\r\n\r\n%s|", to, got)
		_, _ = io.Copy(nc, in)
		return
	}
	fmt.Fprintf(nc, "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s", len(got), got)
}

// TestUpgrades: a request may ask to upgrade to any protocol but another HTTP or TLS. Its body goes first, and the
// bytes behind it belong to the tunnel.
func TestUpgrades(t *testing.T) {
	addrs := harness.FreeAddrs(t, 5)
	app := harness.ServeTCP(t, switchTo)
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}}
`, addrs[0], app)).Ready()
	harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners:
  - {name: one, address: %q, protocol: http, service: app}
  - {name: two, address: %q, protocol: http, service: linked}
  - {name: one-forward, address: %q, protocol: http, service: app, expect: forward}
  - {name: two-forward, address: %q, protocol: http, service: linked, expect: forward}
services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s}
`, addrs[1], addrs[2], addrs[3], addrs[4], app, addrs[0])).Ready()
	const asks = "Host: a\nConnection: Upgrade\nUpgrade: "
	beyond := strings.Repeat("b", 65<<10)
	for _, c := range []struct {
		name, head, body string
		status           int
		got              string // what the application has received
	}{
		{"WebSocket", "GET /?to=websocket HTTP/1.1\n" + asks + "websocket\n\n", "", 101, "GET [websocket] 0"},
		{"WebSocket with a length", "GET /?to=websocket HTTP/1.1\n" + asks + "websocket\nContent-Length: 0\n\n", "", 101, "GET [websocket] 0"},
		{"kubectl", "POST /?to=SPDY/3.1 HTTP/1.1\n" + asks + "SPDY/3.1\nContent-Length: 0\n\n", "", 101, "POST [SPDY/3.1] 0"},
		{"Docker", "POST /?to=tcp HTTP/1.1\n" + asks + "tcp\nContent-Type: application/json\nContent-Length: 14\n\n", `{"Detach":true}`[:14], 101, "POST [tcp] 14"},
		{"chunks", "POST /?to=tcp HTTP/1.1\n" + asks + "tcp\nTransfer-Encoding: chunked\n\n", "3\r\nabc\r\n4\r\ndefg\r\n0\r\n\r\n", 101, "POST [tcp] 7"},
		{"a body of many reads", "POST /?to=tcp HTTP/1.1\n" + asks + "tcp\nContent-Length: 60000\n\n", beyond[:60000], 101, "POST [tcp] 60000"},
		{"several offered", "GET /?to=b/2 HTTP/1.1\nHost: a\nConnection: keep-alive, Upgrade\nUpgrade: a, b/2\n\n", "", 101, "GET [a, b/2] 0"},
		{"empty elements", "GET /?to=,websocket,, HTTP/1.1\nHost: a\nConnection: ,Upgrade,\nUpgrade: ,websocket, ,\n\n", "", 101, "GET [websocket] 0"},
		{"another case", "GET /?to=WebSocket HTTP/1.1\n" + asks + "websocket\n\n", "", 101, "GET [websocket] 0"},
		{"declined", "POST / HTTP/1.1\n" + asks + "tcp\nContent-Length: 2\n\n", "ok", 200, "POST [tcp] 2"},
		{"101 unasked", "GET /?to=tcp HTTP/1.1\nHost: a\n\n", "", 502, ""},
		{"101 to another protocol", "GET /?to=tcp HTTP/1.1\n" + asks + "websocket\n\n", "", 502, ""},
		{"101 to HTTP/2", "GET /?to=h2c HTTP/1.1\n" + asks + "tcp\n\n", "", 502, ""},
		{"without Connection", "GET / HTTP/1.1\nHost: a\nUpgrade: tcp\n\n", "", 200, "GET [] 0"},
		{"HTTP/2", "GET / HTTP/1.1\n" + asks + "h2c\n\n", "", 200, "GET [] 0"},
		{"HTTP/2 among others", "GET / HTTP/1.1\n" + asks + "websocket, h2c\n\n", "", 200, "GET [] 0"},
		{"HTTP/1.0", "GET / HTTP/1.0\n" + asks + "tcp\n\n", "", 200, "GET [] 0"},
		{"trailers", "POST / HTTP/1.1\n" + asks + "tcp\nTransfer-Encoding: chunked\n\n", "2\r\nok\r\n0\r\nx: y\r\n\r\n", 200, "POST [] 2"},
		{"Expect", "POST /?to=tcp HTTP/1.1\n" + asks + "tcp\nExpect: 100-continue\nContent-Length: 2\n\n", "ok", 101, "POST [tcp] 2"},
		{"Expect and chunks", "POST /?to=tcp HTTP/1.1\n" + asks + "tcp\nExpect: 100-continue\nTransfer-Encoding: chunked\n\n", "2\r\nok\r\n0\r\n\r\n", 101, "POST [tcp] 2"},
		{"a body beyond limits.message", fmt.Sprintf("POST / HTTP/1.1\n%stcp\nContent-Length: %d\n\n", asks, len(beyond)), beyond, 200, fmt.Sprintf("POST [] %d", len(beyond))},
	} {
		for i, name := range []string{"one sidecar", "two sidecars", "one sidecar, forward", "two sidecars, forward"} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				upgrade(t, addrs[1+i], strings.ReplaceAll(c.head, "\n", "\r\n"), c.body, c.status, c.got)
			})
		}
	}
}

// upgrade sends a request, and checks the response and, after 101, the tunnel.
func upgrade(t *testing.T, addr, head, body string, status int, got string) {
	nc := harness.Dial(t, "tcp", addr)
	defer nc.Close()
	in := bufio.NewReader(nc)
	_, _ = io.WriteString(nc, head)
	if strings.Contains(head, "Expect") {
		if r, err := http.ReadResponse(in, nil); err != nil || r.StatusCode != 100 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	early := ""
	if status == 101 {
		early = "early "
	}
	_, _ = io.WriteString(nc, body+early)
	r, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Fatal(err)
	}
	if r.StatusCode != status {
		t.Fatalf("%s %v", r.Status, r.Header)
	}
	switch status {
	case 101:
		if !strings.EqualFold(r.Header.Get("Connection"), "upgrade") || r.Header.Get("Upgrade") == "" {
			t.Errorf("%v", r.Header)
		}
		_, _ = io.WriteString(nc, "and late")
		_ = nc.(*net.TCPConn).CloseWrite()
		if all, err := io.ReadAll(in); string(all) != got+"|early and late" || err != nil {
			t.Errorf("%q, %v", all, err)
		}
	case 200:
		if all, err := io.ReadAll(r.Body); string(all) != got || err != nil {
			t.Errorf("%q, %v", all, err)
		}
	}
}
