package protocol

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"testing"
	"unsafe"
	"weak"

	"github.com/valyala/bytebufferpool"
)

func newBuffers(most int) *Buffers { return &Buffers{Most: most} }

// filled returns a buffer of p that holds n bytes.
func filled(p *Buffers, n int) *bytebufferpool.ByteBuffer {
	b := p.Get(n)
	p.Append(b, bytes.Repeat([]byte{'x'}, n), n)
	return b
}

// The class of a size is the first class with room for it.
func TestBufferClasses(t *testing.T) {
	for c := range bufferClasses {
		for _, n := range []int{sizeOf(c) - 1, sizeOf(c)} {
			if got := classOf(n); got != c {
				t.Errorf("%d bytes are of class %d, want %d", n, got, c)
			}
		}
		if got := classOf(sizeOf(c) + 1); got != c+1 {
			t.Errorf("%d bytes are of class %d, want %d", sizeOf(c)+1, got, c+1)
		}
	}
	if classOf(1) != 0 || classOf(smallBuffer) != 0 {
		t.Error("small sizes are not of the first class")
	}
}

// A buffer is reused for a message of its class, and never for a longer one.
func TestBuffersReuse(t *testing.T) {
	p := newBuffers(1 << 30)
	for _, n := range []int{smallBuffer + 1, leastBuffer, 64 << 10, 128 << 10, 4 << 20} {
		b := filled(p, n)
		first := &b.B[0]
		p.Put(b)
		if longer := p.Get(2*cap(b.B) + 1); cap(longer.B) < 2*cap(b.B) || &longer.B[:1][0] == first {
			t.Errorf("%d bytes: the buffer of %d came for twice as many", n, cap(b.B))
		}
		again := p.Get(n)
		if &again.B[:1][0] != first || len(again.B) != 0 {
			t.Errorf("%d bytes: another buffer, or one with %d bytes in it", n, len(again.B))
		}
	}
	if p.Kept() != 0 {
		t.Errorf("%d bytes kept, with all in use", p.Kept())
	}
}

// Short buffers are reused, the latest first, and at most mostSmall bytes of them are kept.
func TestSmallBuffers(t *testing.T) {
	for most, want := range map[int]int{leastSmall - 1: 0, leastSmall: 1, mostSmall: mostSmall / leastSmall, 1 << 30: mostSmall / leastSmall} {
		p := newBuffers(most)
		for range 2 * mostSmall / leastSmall {
			p.Put(new(bytebufferpool.ByteBuffer))
		}
		if len(p.small) != want {
			t.Errorf("at most %d bytes: %d empty buffers kept, want %d", most, len(p.small), want)
		}
	}
	p := newBuffers(1 << 30)
	first, second := filled(p, 100), filled(p, 3*leastSmall)
	p.Put(first)
	p.Put(second)
	p.Put(&bytebufferpool.ByteBuffer{B: make([]byte, mostSmall/2)}) // not a short one
	if a, b := p.Get(0), p.Get(100); a != second || b != first || len(a.B)+len(b.B) != 0 || p.smallKept != 0 {
		t.Errorf("other buffers, or with %d bytes in them; %d kept", len(a.B)+len(b.B), p.smallKept)
	}
}

// TestBufferLeaves: a buffer that is in use is not held by the Buffers from which it came.
func TestBufferLeaves(t *testing.T) {
	for size, n := range map[int]int{100: 0, leastBuffer: leastBuffer} {
		p := newBuffers(1 << 30)
		taken := func() weak.Pointer[bytebufferpool.ByteBuffer] {
			p.Put(&bytebufferpool.ByteBuffer{B: make([]byte, size)})
			return weak.Make(p.Get(n))
		}()
		for range 10 {
			if runtime.GC(); taken.Value() == nil {
				break
			}
		}
		if taken.Value() != nil {
			t.Errorf("a buffer of %d bytes is still held", size)
		}
		runtime.KeepAlive(p)
	}
}

