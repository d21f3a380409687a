package freeport

import (
	"net"
	"slices"
	"testing"
)

func TestLoopback(t *testing.T) {
	const n = 20
	addrs, err := Loopback(n)
	if err != nil {
		t.Fatal(err)
	}
	for _, addr := range addrs {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			t.Errorf("%s is not free: %v", addr, err)
			continue
		}
		defer ln.Close()
	}
	slices.Sort(addrs)
	if got := len(slices.Compact(addrs)); got != n {
		t.Errorf("%d different addresses, want %d", got, n)
	}
}

func TestLoopbackExhausted(t *testing.T) {
	if addrs, err := Loopback(last - first + 1); err == nil {
		t.Errorf("found %d", len(addrs))
	}
}
