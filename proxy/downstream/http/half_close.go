package http

import "github.com/remora-proxy/remora/proxy/loop"

var _ loop.HalfCloser = (*session)(nil)

// OnEnd implements loop.HalfCloser. Whole requests get their responses, and one that is cut short is
// dropped. A request that waits to leave the loop meets the end there.
func (s *session) OnEnd() (stays bool) {
	limit := s.host.Config.Timeouts.HalfClose
	switch {
	case s.input == inputTunnel && s.tunnelLeaves(s.beginsTLS()):
		s.leaveTunnel(true)
		s.startNext()
		return true
	case limit == 0:
		return false
	case s.input == inputHandoff, s.output == outputHandoff:
		return true
	case len(s.calls) == 0:
		return s.closeBehindOutput()
	}
	s.input.become(inputClosed)
	s.stopTimeout()
	s.dropInput()
	s.recount()
	last := &s.calls[len(s.calls)-1]
	last.last, last.final = true, true
	s.incoming = s.host.newIncoming()
	s.incoming.session = s
	s.awaited = len(s.calls)
	s.startTimeout(loop.TimeoutEnd, limit)
	return true
}

// outlastInput closes the connection of a client that has ended its side, and has got no response for
// timeouts.half_close. While it reads one, timeouts.write bounds that.
func (s *session) outlastInput() {
	if len(s.calls) < s.awaited || s.outbound.Conn.Buffered() > 0 {
		s.awaited = len(s.calls)
		s.startTimeout(loop.TimeoutEnd, s.host.Config.Timeouts.HalfClose)
		return
	}
	s.close()
	s.outbound.Conn.Close()
}

// closeBehindOutput ends a session that has written all its responses, and reports whether the client has to
// read some of them.
func (s *session) closeBehindOutput() (unread bool) {
	if s.outbound.Conn.Buffered() == 0 {
		return false
	}
	s.close()
	s.outbound.Conn.Drain()
	return true
}
