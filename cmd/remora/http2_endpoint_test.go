package main

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
)

// http2Endpoint is an application that speaks HTTP/2.
type http2Endpoint struct {
	addr        string
	srv         *http.Server
	served      atomic.Int64
	connections atomic.Int64
}

// startHTTP2Endpoint starts an application that speaks HTTP/2 only, with prior knowledge. change, if not
// nil, changes its server.
func startHTTP2Endpoint(t *testing.T, addr string, h http.HandlerFunc, change func(*http.Server)) *http2Endpoint {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	a := &http2Endpoint{addr: l.Addr().String()}
	a.srv = &http.Server{
		Protocols: new(http.Protocols), ErrorLog: log.New(io.Discard, "", 0),
		ConnState: func(_ net.Conn, s http.ConnState) {
			if s == http.StateNew {
				a.connections.Add(1)
			}
		},
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			a.served.Add(1)
			h(w, r)
		}),
	}
	a.srv.Protocols.SetUnencryptedHTTP2(true)
	if change != nil {
		change(a.srv)
	}
	go func() { _ = a.srv.Serve(l) }()
	t.Cleanup(func() { _ = a.srv.Close() })
	return a
}

// startHTTP2Caller starts a sidecar whose service has endpoints that speak HTTP/2, and more keys.
func startHTTP2Caller(t *testing.T, endpoints []string, more string) (p *process, url string) {
	t.Helper()
	egress := freeAddrs(t, 1)[0]
	p = startRemora(t, fmt.Sprintf(`
loops: 1
via: on
limits: {message: 1MiB}
listeners: [{name: egress, address: %q, protocol: http, service: app}]
services: {app: {discover: static, endpoints: ["%s"], protocol: http2, timeout: 2m%s}}`, egress, strings.Join(endpoints, `", "`), more))
	p.ready()
	return p, "http://" + egress
}

// tellRequest is a handler that responds with what it got.
func tellRequest(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	w.Header().Set("Trailer", "X-Sum")
	w.Header().Set("X-Remora-Error", "forged")
	fmt.Fprintf(w, "%s %s %s host=%s via=%s te=%s body=%d trailer=%s err=%v", r.Proto, r.Method, r.URL, r.Host, r.Header.Get("Via"), r.Header.Get("Te"),
		len(body), r.Trailer.Get("X-End"), err)
	w.Header().Set("X-Sum", fmt.Sprintf("%x", sha256.Sum256(body)))
}

func call(t *testing.T, req *http.Request) (*http.Response, string) {
	t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Errorf("%s: %v after %d bytes", req.URL, err, len(b))
	}
	return resp, string(b)
}

func newRequest(t *testing.T, method, url string, body io.Reader) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	return req
}
