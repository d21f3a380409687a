package admin

import (
	"net/http"
	"net/http/pprof"
	"strconv"
)

// routes is the API's table.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", s.metrics())
	mux.HandleFunc("GET /config", s.showConfig)
	mux.HandleFunc("GET /endpoints", s.endpoints)
	mux.HandleFunc("GET /hedging", s.hedging)
	mux.HandleFunc("GET /stats", s.stats)
	mux.HandleFunc("GET /milliseconds", s.milliseconds)
	mux.HandleFunc("POST /drain", s.drain)
	if s.opt.Level != nil {
		mux.HandleFunc("GET /log/level", s.logLevel)
		mux.HandleFunc("PUT /log/level", s.setLogLevel)
	}
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("POST /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// routeName is how a route is called in metrics and JSON: as in the
// configuration, or "listener" for that of listeners with a fixed service.
func routeName(i int) string {
	if i < 0 {
		return "listener"
	}
	return "routes[" + strconv.Itoa(i) + "]"
}
