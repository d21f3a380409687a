package protocol

import (
	"math/bits"
	"slices"
	"unsafe"

	"github.com/valyala/bytebufferpool"
)

// Buffers is the memory for the messages of one loop. It keeps a few short buffers. More of them come from
// a pool that all loops share. That pool learns one size and drops larger buffers, so long messages live in
// buffers of fixed size classes, which Buffers keeps for reuse. The zero value keeps nothing. A nil Buffers
// keeps nothing either, and any goroutine may use it; any other has one loop as its owner.
//
// A buffer has one owner, from Get until Put. A buffer that leaves the loop is Put into other
// Buffers, or never.
type Buffers struct {
	Most int // limit of the bytes that are kept, of long buffers and of short ones each

	// Ahead is how many bytes Reserve may still take for content that a peer has announced and
	// not sent yet. Reserve lowers Ahead, and the owner sets it anew from time to time.
	Ahead int

	// OnKept, if set, is called when a long buffer is kept while no other is. The owner must then
	// call Trim from time to time, until Trim returns false.
	OnKept func()

	free [bufferClasses][]*bytebufferpool.ByteBuffer // by class; the latest Put is last
	idle [bufferClasses]int                          // by class; buffers of free that were not used since the last Trim
	kept int                                         // bytes in free

	small     []*bytebufferpool.ByteBuffer // shorter than leastBuffer; the latest Put is last
	smallKept int                          // what small counts as
}

// Unowned is nil: the Buffers for a buffer that belongs to no loop.
func Unowned() *Buffers { return nil }

const (
	smallBuffer = 8 << 10 // up to this size append decides how a buffer grows

	// mostSmall bounds the bytes of short buffers that are kept, also at rest. Each counts as at least
	// leastSmall. They spare the way through the shared pool, 4% of the instructions of a request.
	mostSmall  = 128 << 10
	leastSmall = 512

	// The sizes of the classes double, from leastBuffer on. Each class is an eighth larger
	// than 2^n bytes: room for a head beside a body of that size. The last class holds a
	// message of the default limit, 4 MiB.
	leastBuffer   = 18 << 10
	bufferClasses = 9
	mostBuffer    = leastBuffer << (bufferClasses - 1)

	// eagerBuffer is the size up to which Reserve allocates four times the bytes received
	// without Ahead. Beyond it, Reserve allocates twice as many.
	eagerBuffer = leastBuffer << 2
)

// shared has short buffers of all loops. It learns from no others.
var shared bytebufferpool.Pool

// PoisonBuffers is for tests: Put fills the buffer with Poison, which shows a read after Put, and panics at
// a short buffer that is kept already. Encoders check headers also if they are Valid.
var PoisonBuffers bool

// Poison is the byte that fills a buffer after Put.
const Poison = 0xDB

// Held returns the bytes of memory that b counts as; b may be nil. A buffer counts with its
// capacity, even if the peer uses little of it. A buffer smaller than leastBuffer counts with
// its length, because its capacity depends on what bytebufferpool has learned.
func Held(b *bytebufferpool.ByteBuffer) int {
	if b == nil {
		return 0
	}
	if room := cap(b.B); room >= leastBuffer {
		return room
	}
	return len(b.B)
}

// headerBytes is the memory of a Header beside its text.
const headerBytes = int(unsafe.Sizeof(Header{}))

// HeldBy returns the bytes of memory that a message counts as: its buffers, each of which may be nil, and
// its fields. A field of one byte on the wire takes as much memory as any other.
func HeldBy(head, body *bytebufferpool.ByteBuffer, headers, trailers []Header) int {
	return Held(head) + Held(body) + (len(headers)+len(trailers))*headerBytes
}

// Len returns the length of b in bytes; b may be nil.
func Len(b *bytebufferpool.ByteBuffer) int {
	if b == nil {
		return 0
	}
	return len(b.B)
}

// keptFields is how many fields a message that is used again keeps the memory for.
const keptFields = 64

// KeepFields returns the empty slice fields for the next message, or nil if its capacity is above keptFields.
func KeepFields(fields []Header) []Header {
	if cap(fields) > keptFields {
		return nil
	}
	return fields
}

// Get returns an empty buffer with room for n bytes, or for fewer if n is small.
func (p *Buffers) Get(n int) *bytebufferpool.ByteBuffer {
	if n > smallBuffer {
		return p.take(n, classOf(n))
	}
	if p != nil && len(p.small) > 0 {
		return p.takeSmall()
	}
	b := shared.Get()
	if cap(b.B) >= leastBuffer { // what the pool has learned is rounded up
		b.B = nil
	}
	return b
}

// GetRoom returns an empty buffer with room for n bytes.
func (p *Buffers) GetRoom(n int) *bytebufferpool.ByteBuffer {
	b := p.Get(n)
	if cap(b.B) < n { // a small one
		b.B = make([]byte, 0, n)
	}
	return b
}

