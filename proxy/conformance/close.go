package conformance

import (
	"io"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// closeAnywhere closes within each kind of callback while input is on its way:
// no OnData follows, and OnClose(nil) comes once, after the callback. The probe
// checks all that.
func closeAnywhere(s *suite) {
	var lp loop.Loop
	s.do(func(l loop.Loop) { lp = l })
	places := []struct {
		name  string
		place func(p *probe, then func())
	}{
		{"OnOpen", func(p *probe, then func()) { p.onOpen = then }},
		{"OnData", func(p *probe, then func()) { p.onData = func([]byte) { then() } }},
		{"Timer", func(p *probe, then func()) {
			p.onData = func([]byte) { p.onData = nil; lp.After(0, s.timer(then)) }
		}},
		{"Flush", func(p *probe, then func()) {
			p.onData = func([]byte) { p.onData = nil; lp.Defer(s.flush(then)) }
		}},
		{"Post", func(p *probe, then func()) {
			p.onData = func([]byte) { p.onData = nil; lp.Post(func() { s.call("Post", then) }) }
		}},
	}
	for _, where := range places {
		p := s.probe("close in " + where.name)
		where.place(p, func() { p.close() })
		far := s.Connect(s.listen(p))
		far.Send(pattern(6, 1<<20))
		s.Wait(p.name, p.isClosed)
		s.settle()
	}
}

// closeEachOther: of each two connections with input, the first to be called
// closes the other, which then must not be called with data of the same turn.
func closeEachOther(s *suite) {
	const pairs = 20
	probes := make([]*probe, 2*pairs)
	for i := range probes {
		probes[i] = s.probe("one of two")
		probes[i].onData = func([]byte) {
			if other := probes[i^1]; !other.ended {
				other.close()
			}
		}
	}
	addr := s.listen(probes...)
	peers := make([]Peer, len(probes))
	for i := range peers {
		peers[i] = s.Connect(addr)
		s.Wait("the connection to be open", probes[i].isOpen)
	}
	for _, p := range peers {
		p.Send([]byte("x"))
	}
	s.do(func(loop.Loop) { time.Sleep(2 * time.Millisecond) }) // holds a real loop up, so that one turn has it all
	s.Wait("one of each two to be closed", func() bool {
		for i := 0; i < len(probes); i += 2 {
			if !probes[i].closed && !probes[i+1].closed {
				return false
			}
		}
		return true
	})
	s.settle()
}

func closeTwice(s *suite) {
	client, server := s.probe("client"), s.probe("server")
	s.pair(client, server)
	s.do(func(loop.Loop) {
		client.close()
		client.close()
		client.drain()
	})
	s.Wait("both to be closed", func() bool { return client.closed && server.closed })
	s.settle()
}

// closeDropsBuffered: a Close after more output than kernels buffer takes effect although the
// peer does not read, and unsent output is lost.
func closeDropsBuffered(s *suite) {
	const size = 48 << 20
	server := s.probe("server")
	p := s.peer(server)
	s.do(func(loop.Loop) {
		server.conn.Write(make([]byte, size))
		server.close()
	})
	s.Wait("the close", server.isClosed)
	p.Read()
	n := 0
	s.Wait("the peer to see the end", func() bool {
		got, err := p.Got()
		n = len(got)
		return err != nil
	})
	if n == size {
		s.t.Errorf("all %d bytes arrived though nobody read before the Close", n)
	}
}

func peerCloses(s *suite) {
	const size = 1 << 20
	server := s.probe("server")
	p := s.peer(server)
	p.Read()
	p.Send(pattern(7, size))
	p.CloseWrite()
	s.Wait("the close", server.isClosed)
	s.settle()
	s.do(func(loop.Loop) {
		if server.err != io.EOF {
			s.t.Errorf("OnClose(%v) after the peer's close, want io.EOF", server.err)
		}
		s.same("server", server.got, pattern(7, size))
	})
}

// peerHalfCloses: a half-close counts as a close, also when it is there before
// the loop has seen the connection, and closes the other direction as well.
func peerHalfCloses(s *suite) {
	server := s.probe("server")
	p := s.Connect(s.listen(server))
	p.CloseWrite()
	s.Wait("the close", server.isClosed)
	p.Read()
	s.waitGot(p, nil, io.EOF)
	s.do(func(loop.Loop) {
		if !server.opened || server.err != io.EOF {
			s.t.Errorf("opened=%t and OnClose(%v), want OnOpen and OnClose(io.EOF)", server.opened, server.err)
		}
	})
}

// peerHalfClosesAndReads: a receiver that stays after the peer's half-close sends all that it has, also what
// it writes within OnEnd. The end comes with its own.
func peerHalfClosesAndReads(s *suite) {
	const size = 16 << 20
	for _, within := range []bool{false, true} {
		server := s.probe("server")
		respond := func() {
			server.conn.Write(pattern(10, size))
			server.drain()
		}
		server.onEnd = func() bool {
			if within {
				respond()
			}
			return true
		}
		p := s.peer(server)
		p.Send(pattern(7, 1<<20))
		p.CloseWrite()
		s.Wait("the peer's end", func() bool { return server.heard })
		s.settle()
		s.do(func(loop.Loop) {
			s.same("the server", server.got, pattern(7, 1<<20))
			if !within {
				respond()
			}
		})
		p.Read()
		s.waitGot(p, pattern(10, size), io.EOF)
		s.Wait("the close", server.isClosed)
	}
}

// peerHalfClosesAndResets: a receiver that stays learns of a reset, although it writes nothing.
func peerHalfClosesAndResets(s *suite) {
	for _, buffered := range []int{0, 48 << 20} {
		server := s.probe("server")
		server.onEnd = func() bool {
			server.conn.Write(make([]byte, buffered))
			return true
		}
		p := s.peer(server)
		p.CloseWrite()
		s.Wait("the peer's end", func() bool { return server.heard })
		s.settle()
		s.reset(p, server)
	}
}

// reset makes p reset the connection, and checks that server is told of a reset.
func (s *suite) reset(p Peer, server *probe) {
	p.Reset()
	s.Wait("the close", server.isClosed)
	s.settle()
	s.do(func(loop.Loop) {
		if !isReset(server.err) {
			s.t.Errorf("OnClose(%v) after a reset, want ECONNRESET or EPIPE", server.err)
		}
	})
}

func peerResets(s *suite) {
	server := s.probe("server")
	p := s.peer(server)
	s.reset(p, server)
}

// peerResetsWhileWritten: a write that fails closes, but never within itself.
func peerResetsWhileWritten(s *suite) {
	for round := range 10 {
		server := s.probe("server")
		p := s.peer(server)
		var lp loop.Loop
		var t *loop.Timer
		block := make([]byte, 64<<10)
		t = s.timer(func() {
			for range 4 {
				if !server.closed && server.conn.Buffered() > 8<<20 {
					break
				}
				closed := server.closed
				server.conn.Write(block)
				if server.closed != closed {
					s.t.Error("OnClose came within Write")
				}
			}
			if !server.closed {
				lp.After(0, t)
			}
		})
		s.do(func(l loop.Loop) { lp = l; l.After(0, t) })
		if round%2 == 0 { // else the reset meets what is buffered
			p.Read()
		}
		s.settle()
		s.reset(p, server)
	}
}

// drainDelivers: buffered output reaches a slow reader, and then the end of file.
func drainDelivers(s *suite) { endDelivers(s, (*probe).drain) }

// finishDelivers: the same after Finish.
func finishDelivers(s *suite) { endDelivers(s, (*probe).finish) }

func endDelivers(s *suite, end func(*probe)) {
	const size = 16 << 20
	server := s.probe("server")
	p := s.peer(server)
	s.do(func(loop.Loop) {
		server.conn.Write(pattern(8, size))
		if server.conn.Buffered() == 0 {
			s.t.Errorf("nothing buffered after a Write of %d that nobody reads", size)
		}
		end(server)
		server.conn.Write([]byte("after the end"))
	})
	s.settle()
	s.do(func(loop.Loop) {
		if server.closed {
			s.t.Error("closed before what was buffered is sent")
		}
	})
	p.Read()
	s.waitGot(p, pattern(8, size), io.EOF)
	p.CloseWrite()
	s.Wait("the close", server.isClosed)
}

// drainEndsAlone: a drain waits for a peer that doesn't close for one second.
func drainEndsAlone(s *suite) {
	server := s.probe("server")
	p := s.peer(server)
	s.do(func(loop.Loop) { server.conn.Write([]byte("answer")); server.drain() })
	p.Read()
	s.waitGot(p, []byte("answer"), io.EOF)
	s.Wait("the close", server.isClosed)
}

// drainReadsAndDrops: unread input at the time of Drain, and later input, cause no reset
// that destroys the last response.
func drainReadsAndDrops(s *suite) { endReadsAndDrops(s, (*probe).drain) }

// finishReadsAndDrops: nor do they after Finish, although the peer has said that none comes.
func finishReadsAndDrops(s *suite) { endReadsAndDrops(s, (*probe).finish) }

func endReadsAndDrops(s *suite, end func(*probe)) {
	const size = 64 << 10
	for range 5 {
		server := s.probe("server")
		server.onData = func([]byte) {
			server.conn.Write(pattern(9, size))
			end(server)
		}
		p := s.peer(server)
		p.Send(make([]byte, 2<<20))
		p.CloseWrite()
		s.settle()
		p.Read()
		s.waitGot(p, pattern(9, size), io.EOF)
		s.Wait("the close", server.isClosed)
	}
}

// drainThenClose: Close ends a Drain at once.
func drainThenClose(s *suite) {
	const size = 48 << 20
	server := s.probe("server")
	p := s.peer(server)
	s.do(func(loop.Loop) { server.conn.Write(make([]byte, size)); server.drain() })
	s.settle()
	s.do(func(loop.Loop) { server.close() })
	s.Wait("the close", server.isClosed)
	p.Read()
	s.Wait("the peer to see the end", func() bool { _, err := p.Got(); return err != nil })
	if got, _ := p.Got(); len(got) == size {
		s.t.Errorf("all %d bytes arrived though nobody read before the Close", size)
	}
}
