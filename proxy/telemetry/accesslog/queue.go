package accesslog

import "sync/atomic"

// Counts are those of a process, over all its writers.
type Counts struct {
	Lines    atomic.Uint64 // written
	Overflow atomic.Uint64 // dropped, since as many waited as may
	Lost     atomic.Uint64 // dropped, since they could not be written
	Errors   atomic.Uint64 // writes and reopenings that failed
}

// batchSize is how many bytes are written at once.
const batchSize = 64 << 10

// perLoop is how many batches there are for a loop at least: one to fill while
// the other is being written.
const perLoop = 2

// Queue takes lines from the loops to a Writer. Each of its batches is in one
// place: free, with a loop, waiting, or with the Writer.
type Queue struct {
	free   chan *batch
	full   chan *batch // has room for all, so that sending never waits
	counts *Counts
}

// batch is some lines. Its first byte is a line's end: it goes first where a write
// before has failed midway.
type batch struct {
	b     []byte
	lines int
}

// NewQueue makes a queue that holds so many bytes at most, or perLoop batches for
// each of the loops. They are allocated as they are needed.
func NewQueue(bytes int64, loops int, counts *Counts) *Queue {
	n := max(int(bytes/batchSize), perLoop*loops)
	q := &Queue{free: make(chan *batch, n), full: make(chan *batch, n), counts: counts}
	for range n {
		q.free <- &batch{}
	}
	return q
}

// take is a batch to fill, or nil.
func (q *Queue) take() *batch {
	select {
	case b := <-q.free:
		if b.b == nil {
			b.b = make([]byte, 0, batchSize)
		}
		b.b, b.lines = append(b.b[:0], '\n'), 0
		return b
	default:
		return nil
	}
}

// Feed is one loop's end of a Queue. The zero value has none, and takes no lines.
type Feed struct {
	queue *Queue
	batch *batch // being filled
	enc   encoder
}

// Use has the lines that come from now on go to q, and none if that is nil.
func (f *Feed) Use(q *Queue) {
	f.Flush()
	f.queue = q
}

// On tells whether there is a Queue.
func (f *Feed) On() bool { return f.queue != nil }

// Add puts the line of r into the queue, or drops it. first tells that nothing
// waited here: Flush is to be called in a moment.
func (f *Feed) Add(r *Record) (first bool) {
	if f.batch != nil && cap(f.batch.b)-len(f.batch.b) < maxLine {
		f.Flush()
	}
	if f.batch == nil {
		if f.batch = f.queue.take(); f.batch == nil {
			f.queue.counts.Overflow.Add(1)
			return false
		}
		first = true
	}
	f.batch.b = f.enc.append(f.batch.b, r)
	f.batch.lines++
	return first
}

// Flush hands on what was added.
func (f *Feed) Flush() {
	if f.batch != nil {
		f.queue.full <- f.batch
		f.batch = nil
	}
}
