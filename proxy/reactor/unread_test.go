package reactor

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/proxy/loop"
)

// What a peer has said before it reset the connection is handed over, though there
// is more to be sent to it than it has taken.
func TestAnswerBeforeReset(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	e := start(t, Options{})
	l := e.Loops()[0]
	opened, closed := make(chan loop.Conn, 1), make(chan error, 1)
	heard := ""
	on(t, l, func() {
		l.Dial(ln.Addr().String(), patience, &stream{
			open: func(c loop.Conn) {
				c.Write(make([]byte, 32<<20)) // more than the kernel takes
				opened <- c
			},
			data:  func(b []byte) { heard += string(b) },
			close: func(err error) { closed <- err },
		})
	})
	peer, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	c := recv(t, opened, "a connection").(*conn)
	on(t, l, func() { // so that both lie there when the loop looks again
		if _, err := peer.Write([]byte("answer")); err != nil {
			t.Error(err)
		}
		if err := peer.Close(); err != nil { // with unread input: a reset
			t.Error(err)
		}
		for {
			info, err := unix.GetsockoptTCPInfo(c.gc.Fd(), unix.IPPROTO_TCP, unix.TCP_INFO)
			if err != nil {
				t.Error(err)
			}
			if err != nil || info.State == unix.BPF_TCP_CLOSE {
				return
			}
		}
	})
	if err := recv(t, closed, "the end"); err == nil || heard != "answer" {
		t.Errorf("heard %q, then %v", heard, err)
	}
}
