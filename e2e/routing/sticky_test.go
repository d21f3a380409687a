package routing

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
)

// startStickyApp starts an application of both versions of HTTP. Each response has the number of the
// application and the cookies that it has got.
func startStickyApp(t *testing.T, number int) *httptest.Server {
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-App", fmt.Sprint(number))
		w.Header().Set("X-Saw", strings.Join(r.Header["Cookie"], " and "))
		switch {
		case r.URL.Path == "/events":
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		case r.Header.Get("Upgrade") != "":
			w.Header().Set("Connection", "Upgrade")
			w.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			w.WriteHeader(http.StatusSwitchingProtocols)
		case strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc"):
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Trailer", "Grpc-Status")
			_ = http.NewResponseController(w).Flush()
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Grpc-Status", "0")
		default:
			_, _ = io.Copy(io.Discard, r.Body)
		}
	}))
	app.Config.Protocols = harness.Protocols("1.1", "2")
	app.Start()
	t.Cleanup(app.Close)
	return app
}

// stickyRequest is a kind of request.
type stickyRequest struct {
	name, method, path string
	body               int  // bytes
	open               bool // the body does not end before the response
	headers            []string
	status             int
	protocols          string // of clients and endpoints: 1, 2 or both
}

var stickyRequests = []stickyRequest{
	{"message", "GET", "/", 0, false, nil, 200, "12"},
	{"streamed body", "POST", "/", 200 << 10, false, nil, 200, "12"},
	{"events", "GET", "/events", 0, false, nil, 200, "12"},
	{"WebSocket", "GET", "/", 0, false, []string{"Connection", "Upgrade", "Upgrade", "websocket"}, 101, "1"},
	{"gRPC stream", "POST", "/a.B/C", 1, true, []string{"Content-Type", "application/grpc", "Te", "trailers"}, 200, "2"},
}

