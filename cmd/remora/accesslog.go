package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// accessLog is the access log of a sidecar, through the changes of its
// configuration.
type accessLog struct {
	log    *slog.Logger
	counts accesslog.Counts

	mu     sync.Mutex
	writer *accesslog.Writer // nil if there is no access log; changed only by set
}

// open opens the access log of the configuration next. It returns the current writer
// if path and buffer are those of current, and nil if there is no access log.
func (a *accessLog) open(current, next *config.AccessLog, loops int) (*accesslog.Writer, error) {
	switch {
	case next.Path == "":
		return nil, nil
	case a.writer != nil && next.Path == current.Path && next.Buffer == current.Buffer:
		return a.writer, nil
	}
	w, err := accesslog.Open(next.Path, accesslog.NewQueue(next.Buffer, loops, &a.counts), a.log)
	if err != nil {
		return nil, fmt.Errorf("access_log: %w", err)
	}
	return w, nil
}

// set changes the writer.
func (a *accessLog) set(w *accesslog.Writer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.writer = w
}

// rotate reopens the access log after each signal, until ctx ends.
func (a *accessLog) rotate(ctx context.Context, signals <-chan os.Signal) {
	for {
		select {
		case <-signals:
			a.reopen()
		case <-ctx.Done():
			return
		}
	}
}

func (a *accessLog) reopen() {
	a.mu.Lock()
	w := a.writer
	a.mu.Unlock()
	if w == nil {
		a.log.Info("there is no access log to reopen")
		return
	}
	if err := w.Reopen(); err != nil {
		a.log.Error("access log not reopened; the old file stays in use", "error", err)
		return
	}
	a.log.Info("access log reopened")
}

// stats returns the counters for the admin API.
func (a *accessLog) stats() admin.AccessLogStats {
	c := &a.counts
	return admin.AccessLogStats{
		Lines: c.Lines.Load(), Overflow: c.Overflow.Load(), Lost: c.Lost.Load(), Errors: c.Errors.Load(),
	}
}

// queueOf returns the queue for the loops' lines, nil for a nil writer.
func queueOf(w *accesslog.Writer) *accesslog.Queue {
	if w == nil {
		return nil
	}
	return w.Queue()
}

// closeAccessLog closes w, which may be nil, after it has written its queue.
func closeAccessLog(w *accesslog.Writer) error {
	if w == nil {
		return nil
	}
	if err := bounded(w.Close); err != nil {
		return errors.Join(errors.New("the last lines of the access log were not all written"), err)
	}
	return nil
}
