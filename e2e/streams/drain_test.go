package streams

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
)

// events is an application whose response to /events is a stream. The stream begins when
// start is closed, and ends when finish is closed. Other responses come at once.
type events struct {
	arrived, start, finish chan struct{}
}

func (e *events) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/events" {
		return
	}
	e.arrived <- struct{}{}
	for i, c := range []chan struct{}{e.start, e.finish} {
		select {
		case <-c:
		case <-r.Context().Done():
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %d\n\n", i)
		_ = http.NewResponseController(w).Flush()
	}
}

// streaming starts a provider with such an application, and a consumer in front of it.
func streaming(t *testing.T) (e *events, p, c *harness.Process, ingress, egress string) {
	t.Helper()
	e = &events{arrived: make(chan struct{}, 1), start: make(chan struct{}), finish: make(chan struct{})}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	p, ingress = harness.Provider(t, &harness.App{Addr: srv.Listener.Addr().String()})
	egress = harness.FreeAddrs(t, 1)[0]
	c = harness.Start(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, ingress))
	c.Ready()
	return e, p, c, ingress, egress
}

// request sends a request for the stream, and returns when it is at the application.
func (e *events) request(t *testing.T, egress string) (heads chan *http.Response) {
	t.Helper()
	heads = make(chan *http.Response, 1)
	go func() {
		resp, err := http.Get("http://" + egress + "/events")
		if err != nil {
			t.Error(err)
			resp = &http.Response{Body: http.NoBody}
		}
		heads <- resp
	}()
	harness.Receive(t, "the request to arrive", e.arrived)
	return heads
}

// begin lets the application begin the stream, and reads its first event.
func (e *events) begin(t *testing.T, heads chan *http.Response) *http.Response {
	t.Helper()
	close(e.start)
	resp := harness.Receive(t, "the head of the response", heads)
	t.Cleanup(func() { resp.Body.Close() })
	first := make([]byte, len("data: 0\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != 200 {
		t.Errorf("response %d %s, %q, %v", resp.StatusCode, resp.Header.Get("x-remora-error"), first, err)
	}
	return resp
}

// end lets the application end the stream, and reads the rest.
func (e *events) end(t *testing.T, resp *http.Response) {
	t.Helper()
	close(e.finish)
	if rest, err := io.ReadAll(resp.Body); string(rest) != "data: 1\n\n" || err != nil {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
}

// TestDrainParked: a request in flight at the start of a drain may get a stream as its
// response. The other sidecar can still fetch it, over a new connection.
func TestDrainParked(t *testing.T) {
	e, p, _, ingress, egress := streaming(t)
	heads := e.request(t, egress)
	p.Signal(syscall.SIGTERM)
	eventually.Nil(t, "a new request to be refused", func() error {
		resp, err := http.Get("http://" + egress + "/")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if code := resp.Header.Get("x-remora-error"); code != "upstream-connect" {
			return fmt.Errorf("response %d %s", resp.StatusCode, code)
		}
		return nil
	})
	resp := e.begin(t, heads)
	harness.Refused(t, ingress) // the stream goes on, and no response is parked
	e.end(t, resp)
	p.Ends()
}

// TestHotRestartStreams: a request that was sent to the predecessor may get a stream as
// its response, although the other sidecar fetches it from the successor. A hot restart
// of the consumer does not end the stream either.
func TestHotRestartStreams(t *testing.T) {
	e, p, c, _, egress := streaming(t)
	heads := e.request(t, egress)
	p.Replace()
	resp := e.begin(t, heads)
	c.Replace()
	e.end(t, resp)
	for _, old := range []*harness.Process{p, c} {
		old.Ends()
	}
}
