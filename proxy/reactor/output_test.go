package reactor

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"unsafe"
)

// TestOutput adds and removes bytes at random. What is left stays in order, in little more memory than it
// has bytes, and a loop keeps at most maxBlocks.
func TestOutput(t *testing.T) {
	l := new(eventLoop)
	var o output
	var want []byte
	r := rand.New(rand.NewPCG(1, 2))
	check := func() {
		t.Helper()
		parts, rest := o.parts(nil, 10*maxBlocks), want
		for _, p := range parts {
			if !bytes.HasPrefix(rest, p) {
				t.Fatalf("other bytes after %d", len(want)-len(rest))
			}
			rest = rest[len(p):]
		}
		if len(rest) > 0 || o.len != len(want) {
			t.Fatalf("%d bytes are missing, and it says that it has %d of %d", len(rest), o.len, len(want))
		}
		if some := o.parts(nil, 2); len(some) != min(2, len(parts)) {
			t.Fatalf("%d parts, want at most 2 of %d", len(some), len(parts))
		}
		size := int(unsafe.Sizeof(block{}))
		taken, most := len(parts)*size, (len(want)/blockSize+2)*size
		if taken > most || len(want) == 0 && (taken > 0 || o != output{}) {
			t.Fatalf("%d bytes of memory for %d", taken, len(want))
		}
		if l.blocks.count > maxBlocks {
			t.Fatalf("the loop keeps %d blocks", l.blocks.count)
		}
	}
	sizes := []int{0, 1, blockSize - 1, blockSize, blockSize + 1, 10 * blockSize}
	for range 500 {
		b := make([]byte, sizes[r.IntN(len(sizes))])
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		o.add(l, b)
		want = append(want, b...)
		check()
		n := min(sizes[r.IntN(len(sizes))], len(want))
		o.remove(l, n)
		want = want[n:]
		check()
	}
	for range 2 * maxBlocks {
		b := make([]byte, blockSize)
		o.add(l, b)
		want = append(want, b...)
	}
	check()
	o.remove(l, len(want))
	want = nil
	check()
	if l.blocks.count != maxBlocks {
		t.Errorf("the loop keeps %d blocks, want %d", l.blocks.count, maxBlocks)
	}
}

// TestOutputAllocatesNothing: a peer that reads late costs no allocation, once its loop has blocks.
func TestOutputAllocatesNothing(t *testing.T) {
	l := new(eventLoop)
	b := make([]byte, 3*blockSize)
	var o output
	if n := testing.AllocsPerRun(100, func() {
		o.add(l, b)
		o.remove(l, len(b))
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
