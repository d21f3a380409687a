package http2

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// TestHTTP2Service checks what an application that speaks HTTP/2 gets from a caller with HTTP/1.1,
// and the other way round.
func TestHTTP2Service(t *testing.T) {
	app := harness.StartHTTP2Endpoint(t, "127.0.0.1:0", tellRequest, nil)
	p, url := harness.StartHTTP2Caller(t, []string{app.Addr}, ", connect_timeout: 15s")

	resp, body := must.Do(t, http.DefaultClient, must.Request(t, http.MethodGet, url+"/a?b=c", nil))
	if want := "HTTP/2.0 GET /a?b=c host=" + url[len("http://"):] + " via=1.1 remora te= body=0"; !strings.HasPrefix(body, want) {
		t.Errorf("got %q, want %q", body, want)
	}
	if resp.StatusCode != 200 || resp.Header.Get("Via") != "2.0 remora" || resp.Header.Get("X-Remora-Error") != "" || resp.Header.Get("Date") == "" {
		t.Errorf("status %d, headers %v", resp.StatusCode, resp.Header)
	}
	if resp.Trailer.Get("X-Sum") != fmt.Sprintf("%x", sha256.Sum256(nil)) {
		t.Errorf("trailers %v", resp.Trailer)
	}

	post := must.Request(t, http.MethodPost, url+"/p", strings.NewReader("twelve bytes"))
	post.Header.Set("Content-Type", "application/grpc")
	post.Trailer = http.Header{"X-End": {"yes"}}
	post.ContentLength = -1
	if _, body = must.Do(t, http.DefaultClient, post); !strings.Contains(body, "te=trailers body=12 trailer=yes err=<nil>") {
		t.Errorf("got %q", body)
	}

	odd := must.Request(t, http.MethodDelete, url+"/p", strings.NewReader("five."))
	odd.Header.Set("Content-Type", "application/grpc")
	if _, body = must.Do(t, http.DefaultClient, odd); !strings.Contains(body, "te=trailers body=5") {
		t.Errorf("got %q", body)
	}

	if resp, body = must.Do(t, http.DefaultClient, must.Request(t, http.MethodHead, url+"/h", nil)); resp.StatusCode != 200 || body != "" {
		t.Errorf("HEAD: status %d, body %q", resp.StatusCode, body)
	}
	if n := app.Connections.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
	if out := p.Output.String(); strings.Contains(out, "peer=") {
		t.Errorf("warnings:\n%s", out)
	}
}

// TestHTTP2Statuses checks responses that have no body.
func TestHTTP2Statuses(t *testing.T) {
	app := harness.StartHTTP2Endpoint(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/204":
			w.WriteHeader(204)
		case "/304":
			w.Header().Set("Etag", `"x"`)
			w.WriteHeader(304)
		case "/empty":
		case "/trailers-only":
			w.Header().Set("Content-Type", "application/grpc")
			w.Header().Set("Grpc-Status", "5")
		case "/reset":
			panic(http.ErrAbortHandler)
		case "/early":
			w.WriteHeader(413) // without reading the request
		}
	}, nil)
	_, url := harness.StartHTTP2Caller(t, []string{app.Addr}, ", connect_timeout: 15s")
	for path, want := range map[string]string{
		"/204": "204  0", "/304": "304  0", "/empty": "200  0", "/trailers-only": "200  0", "/reset": "502 upstream-reset 0", "/early": "413  0",
	} {
		req := must.Request(t, http.MethodPost, url+path, bytes.NewReader(make([]byte, 900<<10)))
		if path == "/304" {
			req = must.Request(t, http.MethodGet, url+path, nil)
		}
		resp, body := must.Do(t, http.DefaultClient, req)
		if strings.Contains(want, "upstream") {
			body = ""
		}
		if got := fmt.Sprintf("%d %s %d", resp.StatusCode, resp.Header.Get("X-Remora-Error"), len(body)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestHTTP2StreamLimit checks that an endpoint never gets more streams on a connection than it
// allows, and that all requests are served nevertheless.
func TestHTTP2StreamLimit(t *testing.T) {
	var now, most atomic.Int64
	app := harness.StartHTTP2Endpoint(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		n := now.Add(1)
		defer now.Add(-1)
		for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-r.Context().Done():
			t.Error("a request was withdrawn")
		}
	}, func(s *http.Server) { s.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 1} })
	_, url := harness.StartHTTP2Caller(t, []string{app.Addr}, ", connect_timeout: 15s, max_pending: 10000")
	const requests = 400
	var failed atomic.Int64
	var wg sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxConnsPerHost: 400}}
	for range requests {
		wg.Go(func() {
			resp, err := client.Post(url, "text/plain", strings.NewReader("x"))
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != 200 {
				failed.Add(1)
			}
		})
	}
	wg.Wait()
	if failed.Load() > 0 || app.Served.Load() != requests || most.Load() > 128 {
		t.Errorf("%d failed, %d served, %d at once", failed.Load(), app.Served.Load(), most.Load())
	}
}

