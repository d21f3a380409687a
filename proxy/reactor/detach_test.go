package reactor

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// openFiles counts this process's descriptors.
func openFiles(t testing.TB) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("no /proc/self/fd")
	}
	return len(all)
}

// echoAfter echoes on the loop until it has seen at least n bytes and nothing is
// buffered, and then on the Socket until the peer's end.
func echoAfter(t *testing.T, n int, left *sync.WaitGroup) *stream {
	var conn proxy.Conn
	seen := 0
	s := &stream{open: func(c proxy.Conn) { conn = c }}
	s.data = func(b []byte) {
		conn.Write(b)
		if seen += len(b); seen < n {
			return
		}
		sock, err := conn.Detach()
		if errors.Is(err, proxy.ErrDetachBuffered) {
			return
		}
		if err != nil {
			t.Errorf("Detach: %v", err)
			return
		}
		left.Go(func() {
			defer sock.Close()
			nc := sock.(interface{ NetConn() net.Conn }).NetConn()
			_ = nc.SetDeadline(time.Now().Add(patience))
			if _, err := io.Copy(nc, nc); err != nil {
				t.Errorf("echo after Detach: %v", err)
			}
			_ = sock.CloseWrite()
		})
	}
	return s
}

// TestDetachUnderLoad has many connections leave their loops at once, each in
// the midst of a stream of its own, again and again: every byte comes back in
// its place, and no descriptor or count is left over.
func TestDetachUnderLoad(t *testing.T) {
	const conns, rounds, size = 64, 4, 256 << 10
	e := start(t, Options{Loops: 2})
	var left sync.WaitGroup
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	addr := listen(t, e, ListenOptions{}, func() proxy.Stream {
		mu.Lock()
		defer mu.Unlock()
		return echoAfter(t, rnd.IntN(size/2), &left)
	})
	before := openFiles(t)
	for round := range rounds {
		var all sync.WaitGroup
		for i := range conns {
			all.Go(func() {
				if err := exchangeBytes(addr, uint64(round*conns+i), size); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
	}
	left.Wait()
	if n := e.Stats().Detached; n != conns*rounds {
		t.Errorf("%d connections left their loop, want %d", n, conns*rounds)
	}
	settled(t, func() error {
		if st := e.Stats(); st.Inbound != 0 || st.Open != 0 {
			return fmt.Errorf("still count as open: %+v", st)
		}
		if n := openFiles(t); n > before {
			return fmt.Errorf("%d descriptors open, %d before", n, before)
		}
		return nil
	})
}

// settled waits until check passes.
func settled(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// exchangeBytes sends size bytes in random pieces and compares the echo.
func exchangeBytes(addr string, seed uint64, size int) error {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	rnd := rand.New(rand.NewPCG(seed, 3))
	sent := make([]byte, size)
	for i := 0; i < size; i += 8 {
		binary.LittleEndian.PutUint64(sent[i:], rnd.Uint64())
	}
	failed := make(chan error, 1)
	go func() {
		for b := sent; len(b) > 0; {
			n := min(len(b), 1+rnd.IntN(64<<10))
			if _, err := nc.Write(b[:n]); err != nil {
				failed <- err
				return
			}
			b = b[n:]
		}
		failed <- nc.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(nc)
	if err := errors.Join(err, <-failed); err != nil {
		return fmt.Errorf("connection %d: %w", seed, err)
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("connection %d: %d bytes came back of %d, or not the same", seed, len(got), len(sent))
	}
	return nil
}

// TestDetachOutlivesEngine: a Socket is its owner's, whatever becomes of the
// engine, and holds its place among the connections until it is closed.
func TestDetachOutlivesEngine(t *testing.T) {
	e := start(t, Options{MaxConnections: 1})
	c, peer := accepted(t, e, &stream{})
	var sock proxy.Socket
	on(t, c.loop, func() {
		var err error
		if sock, err = c.Detach(); err != nil {
			t.Errorf("Detach: %v", err)
		}
		if _, err := c.Detach(); !errors.Is(err, proxy.ErrDetachClosed) {
			t.Errorf("second Detach: %v", err)
		}
	})
	if n := e.Stats().Inbound; n != 1 {
		t.Errorf("Inbound is %d with a detached connection, want 1", n)
	}
	if e.Reserve(sock.(net.Conn).RemoteAddr()) != nil {
		t.Error("a place was given beyond MaxConnections")
	}
	on(t, c.loop, func() {}) // the notice is through
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(sock, "still here"); err != nil {
		t.Fatal(err)
	}
	if err := sock.Close(); err != nil {
		t.Error(err)
	}
	if err := sock.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second Close: %v", err)
	}
	if got, err := io.ReadAll(peer); string(got) != "still here" || err != nil {
		t.Errorf("the peer read %q, %v", got, err)
	}
	if n := e.Stats().Inbound; n != 0 {
		t.Errorf("Inbound is %d in the end", n)
	}
	if e.Reserve(sock.(net.Conn).RemoteAddr()) == nil {
		t.Error("the place was not given back")
	}
}

// TestDetachOutbound: a dialled connection may leave too, at once on OnOpen.
func TestDetachOutbound(t *testing.T) {
	e := start(t, Options{})
	addr := listen(t, e, ListenOptions{}, echo)
	got := make(chan proxy.Socket, 1)
	on(t, e.Loops()[0], func() {
		e.Loops()[0].Dial(addr, patience, &stream{open: func(c proxy.Conn) {
			sock, err := c.Detach()
			if err != nil {
				t.Errorf("Detach: %v", err)
			}
			got <- sock
		}})
	})
	sock := recv(t, got, "the connection")
	defer sock.Close()
	if answer := ask(t, sock.(interface{ NetConn() net.Conn }).NetConn(), "hello"); answer != "hello" {
		t.Errorf("echo: %q", answer)
	}
}
