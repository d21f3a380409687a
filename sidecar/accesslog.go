package sidecar

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// accessLog is the access log of a sidecar, through the changes of its
// configuration.
type accessLog struct {
	log    *slog.Logger
	counts accesslog.Counts

	writer atomic.Pointer[accesslog.Writer] // nil if there is no access log
	cfg    config.AccessLog                 // of writer
}

// open opens the access log of a configuration, for the lines of so many loops; nil means that there is none. If path
// and buffer are unchanged it returns the current one.
func (a *accessLog) open(c *config.AccessLog, loops int) (*accesslog.Writer, error) {
	current := a.writer.Load()
	switch {
	case c.Path == "":
		return nil, nil
	case current != nil && c.Path == a.cfg.Path && c.Buffer == a.cfg.Buffer:
		return current, nil
	}
	w, err := accesslog.Open(c.Path, accesslog.NewQueue(c.Buffer, loops, &a.counts), a.log)
	if err != nil {
		return nil, fmt.Errorf("access_log: %w", err)
	}
	return w, nil
}

// use makes w, which open has returned for c, the access log.
func (a *accessLog) use(w *accesslog.Writer, c *config.AccessLog) {
	a.cfg = *c
	a.writer.Store(w)
}

// reopen reopens the access log, whose file may have been moved away.
func (a *accessLog) reopen() {
	w := a.writer.Load()
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