// TestSmallBufferOwner: a short buffer that is kept is given to nobody else.
func TestSmallBufferOwner(t *testing.T) {
	p, other := newBuffers(1<<30), newBuffers(1<<30)
	var kept []*bytebufferpool.ByteBuffer
	for range 10 {
		b := &bytebufferpool.ByteBuffer{B: make([]byte, 100)}
		kept = append(kept, b)
		p.Put(b)
		if got := other.Get(0); got == b {
			t.Fatal("a buffer that is kept has come from another place")
		}
	}
	for range kept {
		if b := p.Get(0); !slices.Contains(kept, b) || len(b.B) != 0 {
			t.Errorf("another buffer, or with %d bytes in it", len(b.B))
		}
	}
}

// TestShortStaysSmall: what fits a short buffer takes no long one.
func TestShortStaysSmall(t *testing.T) {
	for n, want := range map[int]bool{smallBuffer: true, smallBuffer + 1: false} {
		b := new(bytebufferpool.ByteBuffer)
		if newBuffers(1<<30).Append(b, make([]byte, n), 0); cap(b.B) < leastBuffer != want || len(b.B) != n {
			t.Errorf("%d bytes are in memory of %d", n, cap(b.B))
		}
	}
}

// TestRoomAgain: a short buffer that has just the room that is asked for keeps its memory.
func TestRoomAgain(t *testing.T) {
	p := newBuffers(1 << 30)
	b := &bytebufferpool.ByteBuffer{B: make([]byte, 0, 600)}
	at := unsafe.SliceData(b.B)
	p.Put(b)
	if b = p.GetRoom(600); unsafe.SliceData(b.B) != at {
		t.Error("600 bytes of room are allocated again")
	}
	p.Put(b)
	if b = p.GetRoom(601); cap(b.B) < 601 {
		t.Errorf("%d bytes of room", cap(b.B))
	}
}

// At most Most bytes are kept, and a nil Buffers keeps nothing.
func TestBuffersBound(t *testing.T) {
	const most = 1 << 20
	p := newBuffers(most)
	sum := 0
	var all []*bytebufferpool.ByteBuffer
	for n := smallBuffer + 1; sum < 4*most; n += 7919 {
		all = append(all, filled(p, n))
		sum += n
	}
	for _, b := range all {
		p.Put(b)
		count := 0
		for _, free := range p.free {
			for _, b := range free {
				count += cap(b.B)
			}
		}
		if p.Kept() != count || count > most {
			t.Fatalf("%d bytes kept, %d counted, want at most %d", count, p.Kept(), most)
		}
	}
	if p.Kept() < most/2 {
		t.Errorf("%d bytes kept of %d", p.Kept(), most)
	}
	var none *Buffers
	b := filled(none, 100<<10)
	none.Put(b)
	p.Put(&bytebufferpool.ByteBuffer{B: make([]byte, 100<<20)})
	if p.Kept() > most {
		t.Errorf("%d bytes kept", p.Kept())
	}
}

// Trim drops the buffers that were not used since the last Trim and keeps the others.
// OnKept is called when the first buffer is kept again.
func TestBuffersTrim(t *testing.T) {
	p, calls := newBuffers(1<<30), 0
	p.OnKept = func() { calls++ }
	var all []*bytebufferpool.ByteBuffer
	for range 10 {
		all = append(all, filled(p, 100<<10))
	}
	size := cap(all[0].B)
	for _, b := range all {
		p.Put(b)
	}
	use := func(n int) {
		var used []*bytebufferpool.ByteBuffer
		for range n {
			used = append(used, p.Get(100<<10))
		}
		for _, b := range used {
			p.Put(b)
		}
	}
	for i, c := range []struct{ used, left int }{{0, 10}, {4, 4}, {3, 3}, {3, 3}, {5, 5}, {1, 1}, {0, 0}, {1, 1}, {0, 0}} {
		use(c.used)
		if more := p.Trim(); p.Kept() != c.left*size || more != (c.left > 0) {
			t.Errorf("%d: with %d used, %d bytes kept, %t, want %d buffers of %d", i, c.used, p.Kept(), more, c.left, size)
		}
	}
	if calls < 2 {
		t.Errorf("%d calls of OnKept", calls)
	}
}

