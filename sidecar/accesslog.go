package sidecar

import (
	"errors"
	"log/slog"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// accessLog is the access log of a sidecar, through the changes of its
// configuration.
type accessLog struct {
	log    *slog.Logger
	counts accesslog.Counts

	writer atomic.Pointer[accesslog.Writer] // nil if there is no access log
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
