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
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestHTTPSSlowNames: slow requests of one client for many names, with the Host as the name that an endpoint
// must prove, leave room for other clients and their names, over HTTP/1.1 and HTTP/2, in messages and streams, also
// of one consumer at the sidecar of a provider.
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
	start := func(protocol, service1, service2 string) (addrs []string) {
		addrs = harness.FreeAddrs(t, 2)
		harness.Start(t, fmt.Sprintf(`
loops: 1
limits: {message: 64KiB}
listeners: [{name: one, address: %q, protocol: %[3]s, service: one}, {name: two, address: %[2]q, protocol: %[3]s, service: two}]
services:
  one: {discover: static, connect_timeout: 15s, timeout: 2m, %[4]s}
  two: {discover: static, connect_timeout: 15s, timeout: 2m, %[5]s}`, addrs[0], addrs[1], protocol, service1, service2)).Ready()
		return addrs
	}
	byHost := fmt.Sprintf("endpoints: [%q], tls: {ca: %q, sni: host}", app.Listener.Addr(), files.CA)
	onHTTP1, onHTTP2 := "protocol: http, "+byHost, "protocol: http2, "+byHost
	provider := start("link", onHTTP1, onHTTP2)
	consumer := start("http", fmt.Sprintf("protocol: link, endpoints: [%q]", provider[0]), fmt.Sprintf("protocol: link, endpoints: [%q]", provider[1]))
	for _, egress := range append(start("http", onHTTP1, onHTTP2), consumer...) {
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
			resp, body := must.Post(t, other, "http://"+host+"/", "text/plain", io.LimitReader(harness.Zeros{}, size))
			if want := fmt.Sprint(host, " ", size); resp.StatusCode != 200 || body != want {
				t.Errorf("%s at %s: %d %q", host, egress, resp.StatusCode, body)
			}
		}
		other.CloseIdleConnections()
	}
}
