package reactor

import (
	"errors"
	"net"
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/proxy/reactor/backlogtest"
)

func isReset(err error) bool { return errors.Is(err, syscall.ECONNRESET) }

// blackhole returns an address where the kernel drops every SYN, because the backlog of
// its listener is full.
func blackhole(t testing.TB) string {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	port := sa.(*unix.SockaddrInet4).Port
	// A backlog of 0 holds one connection.
	filler, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(filler) })
	if err := unix.Connect(filler, sa); err != nil {
		t.Fatal(err)
	}
	backlogtest.Await(t, fd, 1)
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
}

// refusingAddr returns an address that refuses connections until the end of the test.
func refusingAddr(t testing.TB) string {
	t.Helper()
	addr, release, err := freeport.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return addr
}
