package admin

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/remora-proxy/remora/proxy/config"
)

// ReloadStats say what became of changes of the configuration.
type ReloadStats struct {
	Since    time.Time         // when the configuration in use came into use
	Outcomes map[string]uint64 // how many reloads ended so: "applied", "unchanged" or the code of a refusal
	Refused  Refusal           // the last one, unless a later reload has succeeded
}

// Refusal is a reload that has changed nothing. The zero Refusal is none.
type Refusal struct {
	At     time.Time
	Code   string // stable
	Reason string // may have several lines
}

// config is the configuration in use.
func (s *Server) config() *config.Config { return s.opt.Process.Config() }

// service is what the configuration says of a service; of one that a reload has
// just removed, what it says of any.
func (s *Server) service(name string) *config.Service {
	if c := s.config().Services[name]; c != nil {
		return c
	}
	return config.DefaultService(name)
}

// showConfig answers with the effective configuration, secrets redacted. Comments
// above tell its generation, and why the last reload was refused.
func (s *Server) showConfig(w http.ResponseWriter, _ *http.Request) {
	g := s.opt.Process.Generation()
	text, err := g.Config().YAML()
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	var head bytes.Buffer
	fmt.Fprintf(&head, "# generation %d", g.Number())
	if s.opt.Reloads != nil {
		st := s.opt.Reloads()
		fmt.Fprintf(&head, ", since %s\n", st.Since.Format(time.RFC3339))
		if r := &st.Refused; r.Code != "" {
			reason := strings.ReplaceAll(r.Reason, "\n", "\n#   ")
			fmt.Fprintf(&head, "# refused at %s (%s):\n#   %s", r.At.Format(time.RFC3339), r.Code, reason)
		}
	}
	w.Header().Set("Content-Type", "application/yaml")
	_, _ = fmt.Fprintf(w, "%s\n%s", bytes.TrimSuffix(head.Bytes(), []byte("\n")), text)
}

// The families of reloads.
var (
	generation = gauge("config_generation", "The configuration in use, counted from 1 at the start.")
	configured = gauge("config_applied_timestamp_seconds", "When it came into use.")
	reloads    = counter("config_reloads_total", "Reloads: applied, unchanged, or the code of the refusal.", "outcome")
)

func (c *collector) reloads(to *page) {
	to.put(generation, float64(c.s.opt.Process.Generation().Number()))
	if c.s.opt.Reloads == nil {
		return
	}
	st := c.s.opt.Reloads()
	to.put(configured, float64(st.Since.UnixMilli())/1e3)
	for outcome, n := range st.Outcomes {
		to.put(reloads, float64(n), outcome)
	}
}
