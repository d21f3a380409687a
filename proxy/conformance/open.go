package conformance

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/remora-proxy/remora/proxy/loop"
)

func dialOpens(s *suite) {
	client, server := s.probe("client"), s.probe("server")
	addr := s.listen(server)
	s.do(func(l loop.Loop) {
		l.Dial(addr, long, client)
		if client.opened || client.closed {
			s.t.Error("Dial had an outcome within the call")
		}
	})
	s.Wait("both ends to be open", func() bool { return client.opened && server.opened })
	s.do(func(loop.Loop) {
		if got := client.conn.RemoteAddr(); got != addr {
			s.t.Errorf("the client's RemoteAddr is %q, dialled %q", got, addr)
		}
		if _, err := netip.ParseAddrPort(server.conn.RemoteAddr()); err != nil {
			s.t.Errorf("the server's RemoteAddr: %v", err)
		}
	})
}

// dialFails dials addr and returns what OnClose got, with no OnOpen before it.
func dialFails(s *suite, addr string, timeoutIsShort bool) error {
	timeout := long
	if timeoutIsShort {
		timeout = 4 * soon
	}
	client := s.probe("client")
	s.do(func(l loop.Loop) {
		l.Dial(addr, timeout, client)
		if client.closed {
			s.t.Error("Dial called OnClose within the call")
		}
	})
	s.Wait("the dial to fail", client.isClosed)
	s.settle()
	s.do(func(loop.Loop) {
		if client.opened {
			s.t.Error("OnOpen came for a dial that failed")
		}
		if client.err == nil {
			s.t.Error("OnClose(nil) for a dial that failed")
		}
	})
	return client.err
}

func dialRefused(s *suite) {
	if err := dialFails(s, s.Refused(), false); !errors.Is(err, syscall.ECONNREFUSED) {
		s.t.Errorf("OnClose(%v), want ECONNREFUSED", err)
	}
}

func dialTimeout(s *suite) {
	addr, ok := s.Blackhole()
	if !ok {
		s.t.Skip("this driver has no address at which dials time out")
	}
	err := dialFails(s, addr, true)
	var timeout interface{ Timeout() bool }
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		s.t.Errorf("OnClose(%v), want an error with Timeout() true", err)
	}
}

func dialBadAddress(s *suite) {
	for _, addr := range []string{"", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", "no address"} {
		_ = dialFails(s, addr, false)
	}
}

// dialMany opens connections at once; each echoes its own bytes.
func dialMany(s *suite) {
	const count, size = 200, 10_000
	clients, servers := make([]*probe, count), make([]*probe, count)
	for i := range count {
		clients[i], servers[i] = s.probe("client"), s.probe("server").echo()
		clients[i].onOpen = func() { clients[i].conn.Write(pattern(byte(i), size)) }
	}
	addr := s.listen(servers...)
	s.do(func(l loop.Loop) {
		for _, c := range clients {
			l.Dial(addr, long, c)
		}
	})
	s.Wait("all echoes", func() bool {
		for _, c := range clients {
			if len(c.got) < size {
				return false
			}
		}
		return true
	})
	s.do(func(loop.Loop) {
		for i, c := range clients {
			s.same("a client", c.got, pattern(byte(i), size))
			c.close()
		}
	})
	s.Wait("all to be closed", func() bool {
		for i := range clients {
			if !clients[i].closed || !servers[i].closed {
				return false
			}
		}
		return true
	})
}
