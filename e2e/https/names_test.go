package https

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestHTTPSSlowNames: slow requests of one client for many names, with the Host as the name that an endpoint
// must prove, leave room for other clients and their names, over HTTP/1.1 and HTTP/2, in messages and streams.
func TestHTTPSSlowNames(t *testing.T) {
	const names = 200
	arrived, release := make(chan struct{}, 2*names), make(chan struct{})
	app := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			arrived <- struct{}{}
			<-release
		}
		n, _ := io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, r.Host, " ", n)
	}))
	files := harness.CertFiles(t, testcerts.New(t), "*.many.test")
	app.TLS = &tls.Config{Certificates: []tls.Certificate{harness.Pair(t, files)}}
	app.EnableHTTP2 = true
	app.StartTLS()
	defer app.Close()
	defer close(release)
	addrs := harness.FreeAddrs(t, 2)
	p := harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: one, address: %q, protocol: http, service: one}, {name: two, address: %q, protocol: http, service: two}]
services:
  one: {discover: static, endpoints: [%[3]q], protocol: http, connect_timeout: 15s, timeout: 2m, tls: {ca: %[4]q, sni: host}}
  two: {discover: static, endpoints: [%[3]q], protocol: http2, connect_timeout: 15s, timeout: 2m, tls: {ca: %[4]q, sni: host}}`,
		addrs[0], addrs[1], app.Listener.Addr().String(), files.CA))
	p.Ready()
	for _, egress := range addrs {
		for n := range names {
			c := harness.DialPlain(t, egress)
			if _, err := fmt.Fprintf(c, "GET /slow HTTP/1.1\r\nHost: slow%d.many.test\r\n\r\n", n); err != nil {
				t.Fatal(err)
			}
		}
		for range 64 { // names that an endpoint can have
			harness.Receive(t, "a slow request to arrive", arrived)
		}
		other := &http.Client{Timeout: harness.Patience, Transport: &http.Transport{
			DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
				return d.DialContext(ctx, network, egress)
			},
		}}
		for n := range 40 {
			size := []int64{10, 100_000}[n%2] // a message and a stream
			host := fmt.Sprintf("other%d.many.test", n)
			resp, err := other.Post("http://"+host+"/", "text/plain", io.LimitReader(harness.Zeros{}, size))
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if want := fmt.Sprint(host, " ", size); resp.StatusCode != 200 || string(body) != want || err != nil {
				t.Errorf("%s at %s: %d %q, %v", host, egress, resp.StatusCode, body, err)
			}
		}
		other.CloseIdleConnections()
	}
}