// TestHTTP2Restart checks that no request is lost when an endpoint goes away in order (GOAWAY), again and
// again, and that one which is there again gets requests.
func TestHTTP2Restart(t *testing.T) {
	addrs := harness.FreeAddrs(t, 2)
	handler := func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }
	apps := []*harness.HTTP2Endpoint{harness.StartHTTP2Endpoint(t, addrs[0], handler, nil), harness.StartHTTP2Endpoint(t, addrs[1], handler, nil)}
	_, url := harness.StartHTTP2Caller(t, addrs, ", connect_timeout: 15s, outlier: {consecutive: 0, success_rate: 0}")
	done := make(chan struct{})
	var sent, failed atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				sent.Add(1)
				resp, err := http.Post(url, "text/plain", strings.NewReader("hello")) // not idempotent
				if err != nil {
					t.Error(err)
					return
				}
				b, _ := io.ReadAll(resp.Body)
				_ = resp.Body.Close()
				if resp.StatusCode != 200 || string(b) != "hello" {
					failed.Add(1)
					t.Logf("status %d, %s", resp.StatusCode, b)
				}
			}
		})
	}
	for i := range 6 {
		n := i % 2
		eventually.True(t, "requests at both", func() bool { return apps[n].Served.Load() > 20 })
		ctx, cancel := context.WithTimeout(t.Context(), harness.Patience)
		if err := apps[n].Srv.Shutdown(ctx); err != nil {
			t.Error(err)
		}
		cancel()
		apps[n] = harness.StartHTTP2Endpoint(t, addrs[n], handler, nil)
	}
	close(done)
	wg.Wait()
	if failed.Load() > 0 {
		t.Errorf("%d of %d requests failed", failed.Load(), sent.Load())
	}
}

// TestHTTP2NotSpoken checks what the log says of endpoints that do not speak HTTP/2.
func TestHTTP2NotSpoken(t *testing.T) {
	http1 := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(http1.Close)
	silent := must.Listen(t)
	for _, c := range []struct{ addr, timeout, want string }{
		{http1.Listener.Addr().String(), "15s", "the peer speaks HTTP/1.1, not HTTP/2"},
		{silent.Addr().String(), "300ms", "did not begin to speak HTTP/2 within connect_timeout"},
		{harness.FreeAddrs(t, 1)[0], "15s", "connection refused"},
	} {
		p, url := harness.StartHTTP2Caller(t, []string{c.addr}, ", connect_timeout: "+c.timeout)
		resp, _ := must.Do(t, http.DefaultClient, must.Request(t, http.MethodPost, url, strings.NewReader("x")))
		if code := resp.Header.Get("X-Remora-Error"); resp.StatusCode != 502 || code != "upstream-connect" {
			t.Errorf("status %d %s", resp.StatusCode, code)
		}
		p.AwaitLog(c.want)
	}
}

// TestHTTP2TLS checks that an endpoint is called by HTTP/2 over TLS only if it selects that.
func TestHTTP2TLS(t *testing.T) {
	ca := testcerts.New(t)
	cert, key := ca.Issue(testcerts.Leaf{Names: []string{"app.test"}})
	own, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	roots := harness.CertFiles(t, ca, "app.test").CA
	for _, alpn := range []bool{true, false} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			fmt.Fprintf(w, "%s sni=%s", r.Proto, r.TLS.ServerName)
		}))
		srv.Config.ErrorLog = log.New(io.Discard, "", 0)
		srv.EnableHTTP2 = alpn
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{own}}
		if !alpn {
			srv.TLS.NextProtos = []string{}
			srv.Config.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
		}
		srv.StartTLS()
		t.Cleanup(srv.Close)
		p, url := harness.StartHTTP2Caller(t, []string{srv.Listener.Addr().String()}, fmt.Sprintf(", connect_timeout: 15s, tls: {ca: %q, sni: app.test}", roots))
		resp, body := must.Do(t, http.DefaultClient, must.Request(t, http.MethodGet, url, nil))
		if alpn {
			if resp.StatusCode != 200 || body != "HTTP/2.0 sni=app.test" {
				t.Errorf("status %d, %q", resp.StatusCode, body)
			}
			continue
		}
		if resp.StatusCode != 502 {
			t.Errorf("without ALPN: status %d", resp.StatusCode)
		}
		p.Says(t, "tls_")
	}
}
