package stream

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"
)

// TestFinishSlowReader: the last of an answer gets to a client that has sent what
// nobody reads any more, however long it takes to read.
func TestFinishSlowReader(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	s.srv.flush = time.Millisecond
	down := &end{}
	down.tcp = s.dialTo(a.addr)
	down.conn = down.tcp
	client := receive(t, a.conns, "the connection")
	_ = client.SetReadBuffer(64 << 10)
	const size = 8 << 20
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&pair{srv: s.srv, down: down}).finish(make([]byte, size))
	}()
	got := 0
	for block := make([]byte, 64<<10); ; {
		n, err := client.Read(block)
		if got += n; err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("%v after %d bytes of %d", err, got, size)
		}
		_, _ = client.Write([]byte("x"))
		time.Sleep(2 * time.Millisecond) // slower than flush
	}
	if got != size {
		t.Errorf("%d bytes of %d", got, size)
	}
	client.Close()
	receive(t, done, "the end")
}

// TestResetTold: a reset that a write was told of is one for the other end too,
// though the connection then reads like one that has ended.
func TestResetTold(t *testing.T) {
	a := newApp(t)
	s := newSidecar(t, options{})
	dial := func() (own *end, other *net.TCPConn) {
		own = &end{}
		own.tcp = s.dialTo(a.addr)
		own.conn = own.tcp
		return own, receive(t, a.conns, "the connection")
	}
	down, client := dial()
	up, server := dial()
	(&end{conn: server, tcp: server}).reset()
	s.eventually("the reset to arrive", func() error {
		if !up.dead() {
			return errors.New("not yet")
		}
		return nil
	})
	if _, err := up.Write([]byte("x")); err == nil {
		t.Fatal("a write after a reset")
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		(&pair{srv: s.srv, down: down, up: up}).relay(s.srv.early(nil))
	}()
	wantReset(t, "the client", client)
	client.Close()
	receive(t, done, "the relay to end")
}
