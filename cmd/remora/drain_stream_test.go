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
	eventually.Nil(t, "a new request to be turned away", func() error {
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

// TestParkedBefore: a token that a successor does not know leads to the process before,
// until that has ended.
func TestParkedBefore(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	path := filepath.Join(socketDir(t), "door")
	door, err := handover.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
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
	before := make(chan *handover.Conn, 1)
	go func() {
		conn, err := door.Accept()
		if err != nil {
			return
		}
		offer := handover.Offer{Sockets: []string{address}, Parked: parking.Addr().String()}
		err = errors.Join(
			conn.Offer(offer, map[string]net.Listener{address: ingress}), conn.Hear(handover.Ready),
			conn.Say(handover.Released), conn.Hear(handover.Serving))
		if err != nil {
			t.Error(err)
		}
		ingress.Close()
		before <- conn
	}()
	s, err := start(t.Context(), cfg, path, slog.New(slog.DiscardHandler), new(slog.LevelVar))
	if err != nil {
		t.Fatal(err)
	}
	defer s.stop()
	conn := receive(t, "the successor to serve", before)
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
	eventually.Nil(t, "the process before to be forgotten", func() error {
		if got := fetched(); got != string(rune(link.DeadlinePassed)) {
			return fmt.Errorf("fetched %q", got)
		}
		return nil
	})
}

// socketDir is a directory with a name short enough for a socket in it.
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
