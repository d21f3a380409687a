package pipe

import (
	"slices"
	"sync"
)

// queue is the bytes of one direction of a pipe, from one producer to one consumer at a time. They
// lie in blocks, so that both copy without the lock: the producer writes behind the bytes that
// the consumer may read. An empty queue has no memory.
type queue struct {
	holder Budget

	mu      sync.Mutex
	blocks  []*[blockSize]byte // oldest first
	read    int                // bytes of the first block that were consumed
	written int                // bytes of the last block
	n       int                // bytes in all
	pushed  uint64             // bytes, ever
	filling bool               // the producer writes to the last block, which must stay
	dropped bool               // nothing is kept any more
}

// blockSize is that of a frame of HTTP/2, usually.
const blockSize = 16 << 10

var blocks = sync.Pool{New: func() any { return new([blockSize]byte) }}

// push adds a copy of b, and reports whether it is kept.
func (q *queue) push(b []byte) bool {
	for len(b) > 0 {
		last, from := q.begin()
		if last == nil {
			return false
		}
		n := copy(last[from:], b)
		q.publish(n)
		b = b[n:]
	}
	return true
}

// begin returns the block to write to and the index of its first free byte, or nil.
func (q *queue) begin() (last *[blockSize]byte, from int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped {
		return nil, 0
	}
	if len(q.blocks) == 0 || q.written == blockSize {
		q.blocks = append(q.blocks, blocks.Get().(*[blockSize]byte))
		q.written = 0
		q.holder.Charge(blockSize)
	}
	q.filling = true
	return q.blocks[len(q.blocks)-1], q.written
}

func (q *queue) publish(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.filling = false
	if !q.dropped {
		q.written += n
		q.n += n
		q.pushed += uint64(n)
	}
}

// peek returns the oldest bytes, nil if there are none. They are valid until consume.
func (q *queue) peek() []byte {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.n == 0:
		return nil
	case len(q.blocks) == 1:
		return q.blocks[0][q.read:q.written:q.written]
	}
	return q.blocks[0][q.read:]
}

// consume removes the first n bytes of peek.
func (q *queue) consume(n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.dropped {
		return
	}
	q.read += n
	q.n -= n
	if len(q.blocks) == 0 || q.read < blockSize && (q.n > 0 || q.filling) {
		return
	}
	blocks.Put(q.blocks[0])
	q.holder.Charge(-blockSize)
	q.blocks, q.read = slices.Delete(q.blocks, 0, 1), 0
}

// take moves the oldest bytes to b, as many as there are.
func (q *queue) take(b []byte) (n int) {
	for n < len(b) {
		part := copy(b[n:], q.peek())
		if part == 0 {
			break
		}
		q.consume(part)
		n += part
	}
	return n
}

// drop releases all memory, now and later. The garbage collector gets it, since either end may
// be copying.
func (q *queue) drop() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.holder.Charge(-blockSize * len(q.blocks))
	q.blocks, q.dropped, q.n = nil, true, 0
}

// len returns the number of bytes.
func (q *queue) len() int {
	_, n := q.counts()
	return n
}

// counts returns how many bytes were pushed, ever, and how many of them were not consumed.
func (q *queue) counts() (pushed uint64, left int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pushed, q.n
}
