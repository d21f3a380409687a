package http2

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/testcerts"
)

// http2App is an HTTP/1.1 application whose responses show what it got.
type http2App struct {
	*httptest.Server
	held chan struct{} // requests to /held wait for it
	came chan struct{} // receives for each request to /held
}

func startHTTP2App(t *testing.T) *http2App {
	a := &http2App{held: make(chan struct{}), came: make(chan struct{}, 16)}
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		n, err := io.Copy(io.Discard, r.Body)
		if err != nil {
			return
		}
		w.Header().Set("Trailer", "X-Sum")
		w.Header().Set("X-Saw", fmt.Sprintf("%s %s %s %s", r.Method, r.RequestURI, r.Host, r.Header.Get("X-Forwarded-Proto")))
		w.Header().Set("X-Via", r.Header.Get("Via"))
		fmt.Fprintf(w, "%d bytes, trailer %q", n, r.Trailer.Get("X-Check"))
		w.Header().Set("X-Sum", "7")
	})
	mux.HandleFunc("/big", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, 12<<20)) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		c := http.NewResponseController(w)
		_ = c.EnableFullDuplex()
		w.WriteHeader(http.StatusOK)
		_ = c.Flush()
		b := make([]byte, 4096)
		for {
			n, err := r.Body.Read(b)
			_, _ = w.Write(b[:n])
			_ = c.Flush()
			if err != nil {
				return
			}
		}
	})
	mux.HandleFunc("/held", func(w http.ResponseWriter, _ *http.Request) {
		a.came <- struct{}{}
		<-a.held
		_, _ = io.WriteString(w, "late")
	})
	a.Server = httptest.NewServer(mux)
	t.Cleanup(a.Close)
	return a
}

// http2Client is an HTTP/2 client: with prior knowledge, or by ALPN.
type http2Client struct {
	*http.Client
	base string
}

const http2Config = `
via: on
listeners:
  - {name: plain, address: %q, protocol: http}
  - {name: tls, address: %q, protocol: http, tls: {cert: %q, key: %q}}
routes:
  - {match: {path: /none}, respond: {status: 404}}
  - {match: {host: missing}, service: gone}
  - {service: app}
services:
  app: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}
  gone: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s}`

// startHTTP2 starts a sidecar whose listeners serve HTTP/2, and returns a client of each.
func startHTTP2(t *testing.T, app string) (p *harness.Process, clients map[string]http2Client) {
	t.Helper()
	addrs, ca := harness.FreeAddrs(t, 3), testcerts.New(t)
	web := harness.CertFiles(t, ca, "web.test")
	p = harness.Start(t, fmt.Sprintf(http2Config, addrs[0], addrs[1], web.Cert, web.Key, app, addrs[2]))
	p.Ready()
	client := func(base string, set func(*http.Protocols)) http2Client {
		var protocols http.Protocols
		set(&protocols)
		tr := &http.Transport{Protocols: &protocols, TLSClientConfig: harness.Trusting(ca)}
		t.Cleanup(tr.CloseIdleConnections)
		return http2Client{&http.Client{Transport: tr, Timeout: harness.Patience}, base}
	}
	return p, map[string]http2Client{
		"plain": client("http://"+addrs[0], func(p *http.Protocols) { p.SetUnencryptedHTTP2(true) }),
		"tls":   client("https://"+addrs[1], func(p *http.Protocols) { p.SetHTTP2(true) }),
	}
}

// do sends a request, which must get a response over HTTP/2, and returns that with its body.
func (c http2Client) do(t *testing.T, method, path string, body io.Reader, change func(*http.Request)) (*http.Response, string) {
	t.Helper()
	req := must.Request(t, method, c.base+path, body)
	if change != nil {
		change(req)
	}
	resp, text := must.Do(t, c.Client, req)
	if resp.ProtoMajor != 2 {
		t.Fatalf("the response came over %s", resp.Proto)
	}
	return resp, text
}

