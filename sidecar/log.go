package sidecar

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/internal/printable"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
)

// logBacklog is the number of records that may be queued for writing.
const logBacklog = 1024

// NewLog returns the sidecar's own log. Loops log too, and a loop must not wait, so a
// separate goroutine writes the records. If the reader is slow (a full pipe) and the
// queue is full, records are dropped, and a later record has their number. level may be
// changed at any time. flush waits until all records are written, or ctx is done.
func NewLog(c *config.Log, to io.Writer) (log *slog.Logger, level *slog.LevelVar, flush func(ctx context.Context)) {
	level = new(slog.LevelVar)
	if configured, ok := admin.LogLevel(c.Level); ok {
		level.Set(configured)
	}
	opt := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewJSONHandler(printable.JSON(to), opt)
	if c.Format == config.FormatText {
		h = slog.NewTextHandler(to, opt)
	}
	q := &logQueue{records: make(chan *logRecord, logBacklog)}
	go q.write()
	return slog.New(queued{h, q}), level, q.flush
}

type logRecord struct {
	h slog.Handler
	r slog.Record
	// written marks no record: it is closed when all records before it are written.
	written chan struct{}
}

// logQueue passes records to the goroutine that writes them.
type logQueue struct {
	records chan *logRecord // pointers, since the channel is seldom filled and always there
	dropped atomic.Int64
}

func (q *logQueue) write() {
	for rec := range q.records {
		if rec.written != nil {
			close(rec.written)
			continue
		}
		if n := q.dropped.Swap(0); n > 0 {
			lost := slog.NewRecord(time.Now(), slog.LevelWarn, "log records dropped: the reader is too slow", 0)
			lost.AddAttrs(slog.Int64("count", n))
			_ = rec.h.Handle(context.Background(), lost)
		}
		_ = rec.h.Handle(context.Background(), rec.r)
	}
}

func (q *logQueue) flush(ctx context.Context) {
	written := make(chan struct{})
	select {
	case q.records <- &logRecord{written: written}:
	case <-ctx.Done():
		return
	}
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// queued is a handler that queues records.
type queued struct {
	slog.Handler
	q *logQueue
}

func (h queued) Handle(_ context.Context, r slog.Record) error {
	if len(h.q.records) < cap(h.q.records) { // a record that is dropped takes no memory
		select {
		case h.q.records <- &logRecord{h: h.Handler, r: r}:
			return nil
		default:
		}
	}
	h.q.dropped.Add(1)
	return nil
}

func (h queued) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queued{h.Handler.WithAttrs(attrs), h.q}
}

func (h queued) WithGroup(name string) slog.Handler { return queued{h.Handler.WithGroup(name), h.q} }

// LogWarnings logs the warnings of a configuration.
func LogWarnings(log *slog.Logger, c *config.Config) {
	for _, w := range c.Warnings {
		log.Warn("configuration: "+w.Text, "key", w.Path, "file", w.File, "line", w.Line)
	}
}
