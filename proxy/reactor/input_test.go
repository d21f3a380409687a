package reactor

import (
	"bytes"
	"errors"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
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

// roomy is a stream with memory for its input. The first room is one byte.
type roomy struct {
	*stream
	memory []byte
	more   bool
}

func (r *roomy) Room() []byte {
	if !r.more && len(r.memory) > 0 {
		r.more = true
		return r.memory[:1]
	}
	return r.memory
}

// TestReadToRoom: input is read to the memory that its receiver has, and elsewhere
// once it has none.
func TestReadToRoom(t *testing.T) {
	const first, all = 100 << 10, 110 << 10
	e := start(t, Options{})
	memory, got := make([]byte, first), make(chan int, all)
	r := &roomy{memory: memory}
	r.stream = &stream{data: func(b []byte) {
		if len(r.memory) == 0 {
			got <- len(b)
			return
		}
		if &b[0] != &r.memory[0] || len(b) > len(r.memory) {
			t.Errorf("%d bytes were read elsewhere, room was for %d", len(b), len(r.memory))
		}
		got <- len(b)
		r.memory = r.memory[len(b):]
	}}
	peer := dial(t, listen(t, e, ListenOptions{}, func() loop.Receiver { return r }))
	sent := bytes.Repeat([]byte("0123456789"), all/10)
	must.Write(t, peer, sent)
	for n := 0; n < len(sent); {
		n += recv(t, got, "the input")
	}
	on(t, e.loops[0], func() {
		if !bytes.Equal(memory, sent[:first]) || len(r.memory) > 0 {
			t.Errorf("other bytes than were sent, or room for %d is left", len(r.memory))
		}
	})
}

// TestEndAfterInput: after a write that failed, all input is passed on before the end, also what comes meanwhile.
func TestEndAfterInput(t *testing.T) {
	e := start(t, Options{})
	var c *conn
	var peer net.Conn
	reads, closed := make(chan string, 2), make(chan error, 1)
	c, peer = accepted(t, e, &stream{
		data: func(b []byte) {
			if reads <- string(b); len(reads) == 1 {
				must.Write(t, peer, "second")
				awaitInput(t, c)
			}
		},
		close: func(err error) { closed <- err },
	})
	on(t, e.loops[0], func() {
		must.Write(t, peer, "first")
		awaitInput(t, c)
		c.endAfterInput(unix.EPIPE)
	})
	if err := recv(t, closed, "OnClose"); err != unix.EPIPE {
		t.Errorf("OnClose(%v)", err)
	}
	close(reads)
	if first, second := <-reads, <-reads; first != "first" || second != "second" {
		t.Errorf("read %q and %q", first, second)
	}
}

// TestReadsOfEvent: a read that does not fill the memory is the last of its event, unless the event says that all must be read. What
// came meanwhile is read at the next event.
func TestReadsOfEvent(t *testing.T) {
	for _, all := range []kernel.Events{0, kernel.All} {
		e := start(t, Options{})
		l := e.loops[0]
		reads := make(chan string, 2)
		var c *conn
		var peer net.Conn
		s := &stream{data: func(b []byte) {
			if reads <- string(b); len(reads) == 1 {
				must.Write(t, peer, "second")
				awaitInput(t, c)
			}
		}}
		c, peer = accepted(t, e, s)
		on(t, l, func() {
			must.Write(t, peer, "first")
			awaitInput(t, c)
			c.onEvents(kernel.Input | all)
			if n := len(reads); (n == 2) != (all != 0) {
				t.Errorf("%d reads in an event for %b", n, kernel.Input|all)
			}
		})
		for _, want := range []string{"first", "second"} {
			if got := recv(t, reads, "the input"); got != want {
				t.Errorf("read %q, want %q", got, want)
			}
		}
	}
}
