package reactor

const (
	blockSize = 4<<10 - 16 // with the other fields of a block 4 KiB

	// maxBlocks is how many blocks a loop keeps for the next output.
	maxBlocks = 256
)

// output is what the kernel has not taken of a descriptor's output. It grows by blocks, so that nothing is
// copied, and what a peer does not read takes no more memory than its length and two blocks.
type output struct {
	first, last *block // nil means that it is empty
	sent        int    // bytes of the first block that the kernel has taken; fewer than it has
	len         int
}

// block is a part of an output. All but the last one are full.
type block struct {
	next  *block
	len   int
	bytes [blockSize]byte
}

// add appends a copy of b. The blocks come from l.
func (o *output) add(l *eventLoop, b []byte) {
	o.len += len(b)
	for len(b) > 0 {
		if o.last == nil || o.last.len == blockSize {
			o.grow(l.blocks.take())
		}
		n := copy(o.last.bytes[o.last.len:], b)
		o.last.len += n
		b = b[n:]
	}
}

func (o *output) grow(b *block) {
	if o.last == nil {
		o.first = b
	} else {
		o.last.next = b
	}
	o.last = b
}

// parts appends the first bytes, in so many parts at most. They are valid until remove.
func (o *output) parts(dst [][]byte, most int) [][]byte {
	sent := o.sent
	for b := o.first; b != nil && len(dst) < most; b = b.next {
		dst = append(dst, b.bytes[sent:b.len])
		sent = 0
	}
	return dst
}

// remove removes the first n bytes. The blocks go back to l.
func (o *output) remove(l *eventLoop, n int) {
	o.len -= n
	o.sent += n
	for b := o.first; b != nil && o.sent >= b.len; b = o.first {
		o.sent -= b.len
		o.first = b.next
		l.blocks.put(b)
	}
	if o.first == nil {
		o.last = nil
	}
}

// freeBlocks are blocks that a loop keeps.
type freeBlocks struct {
	first *block
	count int
}

// take returns an empty block.
func (f *freeBlocks) take() *block {
	b := f.first
	if b == nil {
		return new(block)
	}
	f.first = b.next
	f.count--
	b.next = nil
	return b
}

func (f *freeBlocks) put(b *block) {
	if f.count < maxBlocks {
		b.len, b.next = 0, f.first
		f.first = b
		f.count++
	}
}
