package conformance

import (
	"errors"
	"io"
	"syscall"

	"github.com/remora-proxy/remora/proxy/loop"
)

func openDataClose(s *suite) {
	client, server := s.probe("client"), s.probe("server").echo()
	client.onOpen = func() { client.conn.Write([]byte("hello")) }
	client.onData = func([]byte) {
		if len(client.got) == 5 {
			client.close()
		}
	}
	s.pair(client, server)
	s.Wait("both to be closed", func() bool { return client.closed && server.closed })
	s.settle()
	s.do(func(loop.Loop) {
		s.same("client", client.got, []byte("hello"))
		if client.err != nil {
			s.t.Errorf("OnClose(%v) at the end that closed, want nil", client.err)
		}
		if server.err != io.EOF {
			s.t.Errorf("OnClose(%v) at the other end, want io.EOF", server.err)
		}
	})
}

func writeInOpen(s *suite) {
	client, server := s.probe("client"), s.probe("server")
	client.onOpen = func() { client.conn.Write([]byte("from the client")) }
	server.onOpen = func() { server.conn.Write([]byte("from the server")) }
	s.pair(client, server)
	s.Wait("both to be read", func() bool { return len(client.got) >= 15 && len(server.got) >= 15 })
	s.do(func(loop.Loop) {
		s.same("client", client.got, []byte("from the server"))
		s.same("server", server.got, []byte("from the client"))
	})
}

// writesInOrder mixes small writes, which wait behind a large one, with others
// from later callbacks.
func writesInOrder(s *suite) {
	client, server := s.probe("client"), s.probe("server")
	s.pair(client, server)
	want := pattern(1, 6<<20)
	rest := want
	write := func(n int) {
		client.conn.Write(rest[:n])
		rest = rest[n:]
	}
	s.do(func(l loop.Loop) {
		for n := range 100 {
			write(n + 1)
		}
		write(4 << 20)
		for range 100 {
			write(1)
		}
		l.After(0, s.timer(func() { write(1 << 20) }))
		l.After(soon, s.timer(func() { write(len(rest)) }))
	})
	s.Wait("all to arrive", func() bool { return len(server.got) >= len(want) })
	s.do(func(loop.Loop) { s.same("server", server.got, want) })
}

// writeTakesCopy overwrites what was written as soon as Write has returned.
func writeTakesCopy(s *suite) {
	server := s.probe("server")
	p := s.peer(server)
	const size = 16 << 20 // more than kernels buffer
	s.do(func(loop.Loop) {
		b := pattern(2, size)
		server.conn.Write(b)
		clear(b)
		server.drain()
	})
	p.Read()
	s.waitGot(p, pattern(2, size), io.EOF)
}

// roomy is a probe with memory for its input.
type roomy struct {
	*probe
	room func() []byte
}

func (r roomy) Room() []byte { return r.room() }

// readToRoom: what is read to the memory of the receiver is where the receiver has said, and does not pass its end.
func readToRoom(s *suite) {
	const size = 1 << 20
	client, server := s.probe("client"), s.probe("server")
	client.onOpen = func() { client.conn.Write(pattern(3, size)) }
	memory := make([]byte, size)
	var room []byte
	server.onData = func(b []byte) {
		if len(room) > 0 && &b[0] == &room[0] && len(b) > len(room) {
			s.t.Errorf("%d bytes were read to room for %d", len(b), len(room))
		}
		room = nil
	}
	r := roomy{server, func() []byte {
		at := len(server.got)
		room = memory[at:min(at+at%1000, size)]
		return room
	}}
	s.dial(s.Listen(func() loop.Receiver { return r }), client)
	s.Wait("all to arrive", func() bool { return len(server.got) >= size })
	s.do(func(loop.Loop) { s.same("server", server.got, pattern(3, size)) })
}

// writeParts sends more than kernels buffer, in parts of all sizes, the last of which are small. It overwrites them as soon as
// WriteParts has returned.
func writeParts(s *suite) {
	server := s.probe("server")
	p := s.peer(server)
	const size, last = 16 << 20, 100
	s.do(func(loop.Loop) {
		b := pattern(2, size)
		rest, n := b[:size-last], 1
		for len(rest) > 0 {
			parts := [][]byte{nil}
			for range 40 {
				n = min(n*5%200_003, len(rest))
				parts = append(parts, rest[:n], nil)
				rest = rest[n:]
			}
			server.conn.WriteParts(parts)
		}
		server.conn.WriteParts(nil)
		server.conn.WriteParts([][]byte{b[size-last : size-1], b[size-1:]})
		clear(b)
		server.drain()
	})
	p.Read()
	s.waitGot(p, pattern(2, size), io.EOF)
}

func writeEmpty(s *suite) {
	client, server := s.probe("client"), s.probe("server")
	s.pair(client, server)
	s.do(func(loop.Loop) {
		client.conn.Write(nil)
		client.conn.Write([]byte{})
		client.conn.Write([]byte("x"))
		client.conn.Write(nil)
	})
	s.Wait("one byte", func() bool { return len(server.got) > 0 })
	s.settle()
	s.do(func(loop.Loop) { s.same("server", server.got, []byte("x")) })
}

func echoBig(s *suite) {
	const size = 10 << 20
	client, server := s.probe("client"), s.probe("server").echo()
	client.onOpen = func() { client.conn.Write(pattern(3, size)) }
	s.pair(client, server)
	s.Wait("10 MiB to come back", func() bool { return len(client.got) >= size })
	s.do(func(loop.Loop) {
		s.same("server", server.got, pattern(3, size))
		s.same("client", client.got, pattern(3, size))
		if n := client.conn.Buffered() + server.conn.Buffered(); n != 0 {
			s.t.Errorf("%d bytes buffered after all were read", n)
		}
	})
}

