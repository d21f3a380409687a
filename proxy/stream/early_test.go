package stream

import (
	"io"
	"net"
	"testing"
	"time"
	"weak"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// earlySize is the capacity of the buffer that holds a few early bytes.
const earlySize = 1 << 20

// TestEarlyBytesReleased: bytes that were read before the other end was connected count
// with the capacity of their buffer. The buffer is released once they were passed on,
// however long the stream lasts.
func TestEarlyBytesReleased(t *testing.T) {
	const put = "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 10\r\n\r\n"
	length := http1.Head{Framing: http1.FixedLength, Length: 10}
	for name, c := range map[string]struct {
		request  downstream.StreamRequest
		rest     bool // the early bytes are not decoded
		response string
	}{
		"tunnel":         {downstream.StreamRequest{Kind: stats.StreamConnect}, true, ""},
		"upgrade":        {downstream.StreamRequest{Kind: stats.StreamWebSocket, Head: []byte(ask), Protocols: []byte("websocket")}, true, upgraded},
		"start of body":  {downstream.StreamRequest{Kind: stats.StreamBody, Head: []byte(put)}, false, ""},
		"rest of a body": {downstream.StreamRequest{Kind: stats.StreamBody, Head: []byte(put)}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{}, a.addr)
			s.srv.window = time.Hour // the pace does not end the stream
			early := make(chan weak.Pointer[byte], 1)
			client := s.dialTo(acceptEach(s.t, func(nc *net.TCPConn) {
				r := c.request
				r.Opener, r.Service, r.Timeout, r.Minor = s.srv.worker(), "app", waitLimit, 1
				b := append(make([]byte, 0, earlySize), "early"...)
				early <- weak.Make(&b[0])
				if r.Body.Reset(&length, s.srv.limits()); r.Kind == stats.StreamBody {
					r.Buffer = bytebufferpool.Get()
				}
				if c.rest {
					r.Rest = b
				} else {
					r.Buffer = &bytebufferpool.ByteBuffer{B: b[:0]}
					_, _, _ = r.Body.Decode([]byte("early"), r.Buffer)
				}
				s.srv.Request(socket{nc}, &r)
			}))
			server := receive(t, a.conns, "the connection")
			if c.response != "" {
				readUntil(t, server, "\r\n\r\n")
				if n := s.proc.Held(); n < earlySize {
					t.Errorf("%d bytes count of %d", n, earlySize)
				}
				_, _ = io.WriteString(server, c.response)
			}
			readUntil(t, server, "early")
			s.counts.waitReleased(receive(t, early, "the bytes"))
			client.Close()
			server.Close()
			s.counts.waitIdle()
		})
	}
	t.Run("response", func(t *testing.T) {
		a := newApp(t)
		s := newSidecar(t, options{}, a.addr)
		s.srv.window = time.Hour
		src, server := s.entry.source(a, length, "")
		b := make([]byte, 0, earlySize)
		early := weak.Make(&b[:1][0])
		src.Buffer.B, b = b, nil
		_, _, _ = src.Body.Decode([]byte("early"), src.Buffer)
		sources := make(chan *race.StreamSource, 1)
		sources <- src
		src = nil
		client := s.dialTo(acceptEach(s.t, func(nc *net.TCPConn) {
			s.srv.Answer(socket{nc}, &downstream.StreamAnswer{Head: []byte("head|"), Source: <-sources})
		}))
		readUntil(t, client, "head|early")
		s.counts.waitReleased(early)
		client.Close()
		server.Close()
		s.counts.waitIdle()
	})
}

const upgraded = "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"

// TestEarlyBytesFail: an endpoint that takes none of the early bytes may still have sent something, which the client gets. Then the
// stream is aborted.
func TestEarlyBytesFail(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	client := s.dialTo(a.addr)
	down := receive(t, a.conns, "the connection of the client")
	up := s.dialTo(a.addr)
	server := receive(t, a.conns, "the connection of the endpoint")
	p := &pair{srv: s.srv, down: &end{conn: down, tcp: down}, up: &end{conn: unwritable{socket{up}}, tcp: up}}
	s.srv.flush = time.Hour
	moved := make(chan [2]int64, 1)
	go func() {
		in, out := (&relay{p: p}).run(newInput(s.proc, []byte("early")))
		moved <- [2]int64{in, out}
	}()
	_, _ = io.WriteString(server, "bye")
	_ = server.CloseWrite()
	wantRead(t, "the client", client, "bye")
	_ = client.CloseWrite()
	if n := receive(t, moved, "the end"); n != [2]int64{5, 3} || !p.isAborted() {
		t.Errorf("%d bytes have moved; aborted: %t", n, p.isAborted())
	}
	client.Close()
	server.Close()
}

// TestOneEarlyByte: a single byte that was read early is passed on, too.
func TestOneEarlyByte(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{}, a.addr)
	client := s.dialTo(s.entry.connectAddr("x"))
	server := receive(t, a.conns, "the connection")
	wantRead(t, "the server", server, "x")
	client.Close()
	server.Close()
	s.counts.waitIdle()
}
