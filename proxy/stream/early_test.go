package stream

import (
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"weak"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// room is how much memory a few early bytes come with.
const room = 1 << 20

// TestEarlyBytesAreGivenUp: what came before the other end was there counts with the
// memory that it is in, and is given up when it was passed on, however long the stream
// lasts.
func TestEarlyBytesAreGivenUp(t *testing.T) {
	const put = "PUT / HTTP/1.1\r\nHost: app\r\nContent-Length: 10\r\n\r\n"
	length := http1.Head{Framing: http1.FixedLength, Length: 10}
	for name, c := range map[string]struct {
		request downstream.StreamRequest
		rest    bool // the bytes are raw
		answer  string
	}{
		"tunnel":         {downstream.StreamRequest{Kind: stats.StreamConnect}, true, ""},
		"upgrade":        {downstream.StreamRequest{Kind: stats.StreamWebSocket, Head: []byte(ask)}, true, upgraded},
		"start of body":  {downstream.StreamRequest{Kind: stats.StreamBody, Head: []byte(put)}, false, ""},
		"rest of a body": {downstream.StreamRequest{Kind: stats.StreamBody, Head: []byte(put)}, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			a := newApp(t)
			s := newSidecar(t, options{}, a.addr)
			early := make(chan weak.Pointer[byte], 1)
			client := s.dialTo(s.front(func(nc *net.TCPConn) {
				r := c.request
				r.Leaser, r.Service, r.Timeout, r.Minor = s.srv.worker(), "app", patience, 1
				b := append(make([]byte, 0, room), "early"...)
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
			if c.answer != "" {
				readUntil(t, server, "\r\n\r\n")
				if n := s.proc.Held(); n < room {
					t.Errorf("%d bytes count of %d", n, room)
				}
				_, _ = io.WriteString(server, c.answer)
			}
			readUntil(t, server, "early")
			s.givenUp(receive(t, early, "the bytes"))
			client.Close()
			server.Close()
			s.idle()
		})
	}
	t.Run("answer", func(t *testing.T) {
		a := newApp(t)
		s := newSidecar(t, options{}, a.addr)
		src, server := s.source(a, length, "")
		b := make([]byte, 0, room)
		early := weak.Make(&b[:1][0])
		src.Buffer.B, b = b, nil
		_, _, _ = src.Body.Decode([]byte("early"), src.Buffer)
		sources := make(chan *exchange.StreamSource, 1)
		sources <- src
		src = nil
		client := s.dialTo(s.front(func(nc *net.TCPConn) {
			s.srv.Answer(socket{nc}, &downstream.StreamAnswer{Head: []byte("head|"), Source: <-sources})
		}))
		readUntil(t, client, "head|early")
		s.givenUp(early)
		client.Close()
		server.Close()
		s.idle()
	})
}

const upgraded = "HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"

// givenUp waits until early is free, and no more counted.
func (s *sidecar) givenUp(early weak.Pointer[byte]) {
	s.t.Helper()
	s.eventually("early bytes to be given up", func() error {
		runtime.GC()
		if early.Value() != nil {
			return errors.New("they are kept")
		}
		if n := s.proc.Held(); n >= room {
			return errors.New("they count")
		}
		return nil
	})
}