// RoomOf returns what a buffer of GetRoom(n) counts as when it is full.
func RoomOf(n int) int {
	c := classOf(n)
	switch {
	case n <= smallBuffer:
		return n
	case c >= bufferClasses:
		return n + n/4
	}
	return sizeOf(c)
}

// Put takes back a buffer. The caller must not use it afterwards.
func (p *Buffers) Put(b *bytebufferpool.ByteBuffer) {
	if PoisonBuffers {
		whole := b.B[:cap(b.B)]
		for n := copy(whole, []byte{Poison}); n < len(whole); n *= 2 {
			copy(whole[n:], whole[:n])
		}
	}
	size := cap(b.B)
	if size < leastBuffer {
		if p == nil || !p.keepSmall(b) {
			shared.Put(b)
		}
		return
	}
	if p == nil || size >= 2*mostBuffer || p.kept+size > p.Most {
		return
	}
	b.Reset()
	c := classOf(size+1) - 1 // the last class that is not larger than the buffer
	if p.kept == 0 && p.OnKept != nil {
		p.OnKept()
	}
	p.free[c] = append(p.free[c], b)
	p.kept += size
}

// Release takes back the buffer *b, if that is not nil, and sets *b to nil.
func (p *Buffers) Release(b **bytebufferpool.ByteBuffer) {
	if *b != nil {
		p.Put(*b)
		*b = nil
	}
}

// Append appends data to b, whose final length will be total; 0 means unknown.
func (p *Buffers) Append(b *bytebufferpool.ByteBuffer, data []byte, total int) {
	p.Reserve(b, len(data), total)
	b.B = Extend(b.B, data)
}

// Room returns the memory behind what b holds, for n more bytes at most. Who reads data there and gives it to Extend copies
// nothing. Room is nil if it is short: then a read of more than its size, and a copy, cost less than another read.
func Room(b *bytebufferpool.ByteBuffer, n int) []byte {
	if n = min(n, cap(b.B)-len(b.B)); n < LeastRoom {
		return nil
	}
	return b.B[len(b.B) : len(b.B)+n]
}

// LeastRoom is the length of the shortest Room, in bytes.
const LeastRoom = 32 << 10

// Extend returns b with data appended. It copies nothing if data is in Room.
func Extend(b, data []byte) []byte {
	if n := len(b) + len(data); len(data) > 0 && n <= cap(b) && &b[:n][len(b)] == &data[0] {
		return b[:n]
	}
	return append(b, data...)
}

// Reserve makes room in b for n more bytes, unless b stays small. It may replace the memory of
// b, so slices of it are invalid afterwards. total is the final length as in Append. A peer
// can announce any length for free, so only Ahead allows memory for all of it at once, which
// saves copies. Otherwise what was received limits the memory: see eagerBuffer.
func (p *Buffers) Reserve(b *bytebufferpool.ByteBuffer, n, total int) {
	need := len(b.B) + n
	if need <= cap(b.B) || need <= smallBuffer {
		return
	}
	c := classOf(need)
	for bound := max(2*need, min(4*need, eagerBuffer)); sizeOf(c) < total && sizeOf(c+1) <= bound; {
		c++
	}
	if whole := min(classOf(total), bufferClasses-1); total > need && whole > c && p != nil && sizeOf(whole) <= p.Ahead {
		p.Ahead -= sizeOf(whole)
		c = whole
	}
	grown := p.take(need, c)
	grown.B = append(grown.B, b.B...)
	b.B, grown.B = grown.B, b.B
	p.Put(grown)
}

// Kept returns the number of bytes of long buffers that are kept.
func (p *Buffers) Kept() int { return p.kept }

// Trim drops the long buffers not used since the last Trim. It reports whether any is left.
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

func (p *Buffers) takeSmall() *bytebufferpool.ByteBuffer {
	last := len(p.small) - 1
	b := p.small[last]
	p.small[last] = nil
	p.small = p.small[:last]
	p.smallKept -= smallSize(b)
	return b
}

// keepSmall reports whether it keeps b.
func (p *Buffers) keepSmall(b *bytebufferpool.ByteBuffer) bool {
	if PoisonBuffers && slices.Contains(p.small, b) {
		panic("protocol: a buffer was put twice")
	}
	size := smallSize(b)
	if p.smallKept+size > min(mostSmall, p.Most) {
		return false
	}
	b.Reset()
	p.small = append(p.small, b)
	p.smallKept += size
	return true
}

func smallSize(b *bytebufferpool.ByteBuffer) int { return max(cap(b.B), leastSmall) }

// take returns an empty buffer of class c, or one of n bytes if no class is large enough.
func (p *Buffers) take(n, c int) *bytebufferpool.ByteBuffer {
	if c >= bufferClasses {
		// A quarter more, as append would add: much more is unlikely.
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

// classOf returns the first class with room for n bytes, or bufferClasses or more if n exceeds
// mostBuffer.
func classOf(n int) int { return bits.Len(uint(n-1) / leastBuffer) }

func sizeOf(c int) int { return leastBuffer << c }
