package conformance

import (
	"io"

	"github.com/remora-proxy/remora/proxy/loop"
)

// setReceiver lets the receiver of a connection hand it on: once within OnOpen, and once within OnData.
// The next receiver gets all bytes that follow, and OnClose; the one before gets nothing more.
func setReceiver(s *suite) {
	first, second, third := s.probe("first"), s.probe("second"), s.probe("third")
	const handOn = "hand on"
	first.onOpen = func() {
		second.takeOver(first)
		first.conn.SetReceiver(second)
	}
	second.onData = func([]byte) {
		if len(second.got) == len(handOn) {
			third.takeOver(second)
			second.conn.SetReceiver(third)
			third.conn.Write([]byte("go on"))
		}
	}
	rest := pattern(1, 100<<10)
	p := s.peer(first)
	p.Read()
	p.Send([]byte(handOn))
	s.Wait("the last receiver to have the connection", func() bool { return third.opened })
	p.Send(rest)
	p.CloseWrite()
	s.Wait("the last stream to be closed", third.isClosed)
	s.waitGot(p, []byte("go on"), io.EOF)
	s.do(func(loop.Loop) {
		s.same("the second stream", second.got, []byte(handOn))
		s.same("the third stream", third.got, rest)
		if third.err != io.EOF {
			s.t.Errorf("OnClose(%v), want io.EOF", third.err)
		}
		if first.closed || second.closed {
			s.t.Errorf("OnClose of a stream that has handed the connection on: %t, %t", first.closed, second.closed)
		}
	})
}
