package reactor

import (
	"bytes"
	"crypto/tls"
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

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/loop"
)

// openFiles returns the number of descriptors of this process, or always 0 on a system that does not list them.
func openFiles() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

// echoAfter returns a stream that echoes on the loop until it has received at least n
// bytes and nothing is buffered, and then on the Socket until the peer's end.
func echoAfter(t *testing.T, n int, left *sync.WaitGroup) *stream {
	var conn loop.Conn
	seen := 0
	s := &stream{open: func(c loop.Conn) { conn = c }}
	s.data = func(b []byte) {
		conn.Write(b)
		if seen += len(b); seen < n {
			return
		}
		sock, err := conn.Detach()
		if errors.Is(err, loop.ErrDetachBuffered) {
			return
		}
		if err != nil {
			t.Errorf("Detach: %v", err)
			return
		}
		left.Go(func() {
			defer sock.Close()
			_ = sock.SetDeadline(time.Now().Add(waitLimit))
			if _, err := io.Copy(sock, sock); err != nil {
				t.Errorf("echo after Detach: %v", err)
			}
			_ = sock.CloseWrite()
		})
	}
	return s
}

// TestDetachUnderLoad: many connections are detached at once, each while it transfers
// data. Every byte comes back in order, and no descriptor or count is left over. The
// dialled connections are detached in OnOpen, or were never on a loop.
func TestDetachUnderLoad(t *testing.T) {
	t.Run("plain", func(t *testing.T) { detachUnderLoad(t, nil) })
	t.Run("TLS", func(t *testing.T) { detachUnderLoad(t, NewIdentity(t)) })
}

func detachUnderLoad(t *testing.T, own *certs.Source) {
	const conns, rounds, size = 48, 3, 256 << 10
	e := start(t, withTLS(Options{Loops: 2}, own))
	var left sync.WaitGroup
	var mu sync.Mutex
	rnd := rand.New(rand.NewPCG(1, 2))
	addr := listen(t, e, listenTLS(own), func() loop.Receiver {
		mu.Lock()
		defer mu.Unlock()
		return echoAfter(t, rnd.IntN(size/2), &left)
	})
	connect := []func(*testing.T, *Reactor, string, *certs.Source) (halfCloser, error){dialOutside, dialDetached, dialSocket}
	before := openFiles()
	for round := range rounds {
		var all sync.WaitGroup
		for i := range conns {
			all.Go(func() {
				nc, err := connect[i%len(connect)](t, e, addr, own)
				if err == nil {
					err = exchangeBytes(nc, uint64(round*conns+i), size)
				}
				if err != nil {
					t.Errorf("connection %d: %v", i, err)
				}
			})
		}
		all.Wait()
	}
	left.Wait()
	if n, want := e.Stats().Detached, int64(rounds*conns*4/3); n != want {
		t.Errorf("%d connections left their loop, want %d", n, want)
	}
	eventually(t, func() error {
		if st := e.Stats(); st.Inbound != 0 || st.Open != 0 {
			return fmt.Errorf("still count as open: %+v", st)
		}
		if n := openFiles(); n > before {
			return fmt.Errorf("%d descriptors open, %d before", n, before)
		}
		return nil
	})
}

// withTLS makes all dials use own, and listenTLS a listener. nil means plain text.
func withTLS(o Options, own *certs.Source) Options {
	if own != nil {
		o.DialTLS = func(_, _, _ string) func() *tls.Config { return own.Client }
	}
	return o
}

func listenTLS(own *certs.Source) (o ListenOptions) {
	if own != nil {
		o.TLS = own.Server
	}
	return o
}

// halfCloser is the methods that a Socket and the connections of package net share.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// dialOutside connects without the engine.
func dialOutside(_ *testing.T, _ *Reactor, addr string, own *certs.Source) (halfCloser, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	if own == nil {
		return nc.(*net.TCPConn), nil
	}
	return tls.Client(nc, own.Client()), nil
}

// dialDetached connects on a loop and detaches the connection in OnOpen.
func dialDetached(t *testing.T, e *Reactor, addr string, _ *certs.Source) (halfCloser, error) {
	got := make(chan halfCloser, 1)
	ended := make(chan error, 1)
	l := e.Loops()[0]
	l.Post(func() {
		l.Dial(addr, waitLimit, &stream{
			open: func(c loop.Conn) {
				if sock, err := c.Detach(); err != nil {
					t.Errorf("Detach: %v", err)
				} else {
					got <- sock.(halfCloser)
				}
			},
			close: func(err error) { ended <- err },
		})
	})
	if err := recv(t, ended, "OnClose of a dialled connection"); err != nil {
		return nil, err
	}
	return recv(t, got, "the connection"), nil
}