// TestTrimReleases: what Trim drops is not held any more, also while others of its class are kept.
func TestTrimReleases(t *testing.T) {
	p := newBuffers(1 << 30)
	dropped := func() (all []weak.Pointer[bytebufferpool.ByteBuffer]) {
		for range 3 {
			b := &bytebufferpool.ByteBuffer{B: make([]byte, leastBuffer)}
			all = append(all, weak.Make(b))
			p.Put(b)
		}
		return all[:2] // the last is used again first
	}()
	p.Trim()
	p.Put(p.Get(leastBuffer))
	if more := p.Trim(); !more || p.Kept() != leastBuffer {
		t.Fatalf("%d bytes are kept, %t", p.Kept(), more)
	}
	held := func() bool {
		return slices.ContainsFunc(dropped, func(b weak.Pointer[bytebufferpool.ByteBuffer]) bool { return b.Value() != nil })
	}
	for i := 0; i < 10 && held(); i++ {
		runtime.GC()
	}
	if held() {
		t.Error("a buffer that was dropped is still held")
	}
	runtime.KeepAlive(p)
}

// A message is complete, whatever pieces it arrives in. The allocation is bounded by
// the bytes received, whatever length was announced. A message is copied at most one
// and a half times.
func TestBuffersGrow(t *testing.T) {
	for _, announced := range []int{0, 40 << 10, 128 << 10, 500 << 10, 4 << 20, 6 << 20, 1 << 40} {
		for _, piece := range []int{4 << 10, 16 << 10, 64 << 10} {
			t.Run(fmt.Sprintf("%d by %d", announced, piece), func(t *testing.T) {
				p := newBuffers(1 << 30)
				total := announced
				if total == 0 || total > 8<<20 {
					total = 3 << 20
				}
				b := p.Get(0)
				var want []byte
				copied, held := 0, cap(b.B)
				for len(want) < total {
					next := bytes.Repeat([]byte{byte(len(want) / piece)}, min(piece, total-len(want)))
					p.Append(b, next, announced)
					if cap(b.B) != held {
						copied, held = copied+len(want), cap(b.B)
					}
					want = append(want, next...)
					if n := len(want); n > smallBuffer && held > max(2*n, min(4*n, eagerBuffer)) {
						t.Fatalf("room for %d bytes after %d were received", held, len(want))
					}
				}
				if !bytes.Equal(b.B, want) {
					t.Error("the buffer differs from the appended bytes")
				}
				if copied > total+total/2+4*smallBuffer && total <= mostBuffer {
					t.Errorf("%d bytes copied for a message of %d", copied, total)
				}
			})
		}
	}
}

