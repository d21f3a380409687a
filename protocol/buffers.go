package protocol

import (
	"math/bits"

	"github.com/valyala/bytebufferpool"
)

// Buffers is the memory of one loop's messages. Short ones live in the buffers of
// bytebufferpool, which all loops share. That learns one size for all of its buffers
// and lets go of what is larger, so a long message lives in memory of a class of
// sizes, which is kept here for the next. The zero value keeps nothing; nil is a
// Buffers that keeps nothing and is anybody's. Else one loop owns it.
//
// A buffer has one owner, from Get on until Put. One that leaves the loop is Put
// elsewhere, or not at all.
type Buffers struct {
	// Most is how many bytes are kept at most; what is Put beyond is left to the
	// garbage collector.
	Most int

	// OnKept, if there is one, is called when something is kept again after
	// nothing was: the time to think of Trim.
	OnKept func()

	free [bufferClasses][]*bytebufferpool.ByteBuffer // the latest Put last
	idle [bufferClasses]int                          // of these, how many were not used since the last Trim
	kept int                                         // bytes in free
}

const (
	// smallBuffer is the size up to which a buffer grows as append has it.
	smallBuffer = 8 << 10

	// The sizes of the classes double from leastBuffer on. Each has an eighth of
	// room for a head beside a body of 2^n bytes. The last takes a message of the
	// usual limit, 4 MiB.
	leastBuffer   = 18 << 10
	bufferClasses = 9
	mostBuffer    = leastBuffer << (bufferClasses - 1)

	// eagerBuffer is the size up to which memory is set aside for four times of
	// what has come. Beyond, it is twice.
	eagerBuffer = leastBuffer << 2
)

// PoisonBuffers is for tests: what is Put is filled with a pattern, so that who still
// looks at it sees that.
var PoisonBuffers bool

// Poison is that pattern.
const Poison = 0xDB

// Held is what b, or nil, counts as memory: all the room that it has, of which a peer
// may use little. A short buffer counts as what is in it, for its room hangs on what
// bytebufferpool has learned; that is less than leastBuffer.
func Held(b *bytebufferpool.ByteBuffer) int {
	if b == nil {
		return 0
	}
	if room := cap(b.B); room >= leastBuffer {
		return room
	}
	return len(b.B)
}

// Get returns an empty buffer with room for n bytes, or less if n is small.
func (p *Buffers) Get(n int) *bytebufferpool.ByteBuffer {
	if n > smallBuffer {
		return p.take(n, classOf(n))
	}
	b := bytebufferpool.Get()
	if cap(b.B) >= leastBuffer { // of others who use the pool
		b.B = nil
	}
	return b
}

// Put takes back a buffer that is not used any more.
func (p *Buffers) Put(b *bytebufferpool.ByteBuffer) {
	if PoisonBuffers {
		poison(b.B[:cap(b.B)])
	}
	size := cap(b.B)
	if size < leastBuffer {
		bytebufferpool.Put(b)
		return
	}
	if p == nil || size >= 2*mostBuffer || p.kept+size > p.Most {
		return
	}
	b.Reset()
	c := classOf(size+1) - 1 // the last that is not larger
	if p.kept == 0 && p.OnKept != nil {
		p.OnKept()
	}
	p.free[c] = append(p.free[c], b)
	p.kept += size
}

// Append appends data to b, which is to hold total bytes in the end; 0: nobody
// knows.
func (p *Buffers) Append(b *bytebufferpool.ByteBuffer, data []byte, total int) {
	p.Reserve(b, len(data), total)
	b.B = append(b.B, data...)
}

// Reserve makes room in b for n more bytes, if b is not small then. b may be given
// other memory: what was sliced from it is not valid any more. total is as for
// Append: an announcement costs a peer nothing, so no more is set aside for it than
// twice what has come, four times while that is little.
func (p *Buffers) Reserve(b *bytebufferpool.ByteBuffer, n, total int) {
	need := len(b.B) + n
	if need <= cap(b.B) || need <= smallBuffer {
		return
	}
	c := classOf(need)
	for bound := max(2*need, min(4*need, eagerBuffer)); sizeOf(c) < total && sizeOf(c+1) <= bound; {
		c++
	}
	grown := p.take(need, c)
	grown.B = append(grown.B, b.B...)
	b.B, grown.B = grown.B, b.B
	p.Put(grown)
}

// Kept is how many bytes are kept.
func (p *Buffers) Kept() int { return p.kept }

// Trim lets go of what was not used since the last Trim, and tells whether anything
// is kept still.
func (p *Buffers) Trim() (more bool) {
	for c, idle := range p.idle {
		free := p.free[c]
		for _, b := range free[:idle] {
			p.kept -= cap(b.B)
		}
		left := copy(free, free[idle:])
		clear(free[left:])
		p.free[c], p.idle[c] = free[:left], left
		if left == 0 {
			p.free[c] = nil
		}
	}
	return p.kept > 0
}

// take returns an empty buffer of class c, or of n bytes where that is too large for
// all.
func (p *Buffers) take(n, c int) *bytebufferpool.ByteBuffer {
	if c >= bufferClasses {
		// As append has it: there is no reason to expect much more.
		return &bytebufferpool.ByteBuffer{B: make([]byte, 0, n+n/4)}
	}
	if p != nil {
		if last := len(p.free[c]) - 1; last >= 0 {
			b := p.free[c][last]
			p.free[c][last] = nil
			p.free[c] = p.free[c][:last]
			p.idle[c] = min(p.idle[c], last)
			p.kept -= cap(b.B)
			return b
		}
	}
	return &bytebufferpool.ByteBuffer{B: make([]byte, 0, sizeOf(c))}
}

// classOf is the first class with room for n bytes; that of more than mostBuffer is
// no class.
func classOf(n int) int { return bits.Len(uint(n-1) / leastBuffer) }

func sizeOf(c int) int { return leastBuffer << c }

func poison(b []byte) {
	if len(b) == 0 {
		return
	}
	b[0] = Poison
	for n := 1; n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}
