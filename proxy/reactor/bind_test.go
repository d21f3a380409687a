package reactor

import (
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestBindWildcards: the wildcard of IPv4 takes no connection of IPv6. That of IPv6, and no host,
// take both.
func TestBindWildcards(t *testing.T) {
	if ln, err := net.Listen("tcp6", "[::1]:0"); err != nil {
		t.Skip("no IPv6: ", err)
	} else {
		ln.Close()
	}
	for addr, both := range map[string]bool{"0.0.0.0:0": false, "[::]:0": true, ":0": true} {
		ln, err := Bind(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()
		port := strconv.Itoa(ln.Addr().(*net.TCPAddr).Port)
		for host, want := range map[string]bool{"127.0.0.1": true, "::1": both} {
			c, err := net.DialTimeout("tcp", net.JoinHostPort(host, port), waitLimit)
			if err == nil {
				c.Close()
			}
			if connected := err == nil; connected != want {
				t.Errorf("%s: a connection to %s: %t, want %t: %v", addr, host, connected, want, err)
			}
		}
	}
}

// bindBeside opens a socket at one address, and another at all addresses with the same port beside it.
func bindBeside(t *testing.T) (narrow, wide net.Listener) {
	t.Helper()
	for try := 0; ; try++ { // another process may have the port at another address
		narrow, err := Bind("127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		wide, err := BindWith("0.0.0.0:"+portOf(narrow), BindOptions{Beside: []net.Listener{narrow}})
		if err == nil {
			t.Cleanup(func() { narrow.Close(); wide.Close() })
			return narrow, wide
		}
		if narrow.Close(); try == 20 {
			t.Fatal(err)
		}
	}
}

func portOf(ln net.Listener) string { return strconv.Itoa(ln.Addr().(*net.TCPAddr).Port) }

// TestBindBeside: sockets whose addresses overlap each get their connections. Another socket has to name them.
func TestBindBeside(t *testing.T) {
	narrow, wide := bindBeside(t)
	for host, ln := range map[string]net.Listener{"127.0.0.1": narrow, "127.0.0.2": wide} {
		c := dial(t, net.JoinHostPort(host, portOf(narrow)))
		_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(waitLimit))
		accepted, err := ln.Accept()
		if err != nil {
			t.Fatalf("%s: %v", host, err)
		}
		if got, want := accepted.RemoteAddr().String(), c.LocalAddr().String(); got != want {
			t.Errorf("%s: a connection of %s, want that of %s", host, got, want)
		}
		accepted.Close()
	}
	for _, ln := range []net.Listener{narrow, wide} {
		raw, err := ln.(*net.TCPListener).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		if err := onSocket(raw, func(fd int) error {
			on, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT)
			if on != 0 {
				t.Errorf("%s shares its port", ln.Addr())
			}
			return err
		}); err != nil {
			t.Error(err)
		}
	}
	for _, host := range []string{"127.0.0.1", "0.0.0.0"} {
		addr := net.JoinHostPort(host, portOf(narrow))
		if ln, err := Bind(addr); err == nil {
			ln.Close()
			t.Errorf("another socket is open at %s", addr)
		}
	}
}

// TestBindBesideFails: a socket is not opened beside one that is closed.
func TestBindBesideFails(t *testing.T) {
	closed, err := Bind("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	if ln, err := BindWith("127.0.0.1:0", BindOptions{Beside: []net.Listener{closed}}); err == nil || ln != nil {
		t.Errorf("%v, %v", ln, err)
	}
}

// TestListenFails: an address at which no socket can be opened is an error.
func TestListenFails(t *testing.T) {
	e := start(t, Options{})
	for _, addr := range []string{"127.0.0.1", "192.0.2.1:0", "unix:" + filepath.Join(t.TempDir(), "missing", "s")} {
		if l, err := e.Listen(addr, ListenOptions{}, nil); l != nil || err == nil {
			t.Errorf("%s: %v, %v", addr, l, err)
		}
	}
}

// TestDuplicate: a duplicate of a listener's socket accepts what the listener does not, until it is closed itself.
func TestDuplicate(t *testing.T) {
	l := listenEcho(t, start(t, Options{}), ListenOptions{})
	socket := l.Socket(0)
	raw, err := socket.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if raw.Read(nil) == nil || raw.Write(nil) == nil {
		t.Error("others than the loops may wait for the socket")
	}
	ln, err := Duplicate(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Duplicate(socket); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed listener: %v", err)
	}
	c := dial(t, ln.Addr().String())
	_ = ln.(*net.TCPListener).SetDeadline(time.Now().Add(waitLimit))
	accepted, err := ln.Accept()
	if err != nil || accepted.RemoteAddr().String() != c.LocalAddr().String() {
		t.Fatalf("%v, %v", accepted, err)
	}
	accepted.Close()
	if other, err := Duplicate(socket); err == nil {
		other.Close()
		t.Error("a socket that is closed is duplicated")
	}
}
