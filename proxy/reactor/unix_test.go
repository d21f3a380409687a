package reactor

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// unixAddrs returns the address of a socket with a file, and that of one with an abstract name.
func unixAddrs(t *testing.T) []string {
	dir := t.TempDir()
	return []string{"unix:" + filepath.Join(dir, "s"), "unix:@remora-reactor-" + strings.ReplaceAll(filepath.Base(filepath.Dir(dir)), "/", "-")}
}

// TestUnixSockets: connections of both kinds of Unix sockets carry bytes both ways, in plain text
// and over TLS, are counted, and report the peer as UnixPeer.
func TestUnixSockets(t *testing.T) {
	identity := NewIdentity(t)
	for _, secure := range []bool{false, true} {
		for _, addr := range unixAddrs(t) {
			server, client := Options{MaxPerSource: 1}, Options{}
			var o ListenOptions
			if secure {
				o.TLS, client.DialTLS = identity.Server, func(_, _, _ string) func() *tls.Config { return identity.Client }
			}
			e, dialler := start(t, server), start(t, client)
			remotes := make(chan string, 4)
			l, err := e.Listen(addr, o, func(_ loop.Loop, remote string) loop.Receiver {
				remotes <- remote
				return echo()
			})
			if err != nil {
				t.Fatal(err)
			}
			want := make([]byte, 3<<20) // more than a socket buffers
			_, _ = rand.Read(want)
			for range 2 { // the limit by source is 1, and does not count these
				got, closed := make(chan []byte, 1), make(chan error, 1)
				var all []byte
				on(t, dialler.Loops()[0], func() {
					s := &stream{close: func(err error) { closed <- err }}
					s.open = func(c loop.Conn) { c.Write(want) }
					s.data = func(b []byte) {
						if all = append(all, b...); len(all) == len(want) {
							got <- all
						}
					}
					dialler.Loops()[0].Dial(addr, waitLimit, s)
				})
				if b := recv(t, got, "the echo"); !bytes.Equal(b, want) {
					t.Errorf("%s, TLS %t: other bytes came back", addr, secure)
				}
				if remote := recv(t, remotes, "the peer"); remote != loop.UnixPeer {
					t.Errorf("the peer is %q", remote)
				}
			}
			if n := e.Stats().Inbound; n != 2 {
				t.Errorf("%d connections", n)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestUnixDetach: a connection of a Unix socket leaves its loop with its peer's name.
func TestUnixDetach(t *testing.T) {
	addr := unixAddrs(t)[0]
	e := start(t, Options{})
	socks := make(chan loop.Socket, 1)
	_, err := e.Listen(addr, ListenOptions{}, func(loop.Loop, string) loop.Receiver {
		var conn loop.Conn
		return &stream{open: func(c loop.Conn) { conn = c }, data: func([]byte) {
			s, err := conn.Detach()
			if err != nil {
				t.Error(err)
			}
			socks <- s
		}}
	})
	if err != nil {
		t.Fatal(err)
	}
	sock, err := e.SocketDialer().Dial(t.Context(), addr, "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	must.Write(t, sock, "a")
	far := recv(t, socks, "the socket")
	defer far.Close()
	if remote := far.(net.Conn).RemoteAddr().String(); remote != loop.UnixPeer {
		t.Errorf("the peer is %q", remote)
	}
	if _, ok := far.(interface{ NetConn() net.Conn }).NetConn().(*net.UnixConn); !ok {
		t.Error("no Unix socket below")
	}
	must.Write(t, far, "b")
	if err := far.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(sock); string(b) != "b" || err != nil {
		t.Errorf("%q, %v", b, err)
	}
}

// TestUnixFullBacklog: a dial waits while the backlog of a Unix socket is full, and fails at its
// timeout.
func TestUnixFullBacklog(t *testing.T) {
	addr := unixAddrs(t)[0]
	path := strings.TrimPrefix(addr, "unix:")
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil { // room for one
		t.Fatal(err)
	}
	must.Dial(t, "unix", path)
	e := start(t, Options{})
	opened, closed := make(chan error, 1), make(chan error, 2)
	dial := func(timeout time.Duration) {
		on(t, e.Loops()[0], func() {
			e.Loops()[0].Dial(addr, timeout, &stream{
				open: func(c loop.Conn) { opened <- nil; c.Close() }, close: func(err error) { closed <- err },
			})
		})
	}
	dial(20 * time.Millisecond)
	if err := recv(t, closed, "the dial to fail"); err != unix.ETIMEDOUT && err != unix.EAGAIN {
		t.Errorf("the dial failed with %v", err)
	}
	eventually(t, func() error { // a last try must not take the room of the next dial
		if n := e.dialer.busy(); n > 0 {
			return fmt.Errorf("%d goroutines dial", n)
		}
		return nil
	})
	dial(waitLimit)
	nfd, _, err := unix.Accept(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(nfd)
	recv(t, opened, "the dial to succeed")
	recv(t, closed, "the connection to close")
}

// TestUnixRefused: a dial to a Unix socket at which nobody listens fails at once.
func TestUnixRefused(t *testing.T) {
	addr := unixAddrs(t)[0]
	l := start(t, Options{}).loops[0]
	closed := make(chan error, 1)
	dial := func(want error) {
		t.Helper()
		on(t, l, func() { l.Dial(addr, waitLimit, &stream{close: func(err error) { closed <- err }}) })
		if err := recv(t, closed, "the dial to fail"); err != want {
			t.Errorf("the dial failed with %v, want %v", err, want)
		}
	}
	dial(unix.ENOENT)
	ln := must.ListenOn(t, "unix", strings.TrimPrefix(addr, "unix:")).(*net.UnixListener)
	ln.SetUnlinkOnClose(false)
	ln.Close()
	dial(unix.ECONNREFUSED)
}

// TestUnixPeerCloses: nothing reaches a peer that has closed its Unix socket, so the connection ends, and OnEnd is not called.
func TestUnixPeerCloses(t *testing.T) {
	addr := unixAddrs(t)[0]
	e := start(t, Options{})
	opened, closed := make(chan struct{}), make(chan error, 1)
	if _, err := e.Listen(addr, ListenOptions{}, func(loop.Loop, string) loop.Receiver {
		s := &halfOpen{end: func() { t.Error("OnEnd") }}
		s.open = func(loop.Conn) { close(opened) }
		s.close = func(err error) { closed <- err }
		return s
	}); err != nil {
		t.Fatal(err)
	}
	peer := must.Dial(t, "unix", strings.TrimPrefix(addr, "unix:"))
	recv(t, opened, "the connection")
	peer.Close()
	if err := recv(t, closed, "the end"); err != io.EOF {
		t.Errorf("OnClose(%v)", err)
	}
}

// TestUnixAllButOneByte: a single byte that the kernel does not take is kept.
func TestUnixAllButOneByte(t *testing.T) {
	l := start(t, Options{}).loops[0]
	// write returns how many bytes of a write to a new socket reach the other end, whose buffer is empty, and how many are kept.
	write := func(size int) (taken, kept int) {
		ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err := errors.Join(err, unix.SetNonblock(ends[0], true), unix.SetNonblock(ends[1], true)); err != nil {
			t.Fatal(err)
		}
		defer unix.Close(ends[1])
		d := &descriptor{loop: l, fd: ends[0]}
		on(t, l, func() {
			defer d.close()
			if err := d.watch(ignored{}, kernel.Input); err != nil {
				t.Error(err)
			}
			if errno := d.write(make([]byte, size)); errno != 0 {
				t.Error(errno)
			}
			kept = d.buffered()
		})
		in := make([]byte, size)
		for n, errno := 1, syscall.Errno(0); n > 0 && errno == 0; {
			n, errno = kernel.Receive(ends[1], in)
			taken += max(n, 0)
		}
		return taken, kept
	}
	most, _ := write(8 << 20)
	if taken, kept := write(most + 1); taken != most || kept != 1 {
		t.Errorf("of %d bytes %d are taken, and %d kept", most+1, taken, kept)
	}
}

// TestPassedDescriptor: a read stops at a descriptor, which is dropped. Another read follows, of a connection that was accepted and of a
// connection that was dialled.
func TestPassedDescriptor(t *testing.T) {
	got := make(chan string, 10)
	s := &stream{data: func(b []byte) { got <- string(b) }}
	addr := unixAddrs(t)[0]
	path := strings.TrimPrefix(addr, "unix:")
	t.Run("accepted", func(t *testing.T) {
		e := start(t, Options{})
		if _, err := e.Listen(addr, ListenOptions{}, func(loop.Loop, string) loop.Receiver { return s }); err != nil {
			t.Fatal(err)
		}
		passDescriptor(t, e, must.Dial(t, "unix", path), got)
	})
	t.Run("dialled", func(t *testing.T) {
		e := start(t, Options{})
		ln := must.ListenOn(t, "unix", path)
		defer ln.Close()
		on(t, e.loops[0], func() { e.loops[0].Dial(addr, waitLimit, s) })
		c, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		passDescriptor(t, e, c, got)
	})
}

// passDescriptor sends bytes and a descriptor on c, whose other end sends what it reads to got.
func passDescriptor(t *testing.T, e *Reactor, c net.Conn, got chan string) {
	t.Helper()
	must.Write(t, c, "1")
	recv(t, got, "the first input")
	release := holdLoop(e.loops[0])
	_, first := io.WriteString(c, "abc")
	_, _, passing := c.(*net.UnixConn).WriteMsgUnix([]byte("def"), unix.UnixRights(int(os.Stdin.Fd())), nil)
	_, last := io.WriteString(c, "ghi")
	if err := errors.Join(first, passing, last); err != nil {
		t.Fatal(err)
	}
	close(release)
	for all := ""; all != "abcdefghi"; all += recv(t, got, "the rest of the input") {
	}
}

// TestPassedDescriptorTLS: a read of a ClientHello that stops at a descriptor is not the last one.
func TestPassedDescriptorTLS(t *testing.T) {
	own := NewIdentity(t)
	e := start(t, Options{})
	addr := unixAddrs(t)[0]
	l, err := e.Listen(addr, ListenOptions{TLS: own.Server}, func(loop.Loop, string) loop.Receiver { return echo() })
	if err != nil {
		t.Fatal(err)
	}
	hello := clientHello(t, own)
	c := must.Dial(t, "unix", strings.TrimPrefix(addr, "unix:"))
	must.Write(t, c, hello[:10])
	awaitNewcomers(t, l, 1)
	release := holdLoop(e.loops[0])
	_, first := c.Write(hello[10:20])
	_, _, passing := c.(*net.UnixConn).WriteMsgUnix(hello[20:30], unix.UnixRights(int(os.Stdin.Fd())), nil)
	_, last := c.Write(hello[30:])
	close(release)
	if err := errors.Join(first, passing, last); err != nil {
		t.Fatal(err)
	}
	awaitWaiting(t, e, 1)
}