// A message of known length grows once, and others as without Ahead, which is never exceeded.
func TestBuffersAhead(t *testing.T) {
	for _, total := range []int{40 << 10, 128 << 10, 1 << 20, 4 << 20} {
		p := newBuffers(1 << 30)
		p.Ahead = 10 << 20
		taken := func(announced int) int {
			b, before := p.Get(0), p.Ahead
			p.Append(b, make([]byte, 10<<10), announced)
			if n := before - p.Ahead; n != 0 && (n != cap(b.B) || n < total || p.Ahead < 0) {
				t.Fatalf("%d bytes: a buffer of %d, %d taken of %d", announced, cap(b.B), n, before)
			}
			return before - p.Ahead
		}
		if taken(0) != 0 {
			t.Error("a buffer for a message of unknown length")
		}
		n := 0
		for taken(total) > 0 {
			n++
		}
		if least := 10 << 20 / (2 * total); n < least {
			t.Errorf("%d messages of %d bytes, want %d", n, total, least)
		}
	}
	p := newBuffers(1 << 30)
	p.Ahead = 8 * mostBuffer
	b := p.Get(0)
	if p.Append(b, make([]byte, 10<<10), 4*mostBuffer); cap(b.B) != mostBuffer || p.Ahead != 7*mostBuffer {
		t.Errorf("of a message longer than all classes: a buffer of %d, %d left", cap(b.B), p.Ahead)
	}
	p = newBuffers(1 << 30)
	p.Ahead = 1 << 20
	for _, total := range []int{9 << 10, 18 << 10, 20 << 10, 36 << 10} { // what these get without Ahead is enough
		if p.Reserve(&bytebufferpool.ByteBuffer{}, 9<<10+1, total); p.Ahead != 1<<20 {
			t.Errorf("a message of %d bytes takes of Ahead: %d are left", total, p.Ahead)
		}
	}
	for ahead, want := range map[int]int{8*leastBuffer - 1: 2 * leastBuffer, 8 * leastBuffer: 8 * leastBuffer} {
		b := new(bytebufferpool.ByteBuffer)
		p.Ahead = ahead
		if p.Reserve(b, 10<<10, 100<<10); cap(b.B) != want {
			t.Errorf("with %d bytes of Ahead: %d bytes of memory, want %d", ahead, cap(b.B), want)
		}
	}
}

// TestKeptAgain: the owner hears of each time that long buffers are kept after none was.
func TestKeptAgain(t *testing.T) {
	p, calls := newBuffers(1<<30), 0
	p.OnKept = func() { calls++ }
	put := func(size int) { p.Put(&bytebufferpool.ByteBuffer{B: make([]byte, size)}) }
	for i, c := range []struct {
		do   func()
		want int
	}{
		{func() { put(leastBuffer - 1) }, 0}, {func() { put(leastBuffer) }, 1}, {func() { put(leastBuffer) }, 1}, {func() { put(100 << 10) }, 1},
		{func() { p.Get(leastBuffer); put(leastBuffer) }, 1}, {func() { p.Trim(); p.Trim() }, 1}, {func() { put(leastBuffer) }, 2},
	} {
		if c.do(); calls != c.want {
			t.Errorf("step %d: %d calls, want %d", i, calls, c.want)
		}
	}
}

// TestReserve: how much memory a message gets behind its first bytes, without Ahead.
func TestReserve(t *testing.T) {
	for name, c := range map[string]struct{ held, n, total, want int }{
		"unknown length":                           {0, 10 << 10, 0, leastBuffer},
		"a length of the first class":              {0, 10 << 10, 18 << 10, leastBuffer},
		"a long one, twice what has come":          {0, 10 << 10, 1 << 20, 2 * leastBuffer},
		"less than a class":                        {0, 17 << 10, 1 << 20, 2 * leastBuffer},
		"a whole class, four times what has come":  {0, leastBuffer, 1 << 20, 4 * leastBuffer},
		"in two pieces":                            {10 << 10, 8 << 10, 1 << 20, 4 * leastBuffer},
		"at most eagerBuffer":                      {0, 2 * leastBuffer, 1 << 20, 4 * leastBuffer},
		"from eagerBuffer on, twice what has come": {0, 4 * leastBuffer, 1 << 20, 8 * leastBuffer},
		"just less than eagerBuffer":               {0, 4*leastBuffer - 1, 1 << 20, 4 * leastBuffer},
		"no more than the length needs":            {0, 4 * leastBuffer, 100 << 10, 8 * leastBuffer},
		"complete":                                 {0, 4 * leastBuffer, 4 * leastBuffer, 4 * leastBuffer},
	} {
		b := &bytebufferpool.ByteBuffer{B: make([]byte, c.held)}
		if newBuffers(1<<30).Reserve(b, c.n, c.total); cap(b.B) != c.want || len(b.B) != c.held {
			t.Errorf("%s: %d bytes of memory, want %d", name, cap(b.B), c.want)
		}
	}
}

