package stream

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/valyala/bytebufferpool"

	"github.com/remora-proxy/remora/protocol/http1"
	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// entry gives connections to a Server, in the place of the sessions on the loops.
type entry struct {
	t    *testing.T
	srv  *Server
	loop loop.Loop // of pipes
}

// socket is a loop.Socket on a TCP connection that no engine counts.
type socket struct{ *net.TCPConn }

func (s socket) NetConn() net.Conn { return s.TCPConn }
func (s socket) Secure() bool      { return false }
func (s socket) Reset()            { _, _ = s.SetLinger(0), s.Close() }

// requestAddr returns an address whose connections begin with a request, which is given
// to Server.Request.
func (e *entry) requestAddr() string {
	return acceptEach(e.t, func(nc *net.TCPConn) {
		r := &downstream.StreamRequest{Opener: e.srv.worker(), Service: "app", Timeout: waitLimit}
		down := endOf(socket{nc})
		if f := (&incoming{&pair{srv: e.srv, down: down}, &downstream.StreamAccept{Opener: r.Opener}, r}).receive(); f != nil {
			if len(r.Rest) == 0 {
				nc.Close()
			}
			return
		}
		e.srv.Request(socket{nc}, r)
	})
}

// linkAddr returns an address whose connections begin with the preface of a stream, and
// are given to Server.Accept.
func (e *entry) linkAddr() string {
	magic := len(link.AppendStream(nil, &link.Stream{Kind: link.StreamOpaque})) - 6
	return acceptEach(e.t, func(nc *net.TCPConn) {
		head := make([]byte, magic+4)
		if _, err := io.ReadFull(nc, head); err != nil {
			nc.Close()
			return
		}
		rest := make([]byte, head[len(head)-1])
		_, _ = io.ReadFull(nc, rest)
		left, n := binary.Uvarint(rest[1:])
		st := link.Stream{Kind: link.StreamKind(rest[0]), TimeLeft: time.Duration(left) * time.Microsecond}
		copy(st.Token[:], rest[1+n:])
		e.srv.Accept(socket{nc}, &downstream.StreamAccept{Opener: e.srv.worker(), Service: "app", Timeout: waitLimit, Stream: st})
	})
}

// connectAddr returns an address whose connections are CONNECT requests, with rest read
// already.
func (e *entry) connectAddr(rest string) string {
	return acceptEach(e.t, func(nc *net.TCPConn) {
		e.srv.Request(socket{nc}, &downstream.StreamRequest{
			Kind: stats.StreamConnect, Opener: e.srv.worker(), Service: "app", Timeout: waitLimit, Minor: 1, Rest: []byte(rest),
		})
	})
}

// source returns a response of the application, and the application's connection. early
// is the part of the body that was read already.
func (e *entry) source(a *app, h http1.Head, early string) (src *race.StreamSource, server *net.TCPConn) {
	e.t.Helper()
	p := &pair{srv: e.srv, opener: e.srv.worker()}
	tun := e.srv.newTunnel(p, "app", waitLimit)
	st, _, fail := tun.connector.connect(&tun.query)
	if fail != nil {
		e.t.Fatal(fail)
	}
	st.Connected(200)
	server = receive(e.t, a.conns, "the connection")
	src = &race.StreamSource{Socket: p.up.conn.(loop.Socket), Stream: st, Buffer: bytebufferpool.Get()}
	src.Body.Reset(&h, e.srv.limits())
	if _, _, err := src.Body.Decode([]byte(early), src.Buffer); err != nil {
		e.t.Fatal(err)
	}
	return src, server
}
