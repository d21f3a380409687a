package accesslog

import "sync/atomic"

// Counts are the counters of the process's access log, over all Writers.
type Counts struct {
	Lines    atomic.Uint64 // lines written
	Overflow atomic.Uint64 // lines dropped because the queue was full
	Lost     atomic.Uint64 // lines dropped because a write failed
	Errors   atomic.Uint64 // failed writes and reopens
}

// batchSize is the size of a batch, in bytes.
const batchSize = 64 << 10

// perLoop is the least number of batches for a loop: it fills one while another is written.
const perLoop = 2

// Queue passes lines from the loops to a Writer. Each batch is in one place: free,
// with a loop, in the queue, or with the Writer.
type Queue struct {
	free   chan *batch
	full   chan *batch // has room for all batches, so that sending never blocks
	counts *Counts
}

// batch is a batch of lines after a newline, which is written only after an incomplete line.
type batch struct {
	b     []byte
	lines int
}

// NewQueue returns a queue that holds at most the given number of bytes, but at
// least perLoop batches for each loop. Batches are allocated when they are needed.
func NewQueue(bytes int64, loops int, counts *Counts) *Queue {
	n := max(int(bytes/batchSize), perLoop*loops)
	q := &Queue{free: make(chan *batch, n), full: make(chan *batch, n), counts: counts}
	for range n {
		q.free <- &batch{}
	}
	return q
}

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

// Feed is one loop's end of a Queue. The zero value has no Queue, and is off.
type Feed struct {
	queue *Queue
	batch *batch // being filled
	enc   encoder
}

// Use passes lines to q from now on; nil switches the Feed off.
func (f *Feed) Use(q *Queue) {
	f.Flush()
	f.queue = q
}

// On reports whether the Feed has a Queue.
func (f *Feed) On() bool { return f.queue != nil }

// Add adds the line of r to the batch, or drops it if there is none free. first
// reports whether the line began a batch: the caller must then call Flush soon.
func (f *Feed) Add(r *Record) (first bool) {
	if f.batch != nil && cap(f.batch.b)-len(f.batch.b) < f.enc.longest() {
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

// Flush passes the lines added so far to the Writer.
func (f *Feed) Flush() {
	if f.batch != nil {
		f.queue.full <- f.batch
		f.batch = nil
	}
}
