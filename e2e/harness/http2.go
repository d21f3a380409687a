package harness

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// HTTP2Endpoint is an application that speaks HTTP/2.
type HTTP2Endpoint struct {
	Addr        string
	Srv         *http.Server
	Served      atomic.Int64 // number of requests
	Connections atomic.Int64 // number of connections that were accepted
}

// StartHTTP2Endpoint starts an application that speaks HTTP/2 only, with prior knowledge. change, if not
// nil, changes its server.
func StartHTTP2Endpoint(t *testing.T, addr string, h http.HandlerFunc, change func(*http.Server)) *HTTP2Endpoint {
	t.Helper()
	l := must.ListenOn(t, "tcp", addr)
	a := &HTTP2Endpoint{Addr: l.Addr().String()}
	a.Srv = &http.Server{
		Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				a.Connections.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.Served.Add(1)
			h(w, r)
		}),
	}
	a.Srv.Protocols.SetUnencryptedHTTP2(true)
	if change != nil {
		change(a.Srv)
	}
	go func() { _ = a.Srv.Serve(l) }()
	t.Cleanup(func() { _ = a.Srv.Close() })
	return a
}

// StartHTTP2Caller starts a sidecar whose service has endpoints that speak HTTP/2, and more keys. The sidecar waits for clients
// that read nothing.
func StartHTTP2Caller(t *testing.T, endpoints []string, more string) (p *Process, url string) {
	t.Helper()
	egress := FreeAddrs(t, 1)[0]
	p = Start(t, fmt.Sprintf(`
loops: 1
via: on
limits: {message: 1MiB}
timeouts: {min_rate: 0, write: 10m}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: static, endpoints: ["%s"], protocol: http2, timeout: 2m%s}}`, egress, strings.Join(endpoints, `", "`), more))
	p.Ready()
	return p, "http://" + egress
}

// Protocols are versions of HTTP without TLS: "1.1", "2".
func Protocols(versions ...string) *http.Protocols {
	p := new(http.Protocols)
	p.SetHTTP1(slices.Contains(versions, "1.1"))
	p.SetUnencryptedHTTP2(slices.Contains(versions, "2"))
	return p
}

// Transport sends requests in one version of HTTP without TLS. Its connections close when the test ends.
func Transport(t *testing.T, version string) *http.Transport {
	tr := &http.Transport{Protocols: Protocols(version), ExpectContinueTimeout: Patience}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// Zeros is an endless reader.
type Zeros struct{}

// Read fills b.
func (Zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
