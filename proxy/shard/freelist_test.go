package shard

import "testing"

// TestFreeList: a list keeps values up to its bound, and no pointer to one that was taken.
func TestFreeList(t *testing.T) {
	var l FreeList[*int]
	kept := 0
	for l.Put(new(int)) {
		kept++
	}
	if kept != len(l) || kept != maxFree {
		t.Errorf("%d values kept, %d in the list", kept, len(l))
	}
	for all := l[:kept]; kept > 0; kept-- {
		if v, ok := l.Take(); v == nil || !ok || all[kept-1] != nil {
			t.Fatalf("value %d: taken %t, left in the array: %t", kept, ok, all[kept-1] != nil)
		}
	}
	if v, ok := l.Take(); v != nil || ok {
		t.Error("a value was taken from an empty list")
	}
}