// send sends the request with a cookie to a host at addr, and returns the head of the response.
func (k *stickyRequest) send(t *testing.T, client *http.Client, addr, host, cookie string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
	defer cancel()
	body := io.Reader(bytes.NewReader(make([]byte, k.body)))
	if k.open {
		r, w := io.Pipe()
		defer w.Close()
		go func() { _, _ = w.Write(make([]byte, k.body)) }()
		body = r
	}
	r, err := http.NewRequestWithContext(ctx, k.method, "http://"+addr+k.path, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Host = host
	for i := 0; i < len(k.headers); i += 2 {
		r.Header.Set(k.headers[i], k.headers[i+1])
	}
	if r.Header["Cookie"] = []string{"a=b"}; cookie != "" {
		r.Header["Cookie"] = []string{cookie + "; a=b"}
	}
	resp, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != k.status || resp.Header.Get("X-App") == "" {
		t.Errorf("%s to %s: %s from application %q", k.name, host, resp.Status, resp.Header.Get("X-App"))
	}
	return resp
}

// startStickyCallers starts two sidecars with services of several kinds, whose endpoints the second one
// lists in another order. It returns their addresses.
func startStickyCallers(t *testing.T, apps []*httptest.Server) []string {
	var direct, links, old, current, listeners, services []string
	for i, a := range apps {
		links = append(links, harness.FreeAddrs(t, 2)...)
		direct = append(direct, fmt.Sprintf("%q", a.Listener.Addr()))
		old, current = append(old, fmt.Sprintf("%q", links[2*i])), append(current, fmt.Sprintf("%q", links[2*i+1]))
		for n, protocol := range []string{"http", "http2"} {
			name := fmt.Sprintf("%s%d", protocol, i)
			listeners = append(listeners, fmt.Sprintf("{name: %s, address: %q, protocol: link, service: %s}", name, links[2*i+n], name))
			services = append(services, fmt.Sprintf("%s: {discover: static, endpoints: [%s], protocol: %s, connect_timeout: 15s}", name, direct[i], protocol))
		}
	}
	harness.Start(t, fmt.Sprintf("loops: 1\nlimits: {message: 64KiB}\nlisteners: [%s]\nservices: {%s}\n", strings.Join(listeners, ", "), strings.Join(services, ", "))).Ready()
	addrs := harness.FreeAddrs(t, 2)
	for i, addr := range addrs {
		list := func(all []string) string {
			if i == 1 {
				all = append(append([]string{}, all[1:]...), all[0])
			}
			return "discover: static, endpoints: [" + strings.Join(all, ", ") + "], connect_timeout: 15s, lb: "
		}
		const sticky = `{sticky: {cookie: srv, secret: "0123456789abcdef"}}`
		harness.Start(t, fmt.Sprintf(`
loops: 2
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes:
  - {match: {host: http}, service: http}
  - {match: {host: http2}, service: http2}
  - {match: {host: linked}, service: linked}
  - {match: {host: linked2}, service: linked2}
  - {match: {host: hashed}, service: hashed}
services:
  http: {protocol: http, %s}
  http2: {protocol: http2, %s}
  linked: {protocol: link, %s}
  linked2: {protocol: link, %s}
  hashed: {protocol: http, %s{policy: consistent_hash, hash: {cookie: srv, ttl: 1h, balance: 0}}}`,
			addr, list(direct)+sticky, list(direct)+sticky, list(old)+sticky, list(current)+sticky, list(direct))).Ready()
	}
	return addrs
}

// TestSticky: requests and streams of every kind begin a session with a cookie, and stay at its
// application, also through the other sidecar, and by the other kinds. The same holds for the cookie of
// hash, which the application sees.
func TestSticky(t *testing.T) {
	var apps []*httptest.Server
	for i := range 4 {
		apps = append(apps, startStickyApp(t, i))
	}
	addrs := startStickyCallers(t, apps)
	clients := map[string]*http.Client{"1": {Transport: harness.Transport(t, "1.1")}, "2": {Transport: harness.Transport(t, "2")}}
	const session = "; Path=/; HttpOnly; SameSite=Lax"
	hosts := []struct{ name, speaks, saw, cookie string }{
		{"http", "1", "a=b", session}, {"http2", "2", "a=b", session}, {"linked", "1", "a=b", session}, {"linked2", "2", "a=b", session},
		{"hashed", "1", "", strings.Replace(session, "; H", "; Max-Age=3600; H", 1)},
	}
	for _, host := range hosts {
		for _, k := range stickyRequests {
			if !strings.Contains(k.protocols, host.speaks) {
				continue
			}
			for version, client := range clients {
				if !strings.Contains(k.protocols, version) {
					continue
				}
				first := k.send(t, client, addrs[0], host.name, "")
				set := first.Header["Set-Cookie"]
				if len(set) != 1 || !strings.HasPrefix(set[0], "srv=") || !strings.HasSuffix(set[0], host.cookie) || first.Header.Get("Cache-Control") != "private" {
					t.Errorf("HTTP/%s, %s to %s: began with %q", version, k.name, host.name, first.Header)
					continue
				}
				pair, _, _ := strings.Cut(set[0], ";")
				for _, next := range stickyRequests {
					if !strings.Contains(next.protocols, host.speaks) || !strings.Contains(next.protocols, version) {
						continue
					}
					resp := next.send(t, client, addrs[1], host.name, pair)
					want := host.saw
					if want == "" {
						want = pair + "; a=b"
					}
					if resp.Header.Get("X-App") != first.Header.Get("X-App") || resp.Header["Set-Cookie"] != nil || resp.Header.Get("X-Saw") != want {
						t.Errorf("HTTP/%s, %s to %s: began at %s, and %s got %q", version, k.name, host.name, first.Header.Get("X-App"), next.name, resp.Header)
					}
				}
			}
		}
	}
	for i, host := range hosts[:2] { // the sidecars of linked applications would go on
		k := stickyRequests[i]
		first := k.send(t, clients["1"], addrs[0], host.name, "")
		pair, _, _ := strings.Cut(first.Header.Get("Set-Cookie"), ";")
		left := first.Header.Get("X-App")
		for n, a := range apps {
			if fmt.Sprint(n) == left {
				a.Listener.Close()
				a.CloseClientConnections()
			}
		}
		resp := k.send(t, clients["1"], addrs[1], host.name, pair)
		now, _, _ := strings.Cut(resp.Header.Get("Set-Cookie"), ";")
		if resp.Header.Get("X-App") == left || now == "" || now == pair {
			t.Errorf("%s to %s: application %s has left, and the session got %q", k.name, host.name, left, resp.Header)
		}
	}
}
