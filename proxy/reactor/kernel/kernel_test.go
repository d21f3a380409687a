package kernel

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/must"
)

// onFD calls f with the descriptor of a connection.
func onFD[T any](t *testing.T, c net.Conn, f func(fd int) (T, error)) (v T) {
	t.Helper()
	raw, err := c.(interface {
		SyscallConn() (syscall.RawConn, error)
	}).SyscallConn()
	if err == nil {
		var failed error
		err = errors.Join(raw.Control(func(fd uintptr) { v, failed = f(int(fd)) }), failed)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestSocket: the queues and counters of a TCP connection.
func TestSocket(t *testing.T) {
	ln := must.Listen(t)
	a := must.Dial(t, "tcp", ln.Addr().String())
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	n := onFD(t, a, func(fd int) (int, error) {
		n, errno := Send(fd, []byte("four"))
		if errno != 0 {
			return n, errno
		}
		return n, nil
	})
	if n != 4 {
		t.Errorf("sent %d bytes", n)
	}
	eventually.Nil(t, "the bytes to arrive", func() error {
		unread, left, unsent := onFD(t, b, Unread), onFD(t, a, Unacknowledged), onFD(t, a, Unsent)
		from, to := onFD(t, a, TCPCounters), onFD(t, b, TCPCounters)
		if unread != 4 || left != 0 || unsent != 0 || from.Acknowledged < 4 || to.Received != 4 || from.Closed || to.Closed {
			return fmt.Errorf("%d unread, %d unacknowledged, %d unsent; %+v, %+v", unread, left, unsent, from, to)
		}
		return nil
	})
	_ = a.(*net.TCPConn).SetLinger(0)
	a.Close()
	eventually.Nil(t, "the reset", func() error {
		if c := onFD(t, b, TCPCounters); !c.Closed {
			return fmt.Errorf("%+v", c)
		}
		return nil
	})
	if n := onFD(t, b, func(fd int) (int, error) { // of a connection that was reset
		_, errno := Send(fd, []byte("four"))
		return int(errno), nil
	}); n == 0 {
		t.Error("sent after a reset")
	}
}

// TestConnectedToItself: a socket that has connected to itself is not connected.
func TestConnectedToItself(t *testing.T) {
	fd, err := newSocket(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Connect(fd, own); err != nil && !errors.Is(err, unix.EINPROGRESS) {
		t.Fatal(err)
	}
	eventually.Nil(t, "the connect to end", func() error {
		at := own.(*unix.SockaddrInet4)
		to := netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
		if err := Connected(fd, to); !errors.Is(err, unix.ECONNREFUSED) {
			return fmt.Errorf("it ended with %v", err)
		}
		return nil
	})
}

// TestIsLoopback: a connection to this host is on loopback. One whose address is not known is not.
func TestIsLoopback(t *testing.T) {
	ln := must.Listen(t)
	c := must.Dial(t, "tcp", ln.Addr().String())
	if !onFD(t, c, func(fd int) (bool, error) { return IsLoopback(fd), nil }) {
		t.Error("a connection to this host is not")
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	if IsLoopback(pair[0]) {
		t.Error("a Unix socket is")
	}
	_, _ = unix.Close(pair[0]), unix.Close(pair[1])
}

// TestWithZone: an address of a link has the interface, and no other address has.
func TestWithZone(t *testing.T) {
	for addr, want := range map[string]string{"fe80::1": "fe80::1%7", "2001:db8::1": "2001:db8::1", "::1": "::1", "169.254.0.1": "169.254.0.1"} {
		if got := withZone(netip.MustParseAddr(addr), 7).String(); got != want {
			t.Errorf("%s: %s, want %s", addr, got, want)
		}
	}
}