// TestExtend: what was read to Room stays there, and anything else is copied.
func TestExtend(t *testing.T) {
	b := &bytebufferpool.ByteBuffer{B: make([]byte, 3, 3+LeastRoom)}
	if Room(b, LeastRoom-1) != nil || Room(&bytebufferpool.ByteBuffer{B: make([]byte, 4, 3+LeastRoom)}, 1<<20) != nil {
		t.Error("room is short")
	}
	room := Room(b, 1<<20)
	if len(room) != LeastRoom || len(Room(b, LeastRoom)) != LeastRoom {
		t.Fatalf("room for %d bytes", len(room))
	}
	copy(room, "abcdef")
	at := &b.B[0]
	b.B = Extend(b.B, room[:4])
	b.B = Extend(b.B, room[4:6])
	b.B = Extend(b.B, nil)
	b.B = Extend(b.B, room[:2]) // is not behind b any more
	b.B = Extend(b.B, []byte("gh"))
	if want := "\x00\x00\x00abcdefabgh"; string(b.B) != want || &b.B[0] != at {
		t.Errorf("%q, want %q in the same memory", b.B, want)
	}
	one := Extend(make([]byte, 2, 10), []byte("x"))
	one = Extend(one, one[1:3]) // begins within
	if one = Extend(one, one[len(one):len(one)+1]); string(one) != "\x00\x00x\x00x\x00" {
		t.Errorf("short pieces: %q", one)
	}
	if b.B = Extend(b.B, make([]byte, LeastRoom)); len(b.B) != 13+LeastRoom || string(b.B[:13]) != "\x00\x00\x00abcdefabgh" {
		t.Errorf("%d bytes after growth", len(b.B))
	}
}

// Held is at most the capacity, and at least the length. It is less than the capacity
// only for small buffers, whatever their memory was used for before.
func TestHeld(t *testing.T) {
	if n := Held(nil); n != 0 {
		t.Errorf("%d bytes held in no buffer", n)
	}
	p := newBuffers(1 << 30)
	for range 100 {
		shared.Put(&bytebufferpool.ByteBuffer{B: make([]byte, 100<<10)})
	}
	for _, n := range []int{0, 1, smallBuffer, smallBuffer + 1, leastBuffer, 64 << 10, 6 << 20} {
		for range 100 {
			b := p.Get(0)
			if Held(b) != 0 {
				t.Fatalf("%d bytes held in an empty buffer", Held(b))
			}
			p.Append(b, make([]byte, n), 0)
			if held := Held(b); held > cap(b.B) || held < n || cap(b.B)-held >= leastBuffer {
				t.Fatalf("%d bytes held for %d with room for %d", held, n, cap(b.B))
			}
		}
	}
}

// With PoisonBuffers, Put overwrites the buffer.
func TestPoison(t *testing.T) {
	PoisonBuffers = true
	defer func() { PoisonBuffers = false }()
	for _, n := range []int{10, 100 << 10} {
		p := newBuffers(1 << 30)
		b := filled(p, n)
		old := b.B
		p.Put(b)
		if old[0] != Poison || old[n-1] != Poison {
			t.Errorf("%d bytes: %x … %x after Put", n, old[0], old[n-1])
		}
	}
}

