package sim

import (
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/loop"
)

// script is a Receiver made of functions; nil ones do nothing.
type script struct {
	open  func(c loop.Conn)
	data  func(b []byte)
	close func(err error)
}

func (s *script) OnOpen(c loop.Conn) {
	if s.open != nil {
		s.open(c)
	}
}

func (s *script) OnData(b []byte) {
	if s.data != nil {
		s.data(b)
	}
}

func (s *script) OnClose(err error) {
	if s.close != nil {
		s.close(err)
	}
}

// echoTo accepts connections that send back what they get.
func echoTo(w *World, addr string, l *Loop) {
	w.Net.Listen(addr, l, func() loop.Receiver {
		var c loop.Conn
		return &script{
			open: func(conn loop.Conn) { c = conn },
			data: func(b []byte) { c.Write(b) },
		}
	})
}

func TestEcho(t *testing.T) {
	w := New(1)
	w.OnFailure(t)
	a, b := w.Loop("a"), w.Loop("b")
	echoTo(w, "10.0.0.2:80", b)
	const size = 10 << 20
	got, closed := 0, false
	var c loop.Conn
	s := &script{
		open: func(conn loop.Conn) { c = conn; c.Write(make([]byte, size)) },
		data: func(b []byte) {
			if got += len(b); got == size {
				c.Close()
			}
		},
		close: func(error) { closed = true },
	}
	a.Do(func() { a.Dial("10.0.0.2:80", time.Second, s) })
	if !w.RunUntil(func() bool { return closed }, time.Minute) {
		t.Fatalf("%d of %d bytes came back", got, size)
	}
	w.Run(2 * time.Second)
	if left := w.Leftovers(); left != nil {
		t.Errorf("left over: %v", left)
	}
}
