package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/internal/freeport"
	"github.com/remora-proxy/remora/internal/must"
)

// waitLimit is how long a test waits for bytes before it fails.
const waitLimit = time.Minute

// pair returns two connected sockets, whose calls wait. The test closes them.
func pair(t *testing.T) (a, b int) {
	t.Helper()
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = unix.Close(ends[0]), unix.Close(ends[1]) })
	return ends[0], ends[1]
}

// duplicate returns a descriptor of the socket of c, which the test closes.
func duplicate(t *testing.T, c any) int {
	t.Helper()
	fd, err := Duplicate(c.(syscall.Conn))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Close(fd) })
	return fd
}

// checkFlags checks that a descriptor doesn't block, and that programs that the test starts don't get it.
func checkFlags(t *testing.T, what string, fd int) {
	t.Helper()
	status, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	flags, failed := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
	if err := errors.Join(err, failed); err != nil || status&unix.O_NONBLOCK == 0 || flags&unix.FD_CLOEXEC == 0 {
		t.Errorf("%s: status %x, flags %x, %v", what, status, flags, err)
	}
}

// TestDuplicate: the duplicate of a socket stays when the socket is closed, and Conn makes another one.
func TestDuplicate(t *testing.T) {
	ln := must.Listen(t)
	a := must.Dial(t, "tcp", ln.Addr().String())
	_ = a.SetReadDeadline(time.Now().Add(waitLimit))
	b, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := Duplicate(b.(syscall.Conn))
	if err != nil {
		t.Fatal(err)
	}
	checkFlags(t, "the duplicate", fd)
	b.Close()
	c, err := Conn(fd)
	if err != nil {
		t.Fatal(err)
	}
	_ = unix.Close(fd)
	must.Write(t, c, "four")
	if got := must.Read(t, a, 4); string(got) != "four" {
		t.Errorf("got %q", got)
	}
	c.Close()
	if n, err := a.Read(make([]byte, 1)); n != 0 || err != io.EOF { // no descriptor is left
		t.Errorf("after the end: %d bytes, %v", n, err)
	}
	if c, err := Conn(-1); c != nil || !errors.Is(err, unix.EBADF) {
		t.Errorf("of no socket: %v, %v", c, err)
	}
	for name, of := range map[string]syscall.Conn{"closed": b.(syscall.Conn), "not open": &net.TCPConn{}} {
		if fd, err := Duplicate(of); fd != -1 || err == nil {
			t.Errorf("of a connection that is %s: %d, %v", name, fd, err)
		}
	}
}

// TestAcceptAll: no more connections than asked for are accepted, each with the address of its client.
func TestAcceptAll(t *testing.T) {
	for _, c := range []struct{ network, addr string }{
		{"tcp", "127.0.0.1:0"}, {"tcp", "[::1]:0"}, {"unix", filepath.Join(t.TempDir(), "s")},
	} {
		ln, err := net.Listen(c.network, c.addr)
		if err != nil {
			t.Logf("%s: %v", c.addr, err) // a host without IPv6
			continue
		}
		defer ln.Close()
		var clients []net.Conn
		for range 3 {
			client := must.Dial(t, c.network, ln.Addr().String())
			_ = client.SetReadDeadline(time.Now().Add(waitLimit))
			clients = append(clients, client)
		}
		fd, accepted := duplicate(t, ln), 0
		acceptAll := func(most int) {
			n := 0
			errno := AcceptAll(fd, most, func(fd int, from netip.AddrPort) {
				defer unix.Close(fd)
				checkFlags(t, c.addr, fd)
				n++
				if _, err := unix.Write(fd, []byte(from.String())); err != nil {
					t.Error(err)
				}
			})
			want := syscall.Errno(0)
			if n < most {
				want = unix.EAGAIN
			}
			if errno != want || n > most {
				t.Errorf("%s, at most %d: %v after %d, want %v", c.addr, most, errno, n, want)
			}
			accepted += n
		}
		acceptAll(0)
		eventually.True(t, "two connections", func() bool { // they may arrive after their dials end
			acceptAll(2 - accepted)
			return accepted >= 2
		})
		eventually.True(t, "the third connection", func() bool {
			acceptAll(5)
			return accepted >= len(clients)
		})
		if acceptAll(1); accepted != len(clients) {
			t.Errorf("%s: accepted %d connections", c.addr, accepted)
		}
		for _, client := range clients {
			want := netip.AddrPort{}
			if at, ok := client.LocalAddr().(*net.TCPAddr); ok {
				want = at.AddrPort()
			}
			if got, err := io.ReadAll(client); string(got) != want.String() || err != nil {
				t.Errorf("%s: from %s, want %s (%v)", c.addr, got, want, err)
			}
		}
	}
	if fd, from, errno := Accept(-1); fd != -1 || from.IsValid() || errno != unix.EBADF {
		t.Errorf("at no socket: %d, %s, %v", fd, from, errno)
	}
}

