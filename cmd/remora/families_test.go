package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestFamilies: an application that listens at 127.0.0.1 only, or at ::1 only, is reached by the name localhost: by
// each protocol, in streams, by health checks, and by direct requests and tunnels. The name is one endpoint.
func TestFamilies(t *testing.T) {
	addrs := freeAddrs(t, 9)
	port := func(i int) string { _, port, _ := net.SplitHostPort(addrs[i]); return port }
	ca := testcerts.New(t)
	files := webFiles(t, ca, "localhost")
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
			s.Config.Protocols = new(http.Protocols)
			s.Config.Protocols.SetHTTP1(true)
			s.Config.Protocols.SetUnencryptedHTTP2(true)
			s.Listener.Close()
			s.Listener = ln
			*srv = s
		}
		plain.Start()
		secure.TLS = &tls.Config{Certificates: []tls.Certificate{pair(t, files)}}
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
	p := startRemora(t, fmt.Sprintf(`
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
	p.ready()
	// urls are those of the names, and then of direct requests and tunnels.
	var urls []string
	for i := range names {
		urls = append(urls, "http://"+addrs[2+i]+"/")
	}
	urls = append(urls, "http://localhost:"+port(0)+"/", "https://localhost:"+port(1)+"/")
	client := http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: trusting(ca).RootCAs},
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
			p.awaitMetric(fmt.Sprintf(`remora_endpoints{service=%q}`, name), 1)
		}
	}
	check("::1")
	end()
	serve("127.0.0.1")
	check("127.0.0.1")
}
