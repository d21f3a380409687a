package freeport

import (
	"errors"
	"net"
	"slices"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/internal/eventually"
)

func TestLoopback(t *testing.T) {
	const n = 20
	addrs, release, err := Loopback(n)
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	for _, addr := range addrs {
		for range 2 { // a server that restarts
			ln, err := net.Listen("tcp", addr)
			if err != nil {
				t.Errorf("%s is not free: %v", addr, err)
				continue
			}
			wantTaken(t, addr)
			ln.Close()
		}
	}
	slices.Sort(addrs)
	if got := len(slices.Compact(addrs)); got != n {
		t.Errorf("%d different addresses, want %d", got, n)
	}
}

// TestReserved: an address is given once until it is released.
func TestReserved(t *testing.T) {
	addrs, release, err := Loopback(1)
	if err != nil {
		t.Fatal(err)
	}
	at, err := net.ResolveTCPAddr("tcp", addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	if s, err := bind(at.Port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("reserved twice: socket %d, %v", s, err)
	}
	release()
	release()
	eventually.Nil(t, "the address to be free", func() error { // another process may have it for a while
		s, err := bind(at.Port)
		if err == nil {
			_ = syscall.Close(s)
		}
		return err
	})
}

// TestRefusing: nobody can connect, and nobody can listen.
func TestRefusing(t *testing.T) {
	addr, release, err := Refusing()
	if err != nil {
		t.Fatal(err)
	}
	defer release()
	if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("connected: %v, %v", c, err)
	}
	wantTaken(t, addr)
}

func wantTaken(t *testing.T, addr string) {
	t.Helper()
	if ln, err := net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%s: listening twice: %v, %v", addr, ln, err)
	}
}

func TestLoopbackExhausted(t *testing.T) {
	if addrs, _, err := Loopback(last - first + 1); err == nil {
		t.Errorf("found %d", len(addrs))
	}
}
