package accesslog

import (
	"bytes"
	"context"
	"io"
	"sync/atomic"
	"time"
)

// warnInterval is the shortest time between two log records about failed writes.
const warnInterval = time.Minute

// Logger takes warnings for the operator; *slog.Logger implements it.
type Logger interface {
	Warn(msg string, args ...any)
}

// output is the destination of lines, behind a pointer for atomic.Pointer.
type output struct{ io.WriteCloser }

// Writer writes the lines of a Queue on its own goroutine, and counts those that it can't.
type Writer struct {
	path     string
	queue    *Queue
	log      Logger
	out      *output
	partial  bool                   // reports whether the last write ended within a line
	nextWarn time.Time              // when the next failed write may be logged
	next     atomic.Pointer[output] // replaces out; nil if there is none
	wake     chan struct{}          // says that next is set
	closing  chan struct{}
	done     chan struct{}
}

// Open starts a Writer of the lines of q. path is Stdout, Stderr or a file, which
// Open creates if it is missing; lines are appended. The caller must call Close.
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
		wake: make(chan struct{}, 1), closing: make(chan struct{}), done: make(chan struct{}),
	}
	go w.run()
	return w
}

// Queue returns the queue that the Writer reads.
func (w *Writer) Queue() *Queue { return w.queue }

// Reopen opens the path again, for log rotation: the Writer changes files between two batches,
// and keeps the old one after an error. Reopen doesn't wait for a write in progress.
func (w *Writer) Reopen() error {
	out, err := open(w.path)
	if err != nil {
		w.queue.counts.Errors.Add(1)
		return err
	}
	if unused := w.next.Swap(&output{out}); unused != nil {
		_ = unused.Close()
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// Close writes the queued batches and stops the Writer. It returns ctx's error if
// ctx ends first. It must be called only once. Later lines are dropped.
func (w *Writer) Close(ctx context.Context) error {
	close(w.closing)
	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (w *Writer) run() {
	defer close(w.done)
	for {
		select {
		case b := <-w.queue.full:
			w.write(b)
		case <-w.wake:
			w.switchOutput()
		case <-w.closing:
			w.finish()
			return
		}
	}
}

func (w *Writer) finish() {
	for len(w.queue.full) > 0 {
		w.write(<-w.queue.full) // only this goroutine receives
	}
	w.switchOutput()
	_ = w.out.Close()
}

// switchOutput changes to the output that Reopen opened, if there is one.
func (w *Writer) switchOutput() {
	if next := w.next.Swap(nil); next != nil {
		w.partial = w.partial && w.out.isFileOf(next)
		_ = w.out.Close()
		w.out = next
	}
}

// write writes a batch and gives it back to the queue. If a write fails, the rest of
// the batch is lost: on a full disk a second try would fail too.
func (w *Writer) write(b *batch) {
	w.switchOutput()
	out := b.b
	if !w.partial {
		out = out[1:]
	}
	n, err := w.out.Write(out)
	counts, whole := w.queue.counts, b.lines
	if err != nil {
		whole = bytes.Count(out[:n], []byte("\n"))
		if w.partial && n > 0 {
			whole--
		}
		counts.Errors.Add(1)
		counts.Lost.Add(uint64(b.lines - whole))
		w.warn(err, b.lines-whole)
	}
	counts.Lines.Add(uint64(whole))
	if n > 0 {
		w.partial = out[n-1] != '\n'
	}
	w.queue.free <- b
}

func (w *Writer) warn(err error, lost int) {
	if now := time.Now(); now.After(w.nextWarn) {
		w.nextWarn = now.Add(warnInterval)
		w.log.Warn("access log not written; failures within the next minute are only counted", "path", w.path, "lost", lost, "error", err)
	}
}
