package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
)

// openAccessLog opens the access log of cfg; nil: it has none. One that is open and
// leads there goes on.
func (s *sidecar) openAccessLog(cfg *config.Config) (*accesslog.Writer, error) {
	c, old := &cfg.AccessLog, &s.cfg.AccessLog
	switch {
	case c.Path == "":
		return nil, nil
	case s.access != nil && c.Path == old.Path && c.Buffer == old.Buffer:
		return s.access, nil
	}
	w, err := accesslog.Open(c.Path, accesslog.NewQueue(c.Buffer, len(s.engine.Loops()), &s.accessCounts), s.log)
	if err != nil {
		return nil, fmt.Errorf("access_log: %w", err)
	}
	return w, nil
}

// queue is where the loops' lines go; w may be nil.
func queue(w *accesslog.Writer) *accesslog.Queue {
	if w == nil {
		return nil
	}
	return w.Queue()
}

// rotate opens the access log anew whenever asked to, until the sidecar ends.
func (s *sidecar) rotate(asked <-chan os.Signal) {
	for {
		select {
		case <-asked:
			s.reopenAccessLog()
		case <-s.ended.Done():
			return
		}
	}
}

func (s *sidecar) reopenAccessLog() {
	s.mu.Lock()
	w := s.access
	s.mu.Unlock()
	if w == nil {
		s.log.Info("there is no access log to open anew")
		return
	}
	if err := w.Reopen(); err != nil {
		s.log.Error("access log not opened anew, the old file is written on", "error", err)
		return
	}
	s.log.Info("access log opened anew")
}

// closeAccessLog ends w, which may be nil, once what waits is written.
func (s *sidecar) closeAccessLog(w *accesslog.Writer) error {
	if w == nil {
		return nil
	}
	if err := bounded(w.Close); err != nil {
		return errors.Join(errors.New("the access log's last lines are not all written"), err)
	}
	return nil
}

// accessStats is for the admin API.
func (s *sidecar) accessStats() admin.AccessLogStats {
	c := &s.accessCounts
	return admin.AccessLogStats{
		Lines: c.Lines.Load(), Overflow: c.Overflow.Load(), Lost: c.Lost.Load(), Errors: c.Errors.Load(),
	}
}
