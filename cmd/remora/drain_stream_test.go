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

// TestDrainParked: what a provider has when it begins to drain may be answered by
// a stream; the other sidecar still can come for that, over a connection of its
// own.
func TestDrainParked(t *testing.T) {
	e := &events{arrived: make(chan struct{}, 1), start: make(chan struct{}), finish: make(chan struct{})}
	srv := httptest.NewServer(e)
	defer srv.Close()
	p, ingress := provider(t, &app{addr: srv.Listener.Addr().String()})
	egress := freeAddrs(t, 1)[0]
	c := startRemora(t, fmt.Sprintf(`
loops: 1
listeners: [{name: egress, address: %q, protocol: http, service: compute}]
services: {compute: {discover: static, endpoints: [%q], protocol: link, connect_timeout: 15s, timeout: 2m}}`, egress, ingress))
	c.ready()
	heads := make(chan *http.Response, 1)
	go func() {
		resp, err := http.Get("http://" + egress + "/events")
		if err != nil {
			t.Error(err)
			resp = &http.Response{Body: http.NoBody}
		}
		heads <- resp
	}()
	receive(t, "the request to arrive", e.arrived)
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
	close(e.start)
	resp := receive(t, "the head of the answer", heads)
	defer resp.Body.Close()
	first := make([]byte, len("data: 0\n\n"))
	if _, err := io.ReadFull(resp.Body, first); err != nil || resp.StatusCode != 200 {
		t.Errorf("answered %d %s, %q, %v", resp.StatusCode, resp.Header.Get("x-remora-error"), first, err)
	}
	refused(t, ingress) // the stream is long, and nothing is left to come for
	close(e.finish)
	if rest, err := io.ReadAll(resp.Body); string(rest) != "data: 1\n\n" || err != nil {
		t.Errorf("the stream ended with %q, %v", rest, err)
	}
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
