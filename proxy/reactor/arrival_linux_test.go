package reactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/syncbuffer"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor/kernel"
)

// inherited returns a listener on the descriptor of ln, as in a process that takes ln over.
func inherited(t *testing.T, ln net.Listener) net.Listener {
	t.Helper()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	defer ln.Close()
	got, err := net.FileListener(f)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// TestKeepAlive: accepted connections have keep-alive probes and TCP_NODELAY, whatever
// opened their listening socket.
func TestKeepAlive(t *testing.T) {
	bound := func(t *testing.T) net.Listener {
		ln, err := Bind("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	bare := func(t *testing.T) net.Listener {
		lc := net.ListenConfig{KeepAlive: -1}
		ln, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return ln
	}
	cases := []struct {
		name   string
		listen func(t *testing.T) net.Listener
	}{
		{"bound", bound},
		{"bound, without options", bare},
		{"inherited", func(t *testing.T) net.Listener { return inherited(t, bound(t)) }},
		{"inherited, without options", func(t *testing.T) net.Listener { return inherited(t, bare(t)) }},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			var log syncbuffer.Buffer
			e := start(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
			fds := make(chan int, 1)
			l, err := e.Serve(c.listen(t), ListenOptions{}, func(loop.Loop, string) loop.Receiver {
				return &stream{open: func(c loop.Conn) { fds <- c.(*conn).fd }}
			})
			if err != nil {
				t.Fatal(err)
			}
			dial(t, l.Addr().String())
			fd := recv(t, fds, "the connection")
			for _, o := range []struct {
				name                string
				level, option, want int
			}{
				{"SO_KEEPALIVE", unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
				{"TCP_KEEPIDLE", unix.IPPROTO_TCP, kernel.KeepAliveTime, 15},
				{"TCP_KEEPINTVL", unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, 15},
				{"TCP_KEEPCNT", unix.IPPROTO_TCP, unix.TCP_KEEPCNT, 9},
				{"TCP_NODELAY", unix.IPPROTO_TCP, unix.TCP_NODELAY, 1},
			} {
				if got, err := unix.GetsockoptInt(fd, o.level, o.option); err != nil || got != o.want {
					t.Errorf("%s is %d, want %d; %v", o.name, got, o.want, err)
				}
			}
			if s := log.String(); s != "" {
				t.Errorf("log: %s", s)
			}
		})
	}
}

// TestPlainTCP: the sockets of listeners and of dials are plain TCP, whatever the Go runtime's default is.
func TestPlainTCP(t *testing.T) {
	t.Setenv("GODEBUG", "multipathtcp=1")
	e := start(t, Options{})
	ln, err := Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	sock, err := e.SocketDialer().Dial(t.Context(), ln.Addr().String(), "", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer sock.Close()
	for name, c := range map[string]any{"bound": ln, "dialled": sock.(interface{ NetConn() net.Conn }).NetConn()} {
		raw, err := c.(syscall.Conn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := onSocket(raw, func(fd int) error {
			protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
			if protocol != unix.IPPROTO_TCP {
				t.Errorf("%s: the protocol is %d", name, protocol)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
}

// TestKeepAliveInTheBacklog: connections that waited in the backlog have keep-alive too.
func TestKeepAliveInTheBacklog(t *testing.T) {
	ln, err := Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	dial(t, ln.Addr().String())
	fds := make(chan int, 1)
	if _, err := start(t, Options{}).Serve(ln, ListenOptions{}, func(loop.Loop, string) loop.Receiver {
		return &stream{open: func(c loop.Conn) { fds <- c.(*conn).fd }}
	}); err != nil {
		t.Fatal(err)
	}
	fd := recv(t, fds, "the connection")
	if on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE); err != nil || on != 1 {
		t.Errorf("SO_KEEPALIVE is %d, %v", on, err)
	}
	if idle, err := unix.GetsockoptInt(fd, unix.IPPROTO_TCP, kernel.KeepAliveTime); err != nil || idle != 15 {
		t.Errorf("TCP_KEEPIDLE is %d, %v", idle, err)
	}
}

// TestArrivalFailure: an accepted connection that its loop can't watch releases its reservation and
// no longer counts in load.
func TestArrivalFailure(t *testing.T) {
	for _, transparent := range []bool{false, true} {
		e := start(t, Options{MaxPerSource: 2})
		o := ListenOptions{MaxConnections: 2}
		if transparent {
			o.Transparent = &Transparent{Wait: waitLimit}
		}
		l := listenEcho(t, e, o)
		fd, err := unix.Open(os.Args[0], unix.O_RDONLY|unix.O_CLOEXEC, 0) // epoll refuses files
		if err != nil {
			t.Fatal(err)
		}
		on(t, e.loops[0], func() { l.onAccept(e.loops[0], fd, netip.MustParseAddrPort("192.0.2.1:1")) })
		eventually(t, func() error {
			if n := e.Stats().AcceptErrors; n != 1 {
				return fmt.Errorf("%d failed", n)
			}
			return nil
		})
		e.wantReserved(t, 0, 0)
		if load, room := e.loops[0].load.Load(), l.limit.taken.Load(); load != 0 || room != 0 {
			t.Errorf("the load is %d, %d have a place in the room", load, room)
		}
		ask(t, dial(t, l.Addr().String()), "still here")
	}
}

// TestStopWithArrivals: connections that wait for a busy loop arrive before it ends, so OnClose of
// each stream is called.
func TestStopWithArrivals(t *testing.T) {
	e := start(t, Options{})
	const n = 16
	closed := make(chan error, 2*n)
	addr := listen(t, e, ListenOptions{}, func() loop.Receiver {
		return &stream{close: func(err error) { closed <- err }}
	})
	entered, release := make(chan struct{}), make(chan struct{})
	e.loops[0].Post(func() { close(entered); <-release })
	recv(t, entered, "the loop to be busy")
	for range n {
		dial(t, addr)
	}
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
		defer cancel()
		stopped <- e.Stop(ctx)
	}()
	eventually(t, func() error {
		if e.ctx.Err() == nil {
			return errors.New("not yet stopping")
		}
		return nil
	})
	close(release)
	if err := recv(t, stopped, "Stop"); err != nil {
		t.Error(err)
	}
	for range n {
		if err := recv(t, closed, "a stream's end"); err != nil {
			t.Errorf("OnClose(%v)", err)
		}
	}
	if s := e.Stats(); len(closed) > 0 || s.Open != 0 || s.Inbound != 0 {
		t.Errorf("%d more ends, stats %+v", len(closed), s)
	}
}
