package main

import (
	"context"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
)

// logBacklog is how many records may wait for whoever reads the log.
const logBacklog = 1024

// newLog is the sidecar's own log. Loops log too, and a loop must not wait: the
// records are written by a goroutine of their own, and when its reader is slow
// (a full pipe) and the backlog too, they are dropped, and counted in the next
// one that is written. level may be changed at any time. flush waits until all is
// written, or ctx is done.
func newLog(c *config.Log, to io.Writer) (log *slog.Logger, level *slog.LevelVar, flush func(ctx context.Context)) {
	level = new(slog.LevelVar)
	if configured, ok := admin.LogLevel(c.Level); ok {
		level.Set(configured)
	}
	opt := &slog.HandlerOptions{Level: level}
	var h slog.Handler = slog.NewJSONHandler(to, opt)
	if c.Format == config.FormatText {
		h = slog.NewTextHandler(to, opt)
	}
	q := &logQueue{records: make(chan logRecord, logBacklog)}
	go q.write()
	return slog.New(queued{h, q}), level, q.flush
}

type logRecord struct {
	h slog.Handler
	r slog.Record
	// written is closed instead of a record being written: all before it are.
	written chan struct{}
}

// logQueue hands records to the goroutine that writes them.
type logQueue struct {
	records chan logRecord
	dropped atomic.Int64
}

func (q *logQueue) write() {
	for rec := range q.records {
		if rec.written != nil {
			close(rec.written)
			continue
		}
		if n := q.dropped.Swap(0); n > 0 {
			lost := slog.NewRecord(time.Now(), slog.LevelWarn, "log records dropped: nobody reads them", 0)
			lost.AddAttrs(slog.Int64("count", n))
			_ = rec.h.Handle(context.Background(), lost)
		}
		_ = rec.h.Handle(context.Background(), rec.r)
	}
}

func (q *logQueue) flush(ctx context.Context) {
	written := make(chan struct{})
	select {
	case q.records <- logRecord{written: written}:
	case <-ctx.Done():
		return
	}
	select {
	case <-written:
	case <-ctx.Done():
	}
}

// queued is a handler whose records are written later.
type queued struct {
	slog.Handler
	q *logQueue
}

func (h queued) Handle(_ context.Context, r slog.Record) error {
	select {
	case h.q.records <- logRecord{h: h.Handler, r: r}:
	default:
		h.q.dropped.Add(1)
	}
	return nil
}

func (h queued) WithAttrs(attrs []slog.Attr) slog.Handler {
	return queued{h.Handler.WithAttrs(attrs), h.q}
}

func (h queued) WithGroup(name string) slog.Handler { return queued{h.Handler.WithGroup(name), h.q} }
