package reactor

import (
	"errors"
	"testing"

	"github.com/remora-proxy/remora/proxy/loop"
)

// TestHasInput: a loop that is late learns that a connection has input which it has not read.
func TestHasInput(t *testing.T) {
	e := start(t, Options{})
	opened, read := make(chan loop.Conn, 1), make(chan struct{})
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		return &stream{open: func(c loop.Conn) { opened <- c }, data: func([]byte) { close(read) }}
	})
	peer := dial(t, addr)
	c := recv(t, opened, "a connection")
	l := e.Loops()[0]
	on(t, l, func() {
		if c.HasInput() {
			t.Error("there is input before the peer has sent any")
		}
		if _, err := peer.Write([]byte("a")); err != nil {
			t.Error(err)
		}
		eventually(t, func() error {
			if !c.HasInput() {
				return errors.New("no input, although the loop has not read")
			}
			return nil
		})
	})
	recv(t, read, "the input")
	on(t, l, func() {
		if c.HasInput() {
			t.Error("there is input after the loop has read it")
		}
		c.Close()
		if c.HasInput() {
			t.Error("a closed connection has input")
		}
	})
}