func buffered(s *suite) {
	server := s.probe("server")
	p := s.peer(server)
	const size = 16 << 20
	s.do(func(loop.Loop) {
		if n := server.conn.Buffered(); n != 0 {
			s.t.Errorf("%d bytes buffered before the first Write", n)
		}
		server.conn.Write(pattern(4, size))
		if n := server.conn.Buffered(); n <= 0 || n > size {
			s.t.Errorf("%d bytes buffered after a Write of %d that nobody reads", n, size)
		}
	})
	s.settle()
	s.do(func(loop.Loop) {
		before := server.conn.Buffered()
		server.conn.Write(pattern(5, 1000))
		const framing = 64 // of a driver that encrypts
		if n := server.conn.Buffered(); n < before+1000 || n > before+1000+framing {
			s.t.Errorf("%d bytes buffered, and %d after a Write of 1000 behind them", before, n)
		}
	})
	p.Read()
	s.Wait("the buffer to empty", func() bool { return server.conn.Buffered() == 0 })
	s.do(func(loop.Loop) { server.drain() })
	s.waitGot(p, append(pattern(4, size), pattern(5, 1000)...), io.EOF)
}

// awaitRoom: the flush runs once, when no more than the given bytes are left. It does not run while the
// peer reads nothing, for a call that another has replaced, or after the end.
func awaitRoom(s *suite) {
	const size, left = 16 << 20, 1 << 20
	server, drained, closed := s.probe("server"), s.probe("drained"), s.probe("closed")
	reader, other := s.peer(server), s.peer(drained)
	s.peer(closed)
	never := s.flush(func() { s.t.Error("a flush that nobody awaits any more runs") })
	runs := 0
	s.do(func(loop.Loop) {
		for _, p := range []*probe{server, drained, closed} {
			p.conn.Write(pattern(6, size))
			if n := p.conn.Buffered(); n <= left {
				s.t.Errorf("%d bytes buffered after a Write of %d that nobody reads", n, size)
			}
			p.conn.AwaitRoom(left, never)
		}
		server.conn.AwaitRoom(left, s.flush(func() {
			runs++
			if n := server.conn.Buffered(); n > left {
				s.t.Errorf("%d bytes are left, want at most %d", n, left)
			}
		}))
		drained.drain()
	})
	s.settle()
	s.do(func(loop.Loop) {
		if runs > 0 {
			s.t.Error("there is room although nobody reads")
		}
		closed.close()
	})
	reader.Read()
	other.Read()
	s.Wait("room", func() bool { return runs > 0 })
	s.waitGot(other, pattern(6, size), io.EOF)
	s.Wait("the buffer to empty", func() bool { return server.conn.Buffered() == 0 })
	s.settle()
	s.do(func(loop.Loop) {
		if runs != 1 {
			s.t.Errorf("the flush has run %d times", runs)
		}
	})
}

// writeAfterEnd: a write after Close, Drain or the peer's close does nothing, within the
// callback that ended the connection and after OnClose.
func writeAfterEnd(s *suite) {
	ends := []struct {
		name string
		end  func(local *probe, remote *probe)
	}{
		{"Close", func(local, _ *probe) { local.close() }},
		{"Drain", func(local, _ *probe) { local.drain() }},
		{"peer's close", func(_, remote *probe) { remote.close() }},
	}
	for _, e := range ends {
		local, remote := s.probe(e.name+": local"), s.probe(e.name+": remote")
		s.pair(local, remote)
		write := func() {
			local.conn.Write([]byte("late"))
			local.conn.Write(make([]byte, 1<<20))
			local.conn.WriteParts([][]byte{[]byte("late"), []byte("too")})
		}
		local.onClose = write
		s.do(func(loop.Loop) {
			e.end(local, remote)
			if local.ended {
				write()
			}
		})
		s.Wait("both to be closed", func() bool { return local.closed && remote.closed })
		s.do(func(loop.Loop) {
			write()
			local.conn.Close()
			local.conn.Drain()
		})
		s.settle()
		s.do(func(loop.Loop) { s.same(remote.name, remote.got, nil) })
	}
}

// writeAfterCloseReachesNobody: a later connection, which may have the descriptor of a closed
// one, does not get bytes written to that.
func writeAfterCloseReachesNobody(s *suite) {
	const count = 20
	old, far := s.probe("closed"), s.probe("far end")
	s.pair(old, far)
	s.do(func(loop.Loop) { old.close() })
	s.Wait("both to be closed", func() bool { return old.closed && far.closed })
	clients, servers := make([]*probe, count), make([]*probe, count)
	for i := range count {
		clients[i], servers[i] = s.probe("client"), s.probe("server")
		s.pair(clients[i], servers[i])
		s.do(func(loop.Loop) {
			old.conn.Write([]byte("misdirected"))
			far.conn.Write([]byte("misdirected"))
		})
	}
	s.do(func(loop.Loop) {
		for _, c := range clients {
			c.conn.Write([]byte("x"))
		}
	})
	s.Wait("each its byte", func() bool {
		for _, p := range servers {
			if len(p.got) == 0 {
				return false
			}
		}
		return true
	})
	s.settle()
	s.do(func(loop.Loop) {
		for i := range count {
			s.same("server", servers[i].got, []byte("x"))
			s.same("client", clients[i].got, nil)
		}
	})
}

// isReset reports whether err is an error of the system after a reset.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
