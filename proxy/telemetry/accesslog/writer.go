package accesslog

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"time"
)

// complainEvery is how often a failing write is told in the sidecar's log.
const complainEvery = time.Minute

// Logger takes what an operator should know of, as *slog.Logger does.
type Logger interface {
	Warn(msg string, args ...any)
}

// output is where lines go.
type output struct{ io.WriteCloser }

// Writer writes the lines of a Queue, on a goroutine of its own. What it can't
// write is lost, and counted.
type Writer struct {
	path   string
	queue  *Queue
	log    Logger
	out    *output
	torn   bool // what was written last does not end a line
	quiet  time.Time
	next   atomic.Pointer[output] // takes the place of out
	wake   chan struct{}          // next is there
	ending chan struct{}
	ended  chan struct{}
}

// Open starts to write the lines of q to path: a file to append to, which is made
// if it is missing, Stdout or Stderr. Close ends it.
func Open(path string, q *Queue, log Logger) (*Writer, error) {
	out, err := open(path)
	if err != nil {
		return nil, err
	}
	return start(path, &output{out}, q, log), nil
}

func start(path string, out *output, q *Queue, log Logger) *Writer {
	w := &Writer{
		path: path, queue: q, log: log, out: out,
		wake: make(chan struct{}, 1), ending: make(chan struct{}), ended: make(chan struct{}),
	}
	go w.run()
	return w
}

// Queue is where the lines come from.
func (w *Writer) Queue() *Queue { return w.queue }

// Reopen opens the path anew: a file that was renamed is left for one of its old
// name, between two batches. On an error all stays as it is. It does not wait for
// the disk to take what is being written.
func (w *Writer) Reopen() error {
	if w.path == Stdout || w.path == Stderr {
		return nil
	}
	out, err := open(w.path)
	if err != nil {
		w.queue.counts.Errors.Add(1)
		return err
	}
	if late := w.next.Swap(&output{out}); late != nil {
		_ = late.Close()
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// Close writes what waits and ends, or returns ctx's error when that takes longer.
// It is called once. Lines that come later are dropped.
func (w *Writer) Close(ctx context.Context) error {
	close(w.ending)
	select {
	case <-w.ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) run() {
	defer close(w.ended)
	for {
		select {
		case b := <-w.queue.full:
			w.write(b)
		case <-w.wake:
			w.turn()
		case <-w.ending:
			w.finish()
			return
		}
	}
}

// finish writes what is there.
func (w *Writer) finish() {
	for {
		select {
		case b := <-w.queue.full:
			w.write(b)
			continue
		default:
		}
		w.turn()
		_ = w.out.Close()
		return
	}
}

// turn goes on in the file that was opened last.
func (w *Writer) turn() {
	if next := w.next.Swap(nil); next != nil {
		_ = w.out.Close()
		w.out, w.torn = next, false
	}
}

// write writes a batch and gives it back. Of a write that fails midway the rest is
// lost: a disk that is full would only be full again.
func (w *Writer) write(b *batch) {
	w.turn()
	out := b.b
	if !w.torn {
		out = out[1:]
	}
	n, err := w.out.Write(out)
	counts, whole := w.queue.counts, b.lines
	if err != nil {
		whole = bytes.Count(out[:n], []byte("\n"))
		if w.torn && n > 0 {
			whole--
		}
		counts.Errors.Add(1)
		counts.Lost.Add(uint64(b.lines - whole))
		w.complain(err, b.lines-whole)
	}
	counts.Lines.Add(uint64(whole))
	if n > 0 {
		w.torn = out[n-1] != '\n'
	}
	w.queue.free <- b
}

func (w *Writer) complain(err error, lost int) {
	if now := time.Now(); now.After(w.quiet) {
		w.quiet = now.Add(complainEvery)
		w.log.Warn("access log not written; what fails within the next minute is only counted", "path", w.path, "lost", lost, "error", err)
	}
}
