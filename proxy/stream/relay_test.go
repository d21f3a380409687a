package stream

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
	"weak"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// TestBeginsLikeHTTP: the first bytes of a relayed stream are read until it is known whether they may be of HTTP. What ends
// before is not.
func TestBeginsLikeHTTP(t *testing.T) {
	s := newSidecar(t, options{})
	a := newApp(t)
	for _, c := range []struct {
		rest, says string
		ends, want bool
	}{
		{rest: "GET / HTTP/1.1\r\n", want: true}, {rest: "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", want: true}, {rest: "\x16\x03\x01"},
		{says: "GET / HTTP/1.1\r\n", want: true}, {rest: "G", says: "ET / HTTP/1.1\r\n", want: true}, {rest: "G", says: "\x00"},
		{ends: true}, {rest: "GE", ends: true}, {says: "GET /", ends: true},
	} {
		client := s.dialTo(a.addr)
		server := receive(t, a.conns, "the connection")
		_, _ = io.WriteString(client, c.says)
		if c.ends {
			_ = client.CloseWrite()
		}
		in := newInput(s.proc, []byte(c.rest))
		if got := (&relay{p: &pair{srv: s.srv, down: &end{conn: server, tcp: server}}}).beginsLikeHTTP(in); got != c.want {
			t.Errorf("%+v: like HTTP %t", c, got)
		}
		in.free()
		client.Close()
		server.Close()
	}
}

