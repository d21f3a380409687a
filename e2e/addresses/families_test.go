package addresses

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestFamilies: an application that listens at 127.0.0.1 only, or at ::1 only, is reached by the name localhost: by
// each protocol, in streams, by health checks, and by direct requests and tunnels. The name is one endpoint.
func TestFamilies(t *testing.T) {
	addrs := harness.FreeAddrs(t, 9)
	port := func(i int) string { _, port, _ := net.SplitHostPort(addrs[i]); return port }
	ca := testcerts.New(t)
	files := harness.CertFiles(t, ca, "localhost")
	var plain, secure *httptest.Server
	serve := func(host string) {
		for i, srv := range []**httptest.Server{&plain, &secure} {
			ln, err := net.Listen("tcp", net.JoinHostPort(host, port(i)))
			if err != nil {
				t.Skip("no IPv6: ", err)
			}
			s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				fmt.Fprintf(w, "%d bytes", n)
			}))
			s.Config.Protocols = harness.Protocols("1.1", "2")
			s.Listener.Close()
			s.Listener = ln
			*srv = s
		}
		plain.Start()
		secure.TLS = &tls.Config{Certificates: []tls.Certificate{harness.Pair(t, files)}}
		secure.StartTLS()
	}
	end := func() { plain.Close(); secure.Close() }
	serve("::1")
	defer func() { end() }()

	const service = `{name: %[1]s, address: "%[2]s", protocol: %[3]s, service: %[1]s}`
	names := []string{"http", "http2", "https", "linked", "tcp"}
	var listeners []string
	for i, name := range names {
		protocol := "http"
		if name == "tcp" {
			protocol = "tcp"
		}
		listeners = append(listeners, fmt.Sprintf(service, name, addrs[2+i], protocol))
	}
	const rest = `discover: static, connect_timeout: 15s, timeout: 2m, check: {on_down: close, interval: 20ms, timeout: 15s, ` // down until a check has passed
	p := harness.Start(t, fmt.Sprintf(`
loops: 2
limits: {message: 64KiB}
listeners:
  - {name: in, address: "[::1]:%[2]s", protocol: link, service: http}
  - {name: direct, address: %[7]q, protocol: http, unrouted: direct, direct: {allow: [127.0.0.1, "::1"]}}
  - %[1]s
services:
  http: {endpoints: ["localhost:%[3]s"], protocol: http, %[6]shttp: /}}
  http2: {endpoints: ["localhost:%[3]s"], protocol: http2, %[6]stcp: true}}
  https: {endpoints: ["LOCALHOST:%[4]s"], protocol: http, tls: {ca: %[5]q, sni: localhost}, %[6]shttp: /}}
  linked: {endpoints: ["localhost:%[2]s"], protocol: link, %[6]stcp: true}}
  tcp: {endpoints: ["localhost.:%[3]s"], protocol: tcp, %[6]stcp: true}}`,
		strings.Join(listeners, "\n  - "), port(7), port(0), port(1), files.CA, rest, addrs[8]))
	p.Ready()
	// urls are those of the names, and then of direct requests and tunnels.
	var urls []string
	for i := range names {
		urls = append(urls, "http://"+addrs[2+i]+"/")
	}
	urls = append(urls, "http://localhost:"+port(0)+"/", "https://localhost:"+port(1)+"/")
	client := http.Client{Timeout: harness.Patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: harness.Trusting(ca).RootCAs},
		Proxy: func(r *http.Request) (*url.URL, error) {
			if r.URL.Hostname() != "localhost" {
				return nil, nil
			}
			return &url.URL{Scheme: "http", Host: addrs[8]}, nil
		},
	}}
	check := func(at string) {
		t.Helper()
		for _, u := range urls {
			for _, size := range []int{10, 100_000} { // a message and a stream
				eventually.Nil(t, fmt.Sprintf("%s by %s, %d bytes", at, u, size), func() error {
					resp, err := client.Post(u, "text/plain", strings.NewReader(strings.Repeat("x", size)))
					if err != nil {
						return err
					}
					defer resp.Body.Close()
					if b, err := io.ReadAll(resp.Body); resp.StatusCode != 200 || string(b) != fmt.Sprint(size, " bytes") {
						return fmt.Errorf("%d %q, %v", resp.StatusCode, b, err)
					}
					return nil
				})
			}
		}
		for _, name := range names {
			p.AwaitMetric(fmt.Sprintf(`remora_endpoints{service=%q}`, name), 1)
		}
	}
	check("::1")
	end()
	serve("127.0.0.1")
	check("127.0.0.1")
}

// TestFamiliesOfMany: an application that listens only at the IPv6 address of a name with many IPv4 addresses is reached
// by that name: as an endpoint, and by direct requests. The name is in /etc/hosts, so the sidecar has one of its own.
func TestFamiliesOfMany(t *testing.T) {
	ln, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip("no IPv6: ", err)
	}
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	app.Listener.Close()
	app.Listener = ln
	app.Start()
	defer app.Close()
	var lines string
	for _, addr := range []string{"127.0.0.1", "127.0.0.2", "127.0.0.3", "127.0.0.4", "::1"} {
		lines += addr + " many.example.test\n"
	}
	hosts := filepath.Join(t.TempDir(), "hosts")
	must.WriteFile(t, hosts, lines)
	const mounted = `mount --bind "$0" /etc/hosts && exec "$@"`
	if out, err := exec.Command("unshare", "-rm", "sh", "-c", mounted, hosts, "true").CombinedOutput(); err != nil {
		t.Skipf("no mount namespace: %v: %s", err, out)
	}
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	addrs := harness.FreeAddrs(t, 3)
	p := harness.NewProcess(t, fmt.Sprintf(`
loops: 2
limits: {message: 64KiB}
listeners:
  - {name: in, address: %q, protocol: http, service: app}
  - {name: opaque, address: %q, protocol: tcp, service: opaque}
  - {name: out, address: %q, protocol: http, unrouted: direct, direct: {allow: [127.0.0.0/8, "::1"]}}
services:
  app: {discover: static, endpoints: ["many.example.test:%[4]s"], protocol: http, connect_timeout: 15s, timeout: 2m, lb: {policy: random}}
  opaque: {discover: static, endpoints: ["many.example.test:%[4]s"], protocol: tcp, connect_timeout: 15s}`, addrs[0], addrs[1], addrs[2], port))
	p = p.Launch(exec.Command("unshare", append([]string{"-rm", "sh", "-c", mounted, hosts}, p.Command().Args...)...))
	p.Ready()
	for i, at := range addrs {
		for _, size := range []int{10, 100_000} { // a message and a stream
			for range 8 {
				client := &http.Client{Timeout: harness.Patience, Transport: &http.Transport{DisableKeepAlives: true}}
				to := "http://" + at + "/"
				if i == 2 {
					client.Transport.(*http.Transport).Proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: at})
					to = "http://many.example.test:" + port + "/"
				}
				resp, b := must.Post(t, client, to, "text/plain", strings.NewReader(strings.Repeat("x", size)))
				if resp.StatusCode != http.StatusOK || len(b) != size {
					t.Fatalf("listener %d, %d bytes: %d %.100q", i, size, resp.StatusCode, b)
				}
			}
		}
	}
}