// TestHTTP2 sends requests over HTTP/2 to an HTTP/1.1 application.
func TestHTTP2(t *testing.T) {
	app := startHTTP2App(t)
	_, clients := startHTTP2(t, app.Listener.Addr().String())
	for name, c := range clients {
		t.Run(name, func(t *testing.T) {
			scheme, _, _ := strings.Cut(c.base, ":")
			resp, body := c.do(t, "GET", "/a?b", nil, func(r *http.Request) { r.Host = "some.host" })
			if got, want := resp.Header.Get("X-Saw"), "GET /a?b some.host "+scheme; got != want || body != `0 bytes, trailer ""` {
				t.Errorf("GET: the application saw %q, want %q; %q", got, want, body)
			}
			if via, back := resp.Header.Get("X-Via"), resp.Header.Get("Via"); via != "2.0 remora" || back != "1.1 remora" {
				t.Errorf("Via is %q there, and %q back", via, back)
			}
			if resp.Trailer.Get("X-Sum") != "7" || resp.Header.Get("X-Request-Id") == "" {
				t.Errorf("trailers %v, headers %v", resp.Trailer, resp.Header)
			}
			if resp, body = c.do(t, "HEAD", "/a", nil, nil); resp.StatusCode != 200 || body != "" {
				t.Errorf("HEAD: %d %q", resp.StatusCode, body)
			}
			_, body = c.do(t, "POST", "/a", strings.NewReader("hello"), func(r *http.Request) {
				r.ContentLength, r.Trailer = -1, http.Header{"X-Check": {"yes"}}
			})
			if body != `5 bytes, trailer "yes"` {
				t.Errorf("POST with a trailer: %q", body)
			}
			for _, size := range []int{100 << 10, 9 << 20} { // a message, and a stream
				if _, body = c.do(t, "POST", "/a", bytes.NewReader(make([]byte, size)), nil); body != fmt.Sprintf(`%d bytes, trailer ""`, size) {
					t.Errorf("POST of %d bytes: %q", size, body)
				}
			}
			if _, body = c.do(t, "GET", "/big", nil, nil); len(body) != 12<<20 {
				t.Errorf("%d bytes of a response that is a stream", len(body))
			}
		})
	}
}

// TestHTTP2Failures: the sidecar's own responses are those of HTTP/1.1, and a status to a gRPC caller.
func TestHTTP2Failures(t *testing.T) {
	app := startHTTP2App(t)
	_, clients := startHTTP2(t, app.Listener.Addr().String())
	for name, c := range clients {
		missing := func(r *http.Request) { r.Host = "missing" }
		resp, _ := c.do(t, "GET", "/", nil, missing)
		if resp.StatusCode != 502 || resp.Header.Get("X-Remora-Error") != "upstream-connect" {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}
		slow, finish := io.Pipe()
		for kind, body := range map[string]io.Reader{"message": strings.NewReader("m"), "stream": slow} {
			resp, text := c.do(t, "POST", "/pkg.Service/Method", body, func(r *http.Request) {
				missing(r)
				r.Header.Set("Content-Type", "application/grpc+proto")
			})
			h := resp.Header
			if resp.StatusCode != 200 || h.Get("Content-Type") != "application/grpc" || h.Get("Grpc-Status") != "14" ||
				h.Get("Grpc-Message") == "" || h.Get("X-Remora-Error") != "upstream-connect" || text != "" {
				t.Errorf("%s, %s: %d %v %q", name, kind, resp.StatusCode, h, text)
			}
		}
		finish.Close()
		if resp, _ := c.do(t, "GET", "/a", nil, func(r *http.Request) { r.Header["X-Many"] = make([]string, 200) }); resp.StatusCode != 431 {
			t.Errorf("%s: status %d for more headers than the limit", name, resp.StatusCode)
		}
		if resp, _ := c.do(t, "GET", "/none", nil, nil); resp.StatusCode != 404 || resp.Header.Get("X-Remora-Error") != "" {
			t.Errorf("%s: the route answers %d %v", name, resp.StatusCode, resp.Header)
		}
	}
}