// TestReplayedHeadCounts: the head of a request counts as long as another endpoint may get it.
func TestReplayedHeadCounts(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	s.srv.window = time.Hour // the pace does not end the stream
	const size = 1 << 20
	text := "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 10\r\nX: " + strings.Repeat("x", size) + "\r\n\r\n"
	sent := make(chan weak.Pointer[byte], 1)
	client := s.dialTo(acceptEach(s.t, func(nc *net.TCPConn) {
		head := []byte(text)
		sent <- weak.Make(&head[0])
		r := downstream.StreamRequest{
			Kind: stats.StreamBody, Head: head, Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Minor: 1, Buffer: bytebufferpool.Get(),
		}
		r.Body.Reset(&http1.Head{Framing: http1.FixedLength, Length: 10}, s.srv.limits())
		s.srv.Request(socket{nc}, &r)
	}))
	server := receive(t, a.conns, "the connection")
	if got := must.Read(t, server, len(text)); string(got) != text {
		t.Error("the application got another head")
	}
	if n := s.proc.Held(); n < size {
		t.Errorf("%d bytes count of a head of %d", n, size)
	}
	_, _ = io.WriteString(server, "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n")
	s.counts.waitReleased(receive(t, sent, "the head"))
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// TestChunksOfEarlyBytes: a body that is passed on in chunks has none of more than a piece, however much was read at once.
func TestChunksOfEarlyBytes(t *testing.T) {
	const size = 3*pieceSize + 17
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.dialTo(acceptEach(s.t, func(nc *net.TCPConn) {
		r := downstream.StreamRequest{
			Kind: stats.StreamBody, Head: []byte("PUT / HTTP/1.1\r\nHost: app\r\nTransfer-Encoding: chunked\r\n\r\n"), Opener: s.srv.worker(),
			Service: "app", Timeout: waitLimit, Minor: 1, Buffer: &bytebufferpool.ByteBuffer{}, Chunks: true,
		}
		r.Body.Reset(&http1.Head{Framing: http1.Chunked}, s.srv.limits())
		if _, _, err := r.Body.Decode(http1.AppendChunk(nil, bytes.Repeat([]byte("x"), size)), r.Buffer); err != nil {
			t.Error(err)
		}
		s.srv.Request(socket{nc}, &r)
	}))
	server := receive(t, a.conns, "the connection")
	readUntil(t, server, "\r\n\r\n")
	for left := size; left > 0; left -= pieceSize {
		wantRead(t, "the server", server, string(http1.AppendChunk(nil, bytes.Repeat([]byte("x"), min(left, pieceSize)))))
	}
	client.Close()
	server.Close()
	s.counts.waitIdle()
}

// logged returns a Server with the options of s, which logs to the text.
func (s *sidecar) logged() (*Server, *syncbuffer.Buffer) {
	log, o := new(syncbuffer.Buffer), s.srv.opt
	o.Logger = slog.New(slog.NewTextHandler(log, nil))
	srv := New(o)
	s.t.Cleanup(func() {
		if err := srv.Close(s.t.Context()); err != nil && s.t.Context().Err() == nil {
			s.t.Error(err)
		}
	})
	return srv, log
}

// failingListener is a listener some of whose accepts fail.
type failingListener struct {
	*net.TCPListener
	mu   sync.Mutex
	left int // how many fail next
}

func (l *failingListener) fail(n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.left = n
}

func (l *failingListener) Accept() (net.Conn, error) {
	nc, err := l.TCPListener.Accept()
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.left > 0 {
		l.left--
		nc.Close()
		return nil, errors.New("no descriptor")
	}
	return nc, nil
}

// newFailingListener returns a listener on loopback.
func newFailingListener(t *testing.T) *failingListener {
	t.Helper()
	return &failingListener{TCPListener: must.Listen(t).(*net.TCPListener)}
}

// TestAcceptFailures: a listener outlasts accepts that fail. The first of a row is logged.
func TestAcceptFailures(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	srv, log := s.logged()
	ln := newFailingListener(t)
	if _, err := srv.Serve(ln, &s.proc.Config().Listeners[0]); err != nil {
		t.Fatal(err)
	}
	for row := 1; row <= 2; row++ {
		ln.fail(3)
		for range 3 {
			failed := s.dialTo(ln.Addr().String())
			_, _ = io.Copy(io.Discard, failed)
		}
		client := s.dialTo(ln.Addr().String())
		server := receive(t, a.conns, "the connection")
		client.Close()
		server.Close()
		if n := strings.Count(log.String(), "accept failed"); n != row {
			t.Errorf("after %d rows of failures %d are logged", row, n)
		}
	}
}

// TestFetchesOutlastFailures: responses can be fetched after an accept that has failed.
func TestFetchesOutlastFailures(t *testing.T) {
	s := newSidecar(t, options{})
	ln := newFailingListener(t)
	ln.fail(1)
	s.srv.parking.mu.Lock()
	s.srv.parking.fetches = ln
	s.srv.all.Go(s.srv.parking.acceptFetches)
	s.srv.parking.mu.Unlock()
	_, _ = io.Copy(io.Discard, s.dialTo(ln.Addr().String()))
	wantUnknownTokenRefused(t, ln.Addr().String())
}

// TestHalfClosedAtTheEnd: a client whose output has ended keeps nothing waiting once the response is passed on.
func TestHalfClosedAtTheEnd(t *testing.T) {
	s := newSidecar(t, options{})
	a := newApp(t)
	client := s.dialTo(a.addr)
	server := receive(t, a.conns, "the connection")
	_ = client.CloseWrite()
	p := &pair{srv: s.srv, down: &end{conn: server, tcp: server}, halfClose: time.Hour}
	p.enter(finishing)
	returned := make(chan struct{})
	go func() { defer close(returned); p.outlastInput() }()
	receive(t, returned, "the wait for the client to end")
	client.Close()
	server.Close()
}

// TestDownEndpointLog: the log says how many streams were cut, if any was.
func TestDownEndpointLog(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	srv, log := s.logged()
	srv.SetDown("app", []string{a.addr})
	srv.SetDown("app", nil)
	if n := strings.Count(log.String(), "streams cut"); n != 0 {
		t.Errorf("%d lines without a stream", n)
	}
	client := s.dialTo(acceptEach(t, func(nc *net.TCPConn) {
		srv.Accept(socket{nc}, &downstream.StreamAccept{Opener: srv.worker(), Service: "app", Timeout: waitLimit, Stream: link.Stream{Kind: link.StreamOpaque}})
	}))
	wantRead(t, "the client", client, string([]byte{link.StreamTaken}))
	server := receive(t, a.conns, "the connection")
	srv.SetDown("app", []string{a.addr})
	wantReset(t, "the client", client)
	if n := strings.Count(log.String(), "streams=1"); n != 1 {
		t.Errorf("%d lines of a stream", n)
	}
	server.Close()
}
