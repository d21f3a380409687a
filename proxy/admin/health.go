package admin

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/proxy"
)

// healthz responds 200 if every loop responds within a second, so that the process is
// alive. Endpoints and the registry do not matter, since a restart would not help them.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	_, stuck := query(r.Context(), s.opt.Process, s.loopTimeout, func(*proxy.Worker) struct{} { return struct{}{} })
	if len(stuck) > 0 {
		unavailable(w, stuckLoops(stuck))
		return
	}
	plain(w, http.StatusOK, "ok")
}

// readyz responds 200 if the sidecar may receive traffic: all listeners are open, the registry
// has had its time to confirm the sidecar's own endpoints, every loop has the endpoints of every routed service or knows that there are none, and the
// sidecar is not draining. Otherwise it responds 503, with a line for each missing
// condition. With ?verbose a line for each source of endpoints follows, for each resource of the process, and for the engine.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	lines, status := s.unreadiness(r), http.StatusServiceUnavailable
	if len(lines) == 0 {
		lines, status = []string{"ready"}, http.StatusOK
	}
	if r.URL.Query().Has("verbose") {
		lines = append(lines, checks(s.opt.Sources())...)
		lines = append(lines, s.resources()...)
		lines = append(lines, "engine: "+s.opt.Engine)
	}
	plain(w, status, strings.Join(lines, "\n"))
}

// resources returns the overload state of the process, and the use of each resource.
func (s *Server) resources() []string {
	state, reason := s.opt.Overload.State()
	lines := []string{"overload: " + state.String()}
	if reason != "" {
		lines[0] += " because of " + reason
	}
	for _, r := range s.opt.Overload.Resources() {
		lines = append(lines, fmt.Sprintf("%s: %d of %d", r.Name, r.Used(), r.Limit()))
	}
	return lines
}

// unreadiness returns a line for each reason why the sidecar is not ready.
func (s *Server) unreadiness(r *http.Request) (lines []string) {
	if p := s.Phase(); p != Serving {
		return []string{p.String()}
	}
	services := s.config().RoutedServices()
	missing, stuck := query(r.Context(), s.opt.Process, s.loopTimeout, func(w *proxy.Worker) []string {
		var names []string
		for _, name := range services {
			if !w.Applied(name) {
				names = append(names, name)
			}
		}
		return names
	})
	if len(stuck) > 0 {
		lines = append(lines, stuckLoops(stuck))
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(missing...)))) {
		lines = append(lines, fmt.Sprintf("service %s: no endpoints known yet", name))
	}
	return lines
}

// drain starts a drain as SIGTERM does, but the process does not exit: it stays until
// SIGTERM, not ready and without listeners. So a deployment script can drain it, wait
// until /readyz says "drained", and then stop it.
func (s *Server) drain(w http.ResponseWriter, _ *http.Request) {
	if s.Phase() == Starting {
		unavailable(w, Starting.String())
		return
	}
	s.opt.Drain()
	plain(w, http.StatusAccepted, max(s.Phase(), Draining).String())
}

func plain(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n"))
}

func unavailable(w http.ResponseWriter, lines ...string) {
	plain(w, http.StatusServiceUnavailable, strings.Join(lines, "\n"))
}

// Phase is a phase in the life of a sidecar. Phases only go forward.
type Phase uint32

// The phases.
const (
	Starting Phase = iota // listeners are not all open yet
	Serving               // the only one in which the sidecar may be ready
	Draining              // finishing requests and streams in flight
	Drained               // nothing is in flight; the process waits for SIGTERM
)

var phaseNames = [...]string{"starting", "serving", "draining", "drained"}

// String returns the phase's name in lower case.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "unknown"
}

// Enter moves to phase p. It does nothing if a later phase was entered before.
func (s *Server) Enter(p Phase) {
	for {
		old := s.phase.Load()
		if old >= uint32(p) || s.phase.CompareAndSwap(old, uint32(p)) {
			return
		}
	}
}

// Phase returns the current phase.
func (s *Server) Phase() Phase { return Phase(s.phase.Load()) }
