package shard

import "testing"

// TestKeepParts: a shard keeps no references, and no array that a burst has made long.
func TestKeepParts(t *testing.T) {
	for n, kept := range map[int]int{maxParts: maxParts, maxParts + 1: 0} {
		var o output
		parts := make([][]byte, n)
		parts[0] = []byte("body")
		if o.KeepParts(parts[:n:n]); cap(o.Parts) != kept || len(o.Parts) != 0 || kept > 0 && parts[0] != nil {
			t.Errorf("%d parts: room for %d is kept, want %d", n, cap(o.Parts), kept)
		}
	}
}
