package admin

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
)

// ReloadStats has the results of reloads of the configuration.
type ReloadStats struct {
	Since    time.Time         // when the current configuration was applied
	Outcomes map[string]uint64 // reloads by result: "applied", "unchanged" or the code of a refusal
	Refused  Refusal           // the last refusal; zero if a later reload has succeeded
}

// Refusal is a reload that was refused. The zero Refusal means that there is none.
type Refusal struct {
	At     time.Time
	Code   string // stable
	Reason string // may have several lines
}

// OverlayStats says which revision of the overlay on the file is in use. Revision 0 is the file alone.
type OverlayStats struct {
	Revision int64     `json:"revision"`
	Since    time.Time `json:"since"`

	Refused int64  `json:"refused,omitempty"` // the revision that should be in use, if Code is set
	Code    string `json:"code,omitempty"`    // why it is not; empty if it is
	Reason  string `json:"reason,omitempty"`
}

// ConfigState says which configuration is in use, and whether a later one was refused.
type ConfigState struct {
	Generation uint64            `json:"generation"` // counted from 1 at the start
	Since      time.Time         `json:"since"`
	Reloads    map[string]uint64 `json:"reloads"`            // by result, as in the metric config_reloads_total
	Revision   int64             `json:"revision,omitempty"` // of the overlay; 0 means the file alone
	Overlay    *OverlayStats     `json:"overlay,omitempty"`  // nil without config
	Refused    *RefusedReload    `json:"refused,omitempty"`  // the last one, unless a later reload has succeeded
}

// RefusedReload is a reload that was refused.
type RefusedReload struct {
	At     time.Time `json:"at"`
	Code   string    `json:"code"`
	Reason string    `json:"reason"` // may have several lines
}

func (s *Server) configState() ConfigState {
	st := s.opt.Reloads()
	out := ConfigState{Generation: s.opt.Process.Generation().Number(), Since: st.Since, Reloads: st.Outcomes}
	if s.opt.Overlay != nil {
		st := s.opt.Overlay()
		out.Revision, out.Overlay = st.Revision, &st
	}
	if r := &st.Refused; r.Code != "" {
		out.Refused = &RefusedReload{r.At, r.Code, r.Reason}
	}
	return out
}

// firstRequest returns a command that sends a request through the sidecar, or "" if no listener
// takes one from curl.
func firstRequest(c *config.Config) string {
	for i := range c.Listeners {
		l := &c.Listeners[i]
		at, err := netip.ParseAddrPort(l.Address)
		if err != nil || !proxy.TakesHTTP(l.Protocol) || at.Port() == 0 {
			continue
		}
		if at.Addr().IsUnspecified() {
			at = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port())
		}
		scheme := "http"
		if l.TLS.Enabled() {
			scheme = "https"
		}
		if l.Service != "" {
			return fmt.Sprintf("curl -i %s://%s/", scheme, at)
		}
		for j := range c.Routes {
			m := &c.Routes[j].Match
			if m.OfDubbo() || len(m.Header) > 0 || strings.ContainsAny(m.Host+m.Path, "*'") {
				continue
			}
			host, path := "", cmp.Or(m.Path, m.PrefixText, "/")
			if m.Host != "" {
				host = " -H 'Host: " + m.Host + "'"
			}
			return fmt.Sprintf("curl -i%s '%s://%s%s'", host, scheme, at, path)
		}
	}
	return ""
}

// showConfig responds with the current configuration, secrets redacted. Comments above it
// have its generation, and the reason why the last reload was refused.
func (s *Server) showConfig(w http.ResponseWriter, _ *http.Request) {
	g := s.opt.Process.Generation()
	text, err := g.Config().YAML()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var head bytes.Buffer
	st := s.opt.Reloads()
	fmt.Fprintf(&head, "# generation %d, since %s\n", g.Number(), st.Since.Format(time.RFC3339))
	if r := &st.Refused; r.Code != "" {
		reason := strings.ReplaceAll(r.Reason, "\n", "\n#   ")
		at := r.At.Format(time.RFC3339)
		fmt.Fprintf(&head, "# refused at %s (%s):\n#   %s\n", at, r.Code, reason)
	}
	s.overlayComment(&head)
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = w.Write(append(head.Bytes(), text...))
}

// overlayComment adds the comments of /config about the overlay.
func (s *Server) overlayComment(to *bytes.Buffer) {
	if s.opt.Overlay == nil {
		return
	}
	st := s.opt.Overlay()
	fmt.Fprintf(to, "# revision %d of the overlay, since %s\n", st.Revision, st.Since.Format(time.RFC3339))
	if st.Code != "" {
		fmt.Fprintf(to, "# revision %d refused (%s):\n#   %s\n", st.Refused, st.Code, strings.ReplaceAll(st.Reason, "\n", "\n#   "))
	}
}

// logLevels has the log levels by their names in the configuration.
var logLevels = map[string]slog.Level{
	config.LevelDebug: slog.LevelDebug, config.LevelInfo: slog.LevelInfo,
	config.LevelWarn: slog.LevelWarn, config.LevelError: slog.LevelError,
}

// LogLevel returns the level with a name of the configuration; ok is false for any other
// name.
func LogLevel(name string) (level slog.Level, ok bool) {
	level, ok = logLevels[name]
	return level, ok
}

// maxLevelName limits the body of a PUT. It is longer than every name.
const maxLevelName = 16

// logLevel responds with the current level.
func (s *Server) logLevel(w http.ResponseWriter, _ *http.Request) {
	plain(w, http.StatusOK, strings.ToLower(s.opt.Level.Level().String()))
}

// setLogLevel sets the level that the body names, until the process ends. It does not
// change the configuration.
func (s *Server) setLogLevel(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxLevelName))
	level, ok := LogLevel(strings.TrimSpace(string(body)))
	if err != nil || !ok {
		plain(w, http.StatusBadRequest, "expected one of debug, info, warn, error")
		return
	}
	was := s.opt.Level.Level()
	s.opt.Level.Set(level)
	// The line has a level that is logged before and after the change, so that the log
	// says why it has fewer lines.
	s.opt.Log.Log(r.Context(), max(was, level, slog.LevelWarn), "log level changed", "from", was.String(), "to", level.String())
	s.logLevel(w, r)
}