// TestHTTP2Conversation: both sides of a stream talk in turn.
func TestHTTP2Conversation(t *testing.T) {
	app := startHTTP2App(t)
	_, clients := startHTTP2(t, app.Listener.Addr().String())
	for name, c := range clients {
		body, say := io.Pipe()
		req := must.Request(t, "POST", c.base+"/echo", body)
		req.Header.Set("Content-Type", "application/grpc")
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(name, err)
		}
		for i := range 20 {
			text := fmt.Sprintf("message %d", i)
			must.Write(t, say, text)
			got := make([]byte, len(text))
			if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != text {
				t.Fatalf("%s: said %q, heard %q, %v", name, text, got, err)
			}
		}
		say.Close()
		if rest, err := io.ReadAll(resp.Body); len(rest) > 0 || err != nil {
			t.Errorf("%s: %q, %v behind the last message", name, rest, err)
		}
		resp.Body.Close()
	}
}

// TestHTTP2Cancel: a request that its client cancels counts as cancelled, and the connection goes on.
func TestHTTP2Cancel(t *testing.T) {
	app := startHTTP2App(t)
	p, clients := startHTTP2(t, app.Listener.Addr().String())
	c := clients["plain"]
	c.do(t, "GET", "/a", nil, nil)
	for range 3 {
		ctx, cancel := context.WithCancel(context.Background())
		req, err := http.NewRequestWithContext(ctx, "GET", c.base+"/held", nil)
		if err != nil {
			t.Fatal(err)
		}
		failed := make(chan error, 1)
		go func() {
			_, err := c.Do(req)
			failed <- err
		}()
		harness.Receive(t, "the request to come", app.came)
		cancel()
		if err := harness.Receive(t, "the client to give up", failed); !errors.Is(err, context.Canceled) {
			t.Errorf("the client got %v", err)
		}
	}
	p.AwaitMetric(`remora_requests_total{outcome="cancelled",service="app"}`, 3)
	close(app.held)
	c.do(t, "GET", "/a", nil, nil)
	eventually.Nil(t, "one connection", func() error {
		if n := p.Stats().Connections; n != 1 {
			return fmt.Errorf("%d connections", n)
		}
		return nil
	})
}

// TestHTTP2Drain: a process that ends serves the requests in flight, and its clients learn that they
// must send others elsewhere.
func TestHTTP2Drain(t *testing.T) {
	app := startHTTP2App(t)
	p, clients := startHTTP2(t, app.Listener.Addr().String())
	var wg sync.WaitGroup
	const n = 4
	for name, c := range clients {
		for range n {
			wg.Go(func() {
				if _, body := c.do(t, "GET", "/held", nil, nil); body != "late" {
					t.Errorf("%s: %q", name, body)
				}
			})
		}
	}
	for range n * len(clients) {
		harness.Receive(t, "a request to come", app.came)
	}
	p.Signal(syscall.SIGTERM)
	harness.Refused(t, strings.TrimPrefix(clients["plain"].base, "http://"))
	close(app.held)
	wg.Wait()
	p.Ends()
}

// TestHTTP2Reload: requests go on while the configuration changes, by the new one from then on.
func TestHTTP2Reload(t *testing.T) {
	app, next := startHTTP2App(t), httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "next") }))
	defer next.Close()
	p, clients := startHTTP2(t, app.Listener.Addr().String())
	for _, c := range clients {
		c.do(t, "GET", "/a", nil, nil)
	}
	config := must.ReadFile(t, p.File)
	yaml, _, _ := strings.Cut(string(config), "\nadmin:")
	p.Reload(strings.Replace(yaml, app.Listener.Addr().String(), next.Listener.Addr().String(), 1), "applied")
	for name, c := range clients {
		if _, body := c.do(t, "GET", "/a", nil, nil); body != "next" {
			t.Errorf("%s: %q after the reload", name, body)
		}
	}
}
