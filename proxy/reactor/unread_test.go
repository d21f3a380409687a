package reactor

import (
	"io"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// TestResponseBeforeReset: input that a peer sent before its reset reaches the stream,
// although output to the peer is pending. So it does if both came after the loop had learned only
// that it may send, and sending fails.
func TestResponseBeforeReset(t *testing.T) {
	t.Run("in one event", func(t *testing.T) { testResponseBeforeReset(t, func(*conn) {}) })
	t.Run("after the event", func(t *testing.T) { testResponseBeforeReset(t, func(c *conn) { c.onEvents(kernel.Output) }) })
}

// testResponseBeforeReset calls found once the response and the reset have come.
func testResponseBeforeReset(t *testing.T, found func(*conn)) {
	ln := must.Listen(t)
	e := start(t, Options{})
	l := e.Loops()[0]
	opened, closed := make(chan loop.Conn, 1), make(chan error, 1)
	received := ""
	on(t, l, func() {
		l.Dial(ln.Addr().String(), waitLimit, &stream{
			open: func(c loop.Conn) {
				c.Write(make([]byte, 32<<20)) // more than the kernel takes
				opened <- c
			},
			data:  func(b []byte) { received += string(b) },
			close: func(err error) { closed <- err },
		})
	})
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := recv(t, opened, "a connection").(*conn)
	on(t, l, func() { // so that the loop finds both at its next poll
		if _, err := peer.Write([]byte("response")); err != nil {
			t.Error(err)
		}
		if err := peer.Close(); err != nil { // with unread input: a reset
			t.Error(err)
		}
		for {
			info, err := kernel.TCPCounters(c.fd)
			if err != nil {
				t.Error(err)
			}
			if err != nil || info.Closed {
				found(c)
				return
			}
		}
	})
	if err := recv(t, closed, "the end"); err == nil || err == io.EOF || received != "response" {
		t.Errorf("received %q, then %v", received, err)
	}
}