// TestGone: a peer is gone when both directions have ended, and not before.
func TestGone(t *testing.T) {
	a, b := pair(t)
	for _, step := range []struct {
		name string
		do   func() error
		want bool
	}{
		{"new", func() error { return nil }, false},
		{"input", func() error { _, err := unix.Write(b, []byte("x")); return err }, false},
		{"end of input", func() error { return unix.Shutdown(b, unix.SHUT_WR) }, false},
		{"end of both", func() error { return unix.Shutdown(b, unix.SHUT_RD) }, true},
	} {
		if err := step.do(); err != nil {
			t.Fatal(err)
		}
		if got := Gone(a); got != step.want {
			t.Errorf("%s: gone %t", step.name, got)
		}
	}
	ln := must.Listen(t)
	client := must.Dial(t, "tcp", ln.Addr().String())
	server, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	fd := duplicate(t, server)
	_ = client.(*net.TCPConn).SetLinger(0)
	client.Close()
	eventually.True(t, "the reset", func() bool { return Gone(fd) })
	if Gone(1 << 20) {
		t.Error("the peer of no socket is")
	}
}

// TestHasInput: bytes and their end are input.
func TestHasInput(t *testing.T) {
	a, b := pair(t)
	if HasInput(a) {
		t.Error("a new socket has")
	}
	if n, errno := Send(b, []byte("x")); n != 1 || errno != 0 || !HasInput(a) {
		t.Errorf("a socket with a byte has not, %v", errno)
	}
	if n, errno := Receive(a, make([]byte, 2)); n != 1 || errno != 0 || HasInput(a) {
		t.Errorf("a socket whose byte was read has, %v", errno)
	}
	if err := unix.Shutdown(b, unix.SHUT_WR); err != nil || !HasInput(a) {
		t.Errorf("a socket whose input has ended has not, %v", err)
	}
}

// TestReceive: neither direction waits, of many bytes some are taken, and the end is 0 bytes.
func TestReceive(t *testing.T) {
	a, b := pair(t)
	if err := unix.SetsockoptInt(b, unix.SOL_SOCKET, unix.SO_SNDBUF, 64<<10); err != nil {
		t.Fatal(err)
	}
	if n, errno := Receive(a, make([]byte, 1)); n > 0 || errno != unix.EAGAIN {
		t.Errorf("of nothing: %d bytes, %v", n, errno)
	}
	all := bytes.Repeat([]byte("0123456789abcdef"), 1<<16) // more than the kernel takes
	for _, send := range []func() (int, syscall.Errno){
		func() (int, syscall.Errno) { return Send(b, all) },
		func() (int, syscall.Errno) { return SendParts(b, [][]byte{all[:3], all[3:]}) },
	} {
		sent, errno := send()
		if sent <= 0 || sent >= len(all) || errno != 0 {
			t.Fatalf("sent %d bytes, %v", sent, errno)
		}
		for { // the kernel may take more in small pieces
			if n, errno := Send(b, []byte("x")); errno == unix.EAGAIN {
				break
			} else if n != 1 || errno != 0 {
				t.Fatalf("sent %d bytes, %v", n, errno)
			}
		}
		if n, errno := SendParts(b, [][]byte{{1}}); n > 0 || errno != unix.EAGAIN {
			t.Errorf("sent %d bytes more, %v", n, errno)
		}
		var got []byte
		for block := make([]byte, 1<<20); ; {
			n, errno := Receive(a, block)
			if errno == unix.EAGAIN {
				break
			}
			if n <= 0 || errno != 0 {
				t.Fatalf("received %d bytes, %v", n, errno)
			}
			got = append(got, block[:n]...)
		}
		if len(got) < sent || !bytes.Equal(got[:sent], all[:sent]) {
			t.Errorf("received %d bytes of %d, or others", len(got), sent)
		}
	}
	if err := unix.Shutdown(b, unix.SHUT_WR); err != nil {
		t.Fatal(err)
	}
	if n, errno := Receive(a, make([]byte, 1)); n != 0 || errno != 0 {
		t.Errorf("at the end: %d bytes, %v", n, errno)
	}
	if _, errno := Send(b, []byte("x")); errno != unix.EPIPE {
		t.Errorf("after the end: %v", errno)
	}
}

