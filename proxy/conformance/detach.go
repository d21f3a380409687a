package conformance

import (
	"errors"
	"io"

	"github.com/remora-proxy/remora/proxy/loop"
)

// detachHandsOver detaches while input arrives. The bytes of OnData and then of the Socket
// are those that the peer has sent, and both directions end separately. A driver without
// sockets refuses, and nothing has changed.
func detachHandsOver(s *suite) {
	sent, response := pattern(1, 4<<20), pattern(2, 1<<20)
	rest := make(chan []byte, 1)
	server := s.probe("server")
	detached := false
	server.onData = func([]byte) {
		if detached || len(server.got) < 100<<10 {
			return
		}
		detached = true
		sock, err := server.conn.Detach()
		if err != nil {
			if !errors.Is(err, errors.ErrUnsupported) {
				s.t.Errorf("Detach: %v", err)
			}
			rest = nil
			return
		}
		server.ended = true
		if server.closed {
			s.t.Error("OnClose came within Detach")
		}
		server.conn.Write([]byte("from a connection that has left"))
		server.conn.Close()
		go func() { rest <- serve(sock, response) }()
	}
	p := s.peer(server)
	p.Read()
	p.Send(sent)
	s.Wait("the connection to be detached", func() bool { return detached })
	if rest == nil {
		s.Wait("the rest of the input", func() bool { return len(server.got) == len(sent) })
		s.same("the server", server.got, sent)
		s.do(func(loop.Loop) { server.conn.Write(response); server.drain() })
		s.waitGot(p, response, io.EOF)
		return
	}
	s.Wait("OnClose of the connection that left", server.isClosed)
	p.CloseWrite()
	s.waitGot(p, response, io.EOF)
	s.same("the server", append(server.got, <-rest...), sent)
}

// serve reads sock to its end and then responds: a half-close leaves the other direction
// open.
func serve(sock loop.Socket, response []byte) (rest []byte) {
	defer sock.Close()
	rest, err := io.ReadAll(sock)
	if err != nil {
		return nil
	}
	if _, err := sock.Write(response); err != nil {
		return nil
	}
	if err := sock.CloseWrite(); err != nil {
		return nil
	}
	return rest
}

// detachRefused: with buffered output Detach refuses, and the connection works on.
func detachRefused(s *suite) {
	const size = 16 << 20 // more than kernels buffer
	server := s.probe("server")
	p := s.peer(server)
	s.do(func(loop.Loop) {
		server.conn.Write(pattern(3, size))
		if server.conn.Buffered() == 0 {
			s.t.Error("nothing is buffered: the case shows nothing")
		}
		_, err := server.conn.Detach()
		if !errors.Is(err, loop.ErrDetachBuffered) && !errors.Is(err, errors.ErrUnsupported) {
			s.t.Errorf("Detach with output buffered: %v", err)
		}
		server.drain()
	})
	p.Read()
	s.waitGot(p, pattern(3, size), io.EOF)
	s.Wait("the end", server.isClosed)
}

// detachAfterEnd: a closed connection can't be detached.
func detachAfterEnd(s *suite) {
	for name, end := range map[string]func(p *probe){"closed": (*probe).close, "drained": (*probe).drain} {
		server := s.probe(name)
		s.peer(server)
		s.do(func(loop.Loop) {
			end(server)
			if _, err := server.conn.Detach(); !errors.Is(err, loop.ErrDetachClosed) {
				s.t.Errorf("Detach of a connection that is %s: %v", name, err)
			}
		})
		s.Wait("the end", server.isClosed)
	}
}
