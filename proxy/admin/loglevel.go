package admin

import (
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/remora-proxy/remora/proxy/config"
)

// logLevels are the levels that a sidecar can log at, by their names in the
// configuration.
var logLevels = map[string]slog.Level{
	config.LevelDebug: slog.LevelDebug, config.LevelInfo: slog.LevelInfo,
	config.LevelWarn: slog.LevelWarn, config.LevelError: slog.LevelError,
}

// LogLevel is the level with a name that the configuration takes.
func LogLevel(name string) (level slog.Level, ok bool) {
	level, ok = logLevels[name]
	return level, ok
}

// maxLevelName is more than the longest body of a PUT that is read.
const maxLevelName = 16

// logLevel answers with the level in force.
func (s *Server) logLevel(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, strings.ToLower(s.opt.Level.Level().String()))
}

// setLogLevel sets the level that the body names, until the process ends. The
// configuration stays as it is.
func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxLevelName))
	level, ok := LogLevel(strings.TrimSpace(string(body)))
	if err != nil || !ok {
		plain(w, http.StatusBadRequest, "expected one of debug, info, warn, error")
		return
	}
	was := s.opt.Level.Level()
	s.opt.Level.Set(level)
	// At a level that is shown before and after: who reads the log should know
	// why it falls silent.
	s.opt.Log.Log(r.Context(), max(was, level, slog.LevelWarn), "log level changed", "from", was.String(), "to", level.String())
	s.logLevel(w, r)
}
