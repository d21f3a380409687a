package admin

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/proxy"
)

// healthz answers 200 when every loop answers within a second: the process is
// alive. It says nothing about endpoints or the registry, for a restart would
// not help with those.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	_, stuck := ask(r.Context(), s.opt.Process, s.patience, func(*proxy.Worker) struct{} { return struct{}{} })
	if len(stuck) > 0 {
		unavailable(w, []string{fmt.Sprintf("loops %v do not answer", stuck)})
		return
	}
	plain(w, http.StatusOK, "ok")
}

// readyz answers 200 when traffic may be sent: all listeners are open, every
// loop has endpoints (or knows that there are none) of every service that
// traffic is led to, and the sidecar is not draining. Otherwise 503, with a line
// for each thing that is missing.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	if p := s.Phase(); p != Serving {
		unavailable(w, []string{p.String()})
		return
	}
	services := s.routedServices()
	missing, stuck := ask(r.Context(), s.opt.Process, s.patience, func(w *proxy.Worker) []string {
		var names []string
		for _, name := range services {
			if !w.Applied(name) {
				names = append(names, name)
			}
		}
		return names
	})
	var lines []string
	if len(stuck) > 0 {
		lines = append(lines, fmt.Sprintf("loops %v do not answer", stuck))
	}
	for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(missing...)))) {
		lines = append(lines, fmt.Sprintf("service %s: no endpoints known yet", name))
	}
	if len(lines) > 0 {
		unavailable(w, lines)
		return
	}
	plain(w, http.StatusOK, "ready")
}

// routedServices are those that a route or a listener leads to, sorted.
func (s *Server) routedServices() []string {
	names := map[string]bool{}
	cfg := s.config()
	for i := range cfg.Routes {
		r := &cfg.Routes[i]
		names[r.Service] = true
		for _, share := range r.Split {
			names[share.Name] = true
		}
	}
	for i := range cfg.Listeners {
		if name := cfg.Listeners[i].Service; name != "" {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// drain starts a drain, as SIGTERM does, but for the end of the process: it
// stays, unready and without listeners, until SIGTERM, so that a deployment
// script can drain first, look at /readyz for "drained", and end it then.
func (s *Server) drain(w http.ResponseWriter, _ *http.Request) {
	if s.Phase() == Starting {
		unavailable(w, []string{Starting.String()})
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

func unavailable(w http.ResponseWriter, lines []string) {
	plain(w, http.StatusServiceUnavailable, strings.Join(lines, "\n"))
}
