package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
)

// events is an application whose answer to /events is a stream that begins when
// start is closed, and ends when finish is; it answers all else at once.
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

// streaming is a provider whose application answers by a stream when it is told to,
// and a consumer in front of it.
func streaming(t *testing.T) (e *events, p, c *process, ingress, egress string) {
	t.Helper()
	e = &events{arrived: make(chan struct{}, 1), start: make(chan struct{}), finish: make(chan struct{})}
	srv := httptest.NewServer(e)
	t.Cleanup(srv.Close)
	p, ingress = provider(t, &app{addr: srv.Listener.Addr().String()})
	egress = freeAddrs(t, 1)[0]
	c = startRemora(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, ingress))
	c.ready()
	return e, p, c, ingress, egress
}

// asked sends a request for the stream, and returns when it is at the application.
func (e *events) asked(t *testing.T, egress string) (heads chan *http.Response) {
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
	receive(t, "the request to arrive", e.arrived)
	return heads
}

// answer has the application begin its answer, of which the first part is here then.
func (e *events) answer(t *testing.T, heads chan *http.Response) *http.Response {
	t.Helper()
	close(e.start)
	resp := receive(t, "the head of the answer", heads)
	t.Cleanup(func() { resp.Body.Close() })
	first := make([]byte, len("data: 0\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != 200 {
		t.Errorf("answered %d %s, %q, %v", resp.StatusCode, resp.Header.Get("x-remora-error"), first, err)
	}
	return resp
}

// end has the application end its answer.
func (e *events) end(t *testing.T, resp *http.Response) {
	t.Helper()
	close(e.finish)
	if rest, err := io.ReadAll(resp.Body); string(rest) != "data: 1\n\n" || err != nil {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
}

// TestDrainParked: what a provider has when it begins to drain may be answered by
// a stream; the other sidecar still can come for that, over a connection of its
// own.
func TestDrainParked(t *testing.T) {
	e, p, _, ingress, egress := streaming(t)
	heads := e.asked(t, egress)
	p.signal(syscall.SIGTERM)
	eventually(t, "a new request to be turned away", func() error {
		resp, err := http.Get("http://" + egress + "/")
		if err != nil {
			return err
		}
		resp.Body.Close()
		if code := resp.Header.Get("x-remora-error"); code != "upstream-connect" {
			return fmt.Errorf("answered %d %s", resp.StatusCode, code)
		}
		return nil
	})
	resp := e.answer(t, heads)
	refused(t, ingress) // the stream is long, and nothing is left to come for
	e.end(t, resp)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestHotRestartStreams: what was asked of the process before is answered by a stream
// although the other sidecar comes for it to the successor; and the consumer's own
// hot restart does not end the stream.
func TestHotRestartStreams(t *testing.T) {
	e, p, c, _, egress := streaming(t)
	heads := e.asked(t, egress)
	p.replace()
	resp := e.answer(t, heads)
	c.replace()
	e.end(t, resp)
	for _, old := range []*process{p, c} {
		if code := old.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}
