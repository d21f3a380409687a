package fair

import (
	"net/netip"
	"testing"
)

// TestKnown: the last sources are remembered, and a bounded number of them.
func TestKnown(t *testing.T) {
	var k Known
	nth := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)}) }
	k.Add(netip.Addr{})
	if k.Has(netip.Addr{}) || k.Has(nth(0)) {
		t.Error("it knows what it has not seen")
	}
	for i := range 2*maxKnown + 1 {
		k.Add(nth(i))
		k.Add(nth(i))
	}
	for i, want := range map[int]bool{0: false, maxKnown - 1: false, maxKnown: true, 2 * maxKnown: true} {
		if k.Has(nth(i)) != want {
			t.Errorf("source %d is known: %t", i, !want)
		}
	}
}
