package http2

import (
	"bufio"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/must"
)

// readLines returns the lines of a body as they come.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string, 100)
	go func() {
		defer close(lines)
		in := bufio.NewScanner(r)
		for in.Scan() {
			lines <- in.Text()
		}
		if err := in.Err(); err != nil {
			lines <- err.Error()
		}
	}()
	return lines
}

// TestHTTP2ServerStream checks that an endless response reaches a caller with HTTP/1.1 as it comes, and that the
// application sees when the caller leaves.
func TestHTTP2ServerStream(t *testing.T) {
	say, left := make(chan string), make(chan struct{})
	app := harness.StartHTTP2Endpoint(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		defer close(left)
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		w.Header().Set("Trailer", "X-Sum")
		for {
			select {
			case line, ok := <-say:
				if !ok {
					w.Header().Set("X-Sum", "all")
					return
				}
				fmt.Fprintln(w, line)
				w.(http.Flusher).Flush()
			case <-r.Context().Done():
				return
			}
		}
	}, nil)
	for _, media := range []string{"text/event-stream", "application/grpc", "text/plain"} {
		for _, cut := range []bool{false, true} {
			say, left = make(chan string), make(chan struct{})
			_, url := harness.StartHTTP2Caller(t, []string{app.Addr}, ", connect_timeout: 15s")
			ctx, leave := context.WithCancel(t.Context())
			req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader("request"))
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("Accept", media)
			go func() { say <- "first" }()
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			lines := readLines(resp.Body)
			if line := harness.Receive(t, "a line", lines); line != "first" {
				t.Errorf("%s: %q", media, line)
			}
			for i := range 3 {
				say <- fmt.Sprint(i)
				if line := harness.Receive(t, "a line", lines); line != fmt.Sprint(i) {
					t.Errorf("%s: %q", media, line)
				}
			}
			if cut {
				leave()
				harness.Receive(t, "the application to see the end", left)
			} else {
				close(say)
				if line, more := <-lines; more {
					t.Errorf("%s: %q after the end", media, line)
				}
				if resp.Trailer.Get("X-Sum") != "all" {
					t.Errorf("%s: trailers %v", media, resp.Trailer)
				}
				harness.Receive(t, "the application's end", left)
			}
			leave()
			_ = resp.Body.Close()
		}
	}
}

// TestHTTP2LargeBodies sends bodies far above limits.message both ways: they arrive, and the sidecar
// holds little of them, even if the reader is slow.
func TestHTTP2LargeBodies(t *testing.T) {
	const size = 100 << 20
	app := harness.StartHTTP2Endpoint(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.CopyN(w, harness.Zeros{}, size)
			return
		}
		sum := sha256.New()
		n, err := io.Copy(sum, r.Body)
		fmt.Fprintf(w, "%d %x %v", n, sum.Sum(nil), err)
	}, nil)
	p, url := harness.StartHTTP2Caller(t, []string{app.Addr}, ", connect_timeout: 15s")
	sum := sha256.New()
	_, _ = io.CopyN(sum, harness.Zeros{}, size)
	want := fmt.Sprintf("%d %x <nil>", size, sum.Sum(nil))
	for _, known := range []bool{true, false} {
		req := must.Request(t, http.MethodPost, url, io.LimitReader(harness.Zeros{}, size))
		if known {
			req.ContentLength = size
		}
		if resp, body := must.Do(t, http.DefaultClient, req); body != want || resp.StatusCode != 200 || resp.Header.Get("Via") != "2.0 remora" {
			t.Errorf("status %d, Via %q, %.100q, want %q", resp.StatusCode, resp.Header.Get("Via"), body, want)
		}
	}
	// Nobody reads the second response until the first has arrived.
	waiting, err := http.DefaultClient.Do(must.Request(t, http.MethodGet, url, nil))
	if err != nil {
		t.Fatal(err)
	}
	for _, resp := range []*http.Response{nil, waiting} {
		if resp == nil {
			if resp, err = http.DefaultClient.Do(must.Request(t, http.MethodGet, url, nil)); err != nil {
				t.Fatal(err)
			}
		}
		if n, err := io.Copy(io.Discard, resp.Body); n != size || err != nil {
			t.Errorf("%d bytes, %v", n, err)
		}
		_ = resp.Body.Close()
	}
	if most := p.Memory(t, "VmHWM"); most > 90<<20 { // with the race detector, and garbage
		t.Errorf("the sidecar used %d MiB", most>>20)
	}
}

// TestHTTP2TrailersBesideLength checks that trailers arrive behind a body with a Content-Length, which net/http
// sends with small gRPC responses: as a message, as a stream, and if the request is a stream, too.
func TestHTTP2TrailersBesideLength(t *testing.T) {
	var begun chan struct{} // the client has the head
	app := harness.StartHTTP2Endpoint(t, "127.0.0.1:0", func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 10)
		if r.URL.Path == "/long" {
			body = make([]byte, 100<<10)
		}
		w.Header().Set("Content-Type", r.Header.Get("Accept"))
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		w.Header().Set("Trailer", "Grpc-Status")
		_, _ = w.Write(body)
		if r.URL.Path != "/whole" {
			w.(http.Flusher).Flush()
			select {
			case <-begun:
			case <-r.Context().Done():
			}
		}
		w.Header().Set("Grpc-Status", "0")
	}, nil)
	addrs := harness.FreeAddrs(t, 2)
	harness.Start(t, fmt.Sprintf(`
limits: {message: 64KiB}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: grpc, connect_timeout: 15s, timeout: 2m}}`, addrs[1], app.Addr)).Ready()
	harness.Start(t, fmt.Sprintf(`
limits: {message: 64KiB}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{match: {host: direct.test}, service: direct}, {service: linked}]
services:
  direct: {discover: static, endpoints: [%q], protocol: grpc, connect_timeout: 15s, timeout: 2m}
  linked: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}`, addrs[0], app.Addr, addrs[1])).Ready()
	tr := harness.Transport(t, "2")
	for _, host := range []string{"direct.test", "linked.test"} {
		for _, c := range []struct{ path, media, body string }{
			{"/whole", "application/grpc", "request"},
			{"/", "application/grpc", "request"},
			{"/", "application/grpc", ""}, // which is open until the head of the response comes
			{"/long", "text/plain", "request"},
		} {
			begun = make(chan struct{})
			request, rest := io.Pipe()
			req := must.Request(t, http.MethodPost, "http://"+addrs[0]+c.path, request)
			if c.body != "" {
				req.Body = io.NopCloser(strings.NewReader(c.body))
			}
			req.Host = host
			req.Header.Set("Accept", c.media)
			req.Header.Set("Content-Type", c.media)
			req.Header.Set("Te", "trailers")
			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}
			close(begun)
			rest.Close()
			n, err := io.Copy(io.Discard, resp.Body)
			if status := resp.Trailer.Get("Grpc-Status"); status != "0" || err != nil {
				t.Errorf("%s%s of %s with body %q: %d bytes, %v, the trailer is %q", host, c.path, c.media, c.body, n, err, status)
			}
			resp.Body.Close()
		}
	}
}
