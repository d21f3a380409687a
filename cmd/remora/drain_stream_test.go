package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
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
	receive(t, "the request to arrive", e.arrived)
	return heads
}

// begin lets the application begin the stream, and reads its first event.
func (e *events) begin(t *testing.T, heads chan *http.Response) *http.Response {
	t.Helper()
	close(e.start)
	resp := receive(t, "the head of the response", heads)
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
	p.signal(syscall.SIGTERM)
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
	refused(t, ingress) // the stream goes on, and no response is parked
	e.end(t, resp)
	if code := p.exitCode(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestHotRestartStreams: a request that was sent to the predecessor may get a stream as
// its response, although the other sidecar fetches it from the successor. A hot restart
// of the consumer does not end the stream either.
func TestHotRestartStreams(t *testing.T) {
	e, p, c, _, egress := streaming(t)
	heads := e.request(t, egress)
	p.replace()
	resp := e.begin(t, heads)
	c.replace()
	e.end(t, resp)
	for _, old := range []*process{p, c} {
		if code := old.exitCode(); code != 0 {
			t.Errorf("exit code %d", code)
		}
	}
}

// TestParkedAtPredecessor: a successor fetches the response of an unknown token from its
// predecessor, until that has ended.
func TestParkedAtPredecessor(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	path := filepath.Join(socketDir(t), "remora.sock")
	listener, err := handover.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ingress, parking := localListener(t), localListener(t)
	go func() {
		for {
			nc, err := parking.Accept()
			if err != nil {
				return
			}
			_, _ = io.ReadFull(nc, make([]byte, len(link.Token{})))
			_, _ = io.WriteString(nc, "parked")
			nc.Close()
		}
	}()
	address := ingress.Addr().String()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http}}`, address, newApp(t).addr), nil)
	if err != nil {
		t.Fatal(err)
	}
	predecessor := make(chan *handover.Conn, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		offer := handover.Offer{Sockets: []string{address}, Parked: parking.Addr().String()}
		err = errors.Join(
			conn.Offer(offer, map[string]syscall.Conn{address: ingress.(syscall.Conn)}), conn.Hear(handover.Ready),
			conn.Say(handover.Released), conn.Hear(handover.Serving))
		if err != nil {
			t.Error(err)
		}
		ingress.Close()
		predecessor <- conn
	}()
	s, err := start(t.Context(), cfg, environmentKind(t), path, slog.New(slog.DiscardHandler), new(slog.LevelVar))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	conn := receive(t, "the successor to serve", predecessor)
	fetched := func() string {
		t.Helper()
		nc, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(patience))
		_, _ = nc.Write(link.AppendStream(nil, &link.Stream{Kind: link.StreamAnswer, TimeLeft: patience, Token: link.Token{7}}))
		got, err := io.ReadAll(nc)
		if err != nil {
			t.Error(err)
		}
		return string(got)
	}
	if got := fetched(); got != "parked" {
		t.Errorf("fetched %q", got)
	}
	conn.Close()
	eventually.Nil(t, "the predecessor to be forgotten", func() error {
		if got := fetched(); got != string(rune(link.DeadlinePassed)) {
			return fmt.Errorf("fetched %q", got)
		}
		return nil
	})
}

// socketDir returns a directory whose name is short enough for a socket in it.
func socketDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "remora-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func localListener(t *testing.T) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}
