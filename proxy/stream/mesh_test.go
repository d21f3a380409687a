package stream

import (
	"encoding/binary"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol/link"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/downstream"
	"github.com/remora-proxy/remora/registry"
)

// socket is a loop.Socket on a TCP connection that no engine counts.
type socket struct{ *net.TCPConn }

func (s socket) NetConn() net.Conn { return s.TCPConn }
func (s socket) Secure() bool      { return false }
func (s socket) Reset()            { _, _ = s.SetLinger(0), s.Close() }

// front returns an address whose connections are given to take.
func (s *sidecar) front(take func(nc *net.TCPConn)) (addr string) {
	s.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			take(nc.(*net.TCPConn))
		}
	}()
	s.t.Cleanup(func() { ln.Close(); <-done })
	return ln.Addr().String()
}

// requestAddr returns an address whose connections begin with a request, which is given
// to Server.Request.
func (s *sidecar) requestAddr() string {
	return s.front(func(nc *net.TCPConn) {
		r := &downstream.StreamRequest{Opener: s.srv.worker(), Service: "app", Timeout: waitLimit}
		down := endOf(socket{nc})
		if f := (&incoming{&pair{srv: s.srv, down: down}, &downstream.StreamAccept{Opener: r.Opener}, r}).receive(); f != nil {
			if len(r.Rest) == 0 {
				nc.Close()
			}
			return
		}
		s.srv.Request(socket{nc}, r)
	})
}

// linkAddr returns an address whose connections begin with the preface of a stream, and
// are given to Server.Accept.
func (s *sidecar) linkAddr() string {
	magic := len(link.AppendStream(nil, &link.Stream{Kind: link.StreamOpaque})) - 6
	return s.front(func(nc *net.TCPConn) {
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
		s.srv.Accept(socket{nc}, &downstream.StreamAccept{Opener: s.srv.worker(), Service: "app", Timeout: waitLimit, Stream: st})
	})
}

// inFront returns a new sidecar whose endpoint is s.
func (s *sidecar) inFront() *sidecar {
	s.t.Helper()
	b := newSidecar(s.t, options{})
	b.update(registry.Endpoint{Addr: s.linkAddr(), Weight: 1, Protocol: config.ProtocolLink})
	return b
}

// withSidecars calls test with one sidecar in front of the application, and with two.
func withSidecars(t *testing.T, app string, test func(t *testing.T, first *sidecar)) {
	t.Run("one sidecar", func(t *testing.T) {
		s := newSidecar(t, options{more: "via: on"}, app)
		test(t, s)
		s.waitIdle()
		s.wantNoMemory()
	})
	t.Run("two sidecars", func(t *testing.T) {
		s := newSidecar(t, options{more: "via: on"}, app)
		b := s.inFront()
		test(t, b)
		for _, s := range []*sidecar{b, s} {
			s.waitIdle()
			s.wantNoMemory()
		}
	})
}

// wantNoMemory checks that no byte is counted.
func (s *sidecar) wantNoMemory() {
	s.t.Helper()
	if n := s.proc.Buffered(); n != 0 {
		s.t.Errorf("%d bytes still count", n)
	}
}

// TestOpaqueMesh: opaque bytes, half-close and resets pass through two sidecars.
func TestOpaqueMesh(t *testing.T) {
	a := newApp(t)
	withSidecars(t, a.addr, func(t *testing.T, s *sidecar) {
		client, server := s.pair(a)
		question := strings.Repeat("question", 1<<17)
		go func() {
			_, _ = io.WriteString(client, question)
			_ = client.CloseWrite()
		}()
		if got, err := io.ReadAll(server); string(got) != question || err != nil {
			t.Errorf("%d bytes, %v", len(got), err)
		}
		_, _ = io.WriteString(server, "server")
		server.Close()
		if got, err := io.ReadAll(client); string(got) != "server" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		client, server = s.pair(a)
		(&end{conn: server, tcp: server}).reset()
		wantReset(t, "the client", client)
	})
}
