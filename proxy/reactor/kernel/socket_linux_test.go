package kernel

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/redirecttest"
)

// TestSendParts: a call sends at most MaxParts parts.
func TestSendParts(t *testing.T) {
	all := make([][]byte, MaxParts+1)
	for i := range all {
		all[i] = bytes.Repeat([]byte{byte('a' + i)}, i+1)
	}
	const most = MaxParts * (MaxParts + 1) / 2
	for parts, want := range map[int]int{1: 1, 3: 6, MaxParts: most, MaxParts + 1: most} {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err != nil {
			t.Fatal(err)
		}
		n, errno := SendParts(pair[0], all[:parts])
		got := make([]byte, 1<<10)
		k, err := unix.Read(pair[1], got)
		if want := bytes.Join(all[:parts], nil)[:want]; errno != 0 || err != nil || n != len(want) || !bytes.Equal(got[:k], want) {
			t.Errorf("%d parts: %d and %v, received %q and %v, want %q", parts, n, errno, got[:k], err, want)
		}
		_, _ = unix.Close(pair[0]), unix.Close(pair[1])
	}
}

// TestSocketAddress: the address that the kernel writes for each family.
func TestSocketAddress(t *testing.T) {
	port := [2]byte{0x12, 0x34} // in network order
	for _, c := range []struct {
		sa   any
		want string
	}{
		{unix.RawSockaddrInet4{Family: unix.AF_INET, Port: binary.NativeEndian.Uint16(port[:]), Addr: [4]byte{192, 0, 2, 1}}, "192.0.2.1:4660"},
		{unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: binary.NativeEndian.Uint16(port[:]), Addr: netip.MustParseAddr("2001:db8::1").As16(), Scope_id: 3}, "[2001:db8::1]:4660"},
		{unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: binary.NativeEndian.Uint16(port[:]), Addr: netip.MustParseAddr("fe80::1").As16(), Scope_id: 3}, "[fe80::1%3]:4660"},
		{unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: binary.NativeEndian.Uint16(port[:]), Addr: netip.MustParseAddr("::ffff:192.0.2.1").As16()}, "192.0.2.1:4660"},
		{unix.RawSockaddrUnix{Family: unix.AF_UNIX}, ""},
	} {
		var sa unix.RawSockaddrAny
		switch from := c.sa.(type) {
		case unix.RawSockaddrInet4:
			*(*unix.RawSockaddrInet4)(unsafe.Pointer(&sa)) = from
		case unix.RawSockaddrInet6:
			*(*unix.RawSockaddrInet6)(unsafe.Pointer(&sa)) = from
		case unix.RawSockaddrUnix:
			*(*unix.RawSockaddrUnix)(unsafe.Pointer(&sa)) = from
		}
		want, _ := netip.ParseAddrPort(c.want)
		if got := addrPort(&sa); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestEpollEvents: each flag of epoll says what a session must do.
func TestEpollEvents(t *testing.T) {
	for flags, want := range map[uint32]Events{
		0: 0, unix.EPOLLIN: Input, unix.EPOLLOUT: Output, unix.EPOLLPRI: All, unix.EPOLLRDHUP: Input | All, unix.EPOLLHUP: Input | All,
		unix.EPOLLERR: Input | All, unix.EPOLLIN | unix.EPOLLOUT: Input | Output, unix.EPOLLIN | unix.EPOLLPRI: Input | All,
		unix.EPOLLOUT | unix.EPOLLERR: Input | Output | All,
	} {
		if got := EpollEvents(flags); got != want {
			t.Errorf("%x: events %b, want %b", flags, got, want)
		}
	}
}

// TestQuestionsDoNotWait: the thread of a loop that asks about a socket does not sleep.
func TestQuestionsDoNotWait(t *testing.T) {
	a, _ := pair(t)
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for name, ask := range map[string]func(int) bool{"Gone": Gone, "HasInput": HasInput} {
		const calls = 200
		var before, after unix.Rusage
		err := unix.Getrusage(unix.RUSAGE_THREAD, &before)
		for range calls {
			ask(a)
		}
		if err := errors.Join(err, unix.Getrusage(unix.RUSAGE_THREAD, &after)); err != nil {
			t.Fatal(err)
		}
		if slept := after.Nvcsw - before.Nvcsw; slept > calls/2 {
			t.Errorf("%s: slept %d times in %d calls", name, slept, calls)
		}
	}
}

// TestNoCounters: a Unix socket has no counters of TCP, and a connection that was not redirected no original destination.
func TestNoCounters(t *testing.T) {
	a, _ := pair(t)
	if c, err := TCPCounters(a); c != (Counters{}) || err == nil {
		t.Errorf("%+v, %v", c, err)
	}
	for name, ask := range map[string]func(int) (netip.AddrPort, error){"IPv4": OriginalDst4, "IPv6": OriginalDst6} {
		if to, err := ask(a); to.IsValid() || err == nil {
			t.Errorf("%s: %s, %v", name, to, err)
		}
	}
}

// TestOriginalDestination: a connection that the kernel redirects has the destination to which its client has connected. The
// test needs root and iptables, to redirect in a network of its own.
func TestOriginalDestination(t *testing.T) {
	for _, c := range []struct {
		tables, host string
		ask          func(int) (netip.AddrPort, error)
	}{{"iptables", "127.0.0.1", OriginalDst4}, {"ip6tables", "::1", OriginalDst6}} {
		t.Run(c.tables, func(t *testing.T) {
			host := netip.MustParseAddr(c.host)
			original, here := netip.AddrPortFrom(host, 0x1234), netip.AddrPortFrom(host, 0x5678) // the bytes of each port differ
			redirecttest.Redirect(t, c.tables, original.Port(), here.Port())
			family, sa := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{Addr: host.As16(), Port: int(here.Port())})
			if host.Is4() {
				family, sa = unix.AF_INET, &unix.SockaddrInet4{Addr: host.As4(), Port: int(here.Port())}
			}
			ln, err := newSocket(family)
			if err == nil {
				defer unix.Close(ln)
				err = errors.Join(unix.Bind(ln, sa), unix.Listen(ln, 1))
			}
			if host.Is6() {
				redirecttest.SkipWithoutIPv6(t, err)
			}
			if err != nil {
				t.Fatal(err)
			}
			client, err := Connect(original)
			if err != nil {
				t.Fatal(err)
			}
			defer unix.Close(client)
			eventually.Nil(t, "the connection", func() error {
				fd, _, errno := Accept(ln)
				if errno != 0 {
					return errno
				}
				defer unix.Close(fd)
				if to, err := c.ask(fd); to != original || err != nil {
					t.Errorf("the original destination is %s, %v; want %s", to, err, original)
				}
				return nil
			})
		})
	}
}