// With PoisonBuffers, a second Put of a short buffer panics.
func TestPutTwice(t *testing.T) {
	PoisonBuffers = true
	defer func() {
		PoisonBuffers = false
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	p := newBuffers(1 << 30)
	b := filled(p, 10)
	p.Put(b)
	p.Put(b)
}

// After a buffer grew, its former memory is free and its new memory is not.
func TestBufferGrowthOwnership(t *testing.T) {
	p := newBuffers(1 << 30)
	b := filled(p, leastBuffer)
	old := &b.B[0]
	p.Append(b, []byte("more"), 0)
	freed := false
	for c := range bufferClasses {
		next := &p.Get(sizeOf(c)).B[:1][0]
		freed = freed || next == old
		if next == &b.B[0] {
			t.Error("Get returned the memory of a buffer in use")
		}
	}
	if !freed {
		t.Error("the former memory is not used again")
	}
}

// TestRoomOf: a full buffer of GetRoom counts as RoomOf says, and has room for as many bytes as were asked for.
func TestRoomOf(t *testing.T) {
	p := newBuffers(1 << 30)
	for range 10 {
		p.Put(new(bytebufferpool.ByteBuffer)) // short ones that have no room yet
	}
	for _, n := range []int{0, 1, 100, smallBuffer - 1, smallBuffer, smallBuffer + 1, leastBuffer, leastBuffer + 1, mostBuffer, mostBuffer + 1, 2 * mostBuffer} {
		b := p.GetRoom(n)
		if cap(b.B) < n || len(b.B) != 0 {
			t.Errorf("%d bytes: room for %d, and %d in it", n, cap(b.B), len(b.B))
		}
		b.B = b.B[:n]
		if got, want := Held(b), RoomOf(n); got != want {
			t.Errorf("%d bytes count as %d, want %d", n, got, want)
		}
	}
}

// TestHeldBy: a message counts with its buffers and with the memory of each field. No buffer is an empty one.
func TestHeldBy(t *testing.T) {
	p := newBuffers(1 << 30)
	head, body := filled(p, 100), filled(p, 50_000)
	fields := make([]Header, 3)
	if n := HeldBy(head, body, fields, fields[:1]); n != 100+cap(body.B)+4*headerBytes {
		t.Errorf("%d bytes", n)
	}
	if n := HeldBy(nil, nil, nil, nil); n != 0 {
		t.Errorf("nothing counts as %d bytes", n)
	}
	if Len(nil) != 0 || Len(head) != 100 || Len(body) != 50_000 {
		t.Errorf("lengths %d, %d and %d", Len(nil), Len(head), Len(body))
	}
	if got := KeepFields(make([]Header, 0, keptFields)); cap(got) != keptFields {
		t.Errorf("memory for %d fields is kept of %d", cap(got), keptFields)
	}
	if got := KeepFields(make([]Header, 0, keptFields+1)); got != nil {
		t.Errorf("memory for %d fields is kept", cap(got))
	}
}

// TestRelease: a buffer is given back once.
func TestRelease(t *testing.T) {
	p := newBuffers(1 << 30)
	b := filled(p, 50_000)
	size := cap(b.B)
	for range 2 {
		p.Release(&b)
	}
	if b != nil || p.Kept() != size {
		t.Errorf("%d bytes kept, want %d", p.Kept(), size)
	}
}

// TestLargeBuffers: a buffer that is much longer than the last class is not kept, nor given for a shorter message.
func TestLargeBuffers(t *testing.T) {
	p := newBuffers(1 << 30)
	for size, want := range map[int]int{2*mostBuffer - 1: 2*mostBuffer - 1, 2 * mostBuffer: 0} {
		p.Put(&bytebufferpool.ByteBuffer{B: make([]byte, size)})
		if got := p.Kept(); got != want {
			t.Errorf("%d bytes: %d are kept", size, got)
		}
		if want > 0 {
			if got := cap(p.Get(mostBuffer).B); got != size {
				t.Errorf("%d bytes: %d are given", size, got)
			}
		}
	}
}

// TestBufferAtBound: a buffer is kept that just fits Most, and none that is a byte longer.
func TestBufferAtBound(t *testing.T) {
	for most, want := range map[int]int{leastBuffer - 1: 0, leastBuffer: leastBuffer, 2*leastBuffer - 1: leastBuffer, 2 * leastBuffer: 2 * leastBuffer} {
		p := newBuffers(most)
		for range 3 {
			p.Put(&bytebufferpool.ByteBuffer{B: make([]byte, leastBuffer)})
		}
		if got := p.Kept(); got != want {
			t.Errorf("at most %d bytes: %d are kept, want %d", most, got, want)
		}
	}
}
