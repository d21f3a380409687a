package accesslog

import (
	"fmt"
	"testing"
)

// TestHashOfIDs: the share of sampled ids is right however ids differ, even in one digit
// only, and neighbouring ids are sampled independently.
func TestHashOfIDs(t *testing.T) {
	const ids, share = 100_000, 0.1
	for _, format := range []string{
		"%d", "%08x", "%016d", "%032x", "%032X", "%d-request-of-somebody", "request-%07d", "5e0c31a7-%08x-8b1f-c01d", "%-32d",
	} {
		kept, both, before := 0, 0, false
		for i := range ids {
			k := fractionOf(hash(fmt.Appendf(nil, format, i))) < share
			if k {
				kept++
			}
			if k && before {
				both++
			}
			before = k
		}
		if kept < 0.95*share*ids || kept > 1.05*share*ids {
			t.Errorf("%s: %d of %d are sampled", format, kept, ids)
		}
		if both < 0.8*share*share*ids || both > 1.2*share*share*ids {
			t.Errorf("%s: %d times two in a row", format, both)
		}
	}
}

// TestHashOfVersions: sidecars of other versions sample the same ids.
func TestHashOfVersions(t *testing.T) {
	for id, want := range map[string]uint64{
		"7": 0xd48c6614a492322d, "id 12345": 0x55b34c9de41f100c, "123456789": 0x3a95bbaa3ea3ccdf, "4bf92f3577b34da6a3ce929d0e0e4736": 0xc7efa9494a346641,
	} {
		if got := hash([]byte(id)); got != want {
			t.Errorf("%s: %#x, want %#x", id, got, want)
		}
	}
	if got := fractionOf(1 << 63); got != 0.5 {
		t.Errorf("half of all is %v", got)
	}
}
