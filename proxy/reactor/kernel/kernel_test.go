package kernel

import (
	"errors"
	"fmt"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/eventually"
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

// TestTimer: the descriptor of a Timer is readable once the time has come, and after Fire.
func TestTimer(t *testing.T) {
	for _, c := range []struct {
		name  string
		start func(timer *Timer, now time.Duration) error
		fires bool
	}{
		{"not set", func(*Timer, time.Duration) error { return nil }, false},
		{"set to an hour later", func(x *Timer, now time.Duration) error { return x.Set(now + time.Hour) }, false},
		{"set to a moment later", func(x *Timer, now time.Duration) error { return x.Set(now + time.Millisecond) }, true},
		{"set to the past", func(x *Timer, now time.Duration) error { return x.Set(now - time.Second) }, true},
		{"set to an hour later, and fired", func(x *Timer, now time.Duration) error { x.Fire(); return nil }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			timer, carrier, err := NewTimer()
			if err != nil {
				t.Fatal(err)
			}
			defer carrier.Close()
			now, err := Monotonic()
			if err == nil {
				err = c.start(timer, now)
			}
			if err != nil {
				t.Fatal(err)
			}
			wait := 10 // a timer that must not fire is given this many milliseconds to do it
			if c.fires {
				wait = 60_000
			}
			n := onFD(t, carrier, func(fd int) (int, error) {
				return unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, wait)
			})
			if (n > 0) != c.fires {
				t.Errorf("readable: %v, want %v", n > 0, c.fires)
			}
			if err := timer.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSocket: the queues and counters of a TCP connection.
func TestSocket(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	a, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
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