// dialSocket connects with a SocketDialer, on no loop.
func dialSocket(t *testing.T, e *Reactor, addr string, _ *certs.Source) (halfCloser, error) {
	sock, err := e.SocketDialer().Dial(t.Context(), addr, "service", "", nil)
	if err != nil {
		return nil, err
	}
	return sock.(halfCloser), nil
}

// eventually waits until check passes.
func eventually(t testing.TB, check func() error) {
	t.Helper()
	var err error
	for end := time.Now().Add(waitLimit); time.Now().Before(end); time.Sleep(time.Millisecond) {
		if err = check(); err == nil {
			return
		}
	}
	t.Fatal(err)
}

// exchangeBytes sends size bytes in random pieces, compares the echo, and closes.
func exchangeBytes(nc halfCloser, seed uint64, size int) error {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(waitLimit))
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
		failed <- nc.CloseWrite()
	}()
	got, err := io.ReadAll(nc)
	if err := errors.Join(err, <-failed); err != nil {
		return err
	}
	if !bytes.Equal(got, sent) {
		return fmt.Errorf("received %d of %d bytes, or other bytes", len(got), len(sent))
	}
	return nil
}

// TestDetachBuffered: a connection with one byte of output stays on its loop, which sends the byte.
func TestDetachBuffered(t *testing.T) {
	e := start(t, Options{})
	c, peer := accepted(t, e, &stream{})
	on(t, c.loop, func() {
		if errno := c.keep([]byte("x")); errno != 0 {
			t.Error(errno)
		}
		if sock, err := c.Detach(); sock != nil || err != loop.ErrDetachBuffered {
			t.Errorf("%v, %v", sock, err)
		}
	})
	if got := must.Read(t, peer, 1); string(got) != "x" {
		t.Errorf("the peer read %q", got)
	}
}

// TestDetachOfReset: a Socket whose peer has reset the connection still has the address of the peer.
func TestDetachOfReset(t *testing.T) {
	e := start(t, Options{})
	c, peer := accepted(t, e, &stream{})
	on(t, c.loop, func() {
		reset(t, peer, c.fd)
		sock, err := c.Detach()
		if err != nil {
			t.Errorf("Detach: %v", err)
			return
		}
		if got, want := fmt.Sprint(sock.(net.Conn).RemoteAddr()), peer.LocalAddr().String(); got != want {
			t.Errorf("the peer is %s, want %s", got, want)
		}
		_ = sock.Close()
	})
}

// TestDetachOutlivesReactor: a Socket works after its reactor was stopped, and keeps its
// reservation until it is closed.
func TestDetachOutlivesReactor(t *testing.T) {
	e := start(t, Options{MaxConnections: 1})
	c, peer := accepted(t, e, &stream{})
	var sock loop.Socket
	on(t, c.loop, func() {
		var err error
		if sock, err = c.Detach(); err != nil {
			t.Errorf("Detach: %v", err)
		}
		if _, err := c.Detach(); !errors.Is(err, loop.ErrDetachClosed) {
			t.Errorf("second Detach: %v", err)
		}
	})
	if n := e.Stats().Inbound; n != 1 {
		t.Errorf("Inbound is %d with a detached connection, want 1", n)
	}
	if n := e.connections.files.Load(); n != streamFiles {
		t.Errorf("%d descriptors are reserved for a stream, want %d", n, streamFiles)
	}
	if e.Connections().Reserver(0)(&net.TCPAddr{}, &net.TCPAddr{}) != nil {
		t.Error("a connection was reserved beyond MaxConnections")
	}
	on(t, c.loop, func() {}) // the notice is through
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	must.Write(t, sock, "still here")
	if err := sock.Close(); err != nil {
		t.Error(err)
	}
	if err := sock.Close(); err != net.ErrClosed {
		t.Errorf("second Close: %v", err)
	}
	if got, err := io.ReadAll(peer); string(got) != "still here" || err != nil {
		t.Errorf("the peer read %q, %v", got, err)
	}
	if n := e.Stats().Inbound; n != 0 {
		t.Errorf("Inbound is %d at the end", n)
	}
	release := e.Connections().Reserver(0)(&net.TCPAddr{}, &net.TCPAddr{})
	if release == nil {
		t.Fatal("the reservation was not released")
	}
	release()
}