// TestConnect: a connect does not wait, and Connected says how it has ended.
func TestConnect(t *testing.T) {
	for _, network := range []string{"127.0.0.1:0", "[::1]:0"} {
		ln, err := net.Listen("tcp", network)
		if err != nil {
			t.Logf("%s: %v", network, err) // a host without IPv6
			continue
		}
		to := ln.Addr().(*net.TCPAddr).AddrPort()
		fd, err := Connect(to)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		checkFlags(t, network, fd)
		if sa, err := unix.Getsockname(fd); err != nil {
			t.Error(err)
		} else if _, is4 := sa.(*unix.SockaddrInet4); is4 != to.Addr().Is4() { // a host may lack one of the versions
			t.Errorf("%s: connected by a socket of the other version", network)
		}
		eventually.Nil(t, "the connect", func() error { return Connected(fd, to) })
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if at := nc.RemoteAddr().(*net.TCPAddr).AddrPort(); at != localAddr(fd) || !IsLoopback(fd) {
			t.Errorf("connected from %s, not from %s", at, localAddr(fd))
		}
		nc.Close()
		ln.Close()
	}
	addr, release, err := freeport.Refusing()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	to := netip.MustParseAddrPort(addr)
	if fd, err := Connect(to); err == nil {
		defer unix.Close(fd)
		eventually.Nil(t, "the refusal", func() error {
			if err := Connected(fd, to); !errors.Is(err, unix.ECONNREFUSED) {
				return fmt.Errorf("got %w", err)
			}
			return nil
		})
	} else if !errors.Is(err, unix.ECONNREFUSED) {
		t.Error(err)
	}
	fd, err := newSocket(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := Connected(fd, netip.MustParseAddrPort("127.0.0.1:1")); !errors.Is(err, unix.EINPROGRESS) {
		t.Errorf("before the end: %v", err)
	}
	if err := Connected(-1, netip.AddrPort{}); !errors.Is(err, unix.EBADF) {
		t.Errorf("of no socket: %v", err)
	}
}

// TestFailedConnectIsClosed: a connect that fails at once leaves no descriptor.
func TestFailedConnectIsClosed(t *testing.T) {
	next := func() int {
		fd, err := newSocket(unix.AF_INET)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		return fd
	}
	const calls = 50 // other descriptors of the process may come and go
	before := next()
	for range calls {
		if fd, err := Connect(netip.MustParseAddrPort("255.255.255.255:1")); fd != -1 || err == nil { // TCP has no broadcast
			t.Fatalf("descriptor %d, %v", fd, err)
		}
	}
	if after := next(); after >= before+calls {
		t.Errorf("descriptor %d follows %d", after, before)
	}
}

// TestStreamOptions: a socket has the options that were set. An option that the socket can't have is an error.
func TestStreamOptions(t *testing.T) {
	fd, err := newSocket(unix.AF_INET)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	get := func(level, name int) int {
		v, err := unix.GetsockoptInt(fd, level, name)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	if err := SetStreamOptions(fd, 42*time.Second, 5); err != nil {
		t.Fatal(err)
	}
	got := [...]int{
		get(unix.IPPROTO_TCP, unix.TCP_NODELAY), get(unix.SOL_SOCKET, unix.SO_KEEPALIVE), get(unix.IPPROTO_TCP, KeepAliveTime),
		get(unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), get(unix.IPPROTO_TCP, unix.TCP_KEEPCNT),
	}
	if want := [...]int{1, 1, 42, 42, 5}; got != want {
		t.Errorf("options %v, want %v", got, want)
	}
	for _, on := range []bool{true, false} {
		if err := SharePort(fd, on); err != nil || (get(unix.SOL_SOCKET, unix.SO_REUSEPORT) != 0) != on {
			t.Errorf("to share the port %t: %v", on, err)
		}
	}
	a, _ := pair(t)
	if err := errors.Join(SetStreamOptions(a, time.Second, 1)); err == nil {
		t.Error("a Unix socket has options of TCP")
	}
	if err := SharePort(-1, true); !errors.Is(err, unix.EBADF) {
		t.Errorf("no socket: %v", err)
	}
}
