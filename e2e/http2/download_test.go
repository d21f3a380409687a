package http2

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// TestHTTP2LateReader: a client may have many responses before it reads them. The one of Go then sends two
// WINDOW_UPDATE for each 4 KiB that it reads, while it gets nothing.
func TestHTTP2LateReader(t *testing.T) {
	const length, count = 3 << 20, 16
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = w.Write(make([]byte, length))
	}))
	t.Cleanup(app.Close)
	p, clients := startHTTP2(t, app.Listener.Addr().String())
	client := clients["plain"]
	get := func() io.Reader {
		resp, err := client.Get(client.base)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		return resp.Body
	}
	var bodies []io.Reader
	for range count {
		bodies = append(bodies, get())
	}
	eventually.True(t, "the sidecar to have sent all", func() bool {
		l := p.Level()
		return l.Pending == 0 && l.Buffered < length/2
	})
	for i, body := range bodies {
		n, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{body}, make([]byte, 4<<10))
		if n != length || err != nil {
			t.Fatalf("response %d: %d bytes of %d, %v", i, n, length, err)
		}
	}
	get() // comes behind all WINDOW_UPDATE
	if n := p.Metric(`remora_http2_errors_total{reason="h2_flood_others"}`); n != 0 {
		t.Error("its connection was closed for a flood")
	}
}

// TestHTTP2Download: a client that opens its windows in small steps may read fast. The one of Go
// sends two WINDOW_UPDATE for each read.
func TestHTTP2Download(t *testing.T) {
	const length = 256 << 20
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.CopyN(w, harness.Zeros{}, length)
	}))
	defer app.Close()
	addr := harness.FreeAddrs(t, 1)[0]
	harness.Start(t, fmt.Sprintf(`
listeners: [{name: in, address: %q, protocol: http, service: out}]
services: {out: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}`, addr, app.Listener.Addr())).Ready()
	tr := harness.Transport(t, "2")
	resp, err := (&http.Client{Transport: tr}).Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if n, err := io.Copy(io.Discard, struct{ io.Reader }{resp.Body}); n != length || err != nil || resp.ProtoMajor != 2 {
		t.Errorf("%d bytes of %d over %s, %v", n, length, resp.Proto, err)
	}
}
