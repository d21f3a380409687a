// Package admin serves the admin API: health, metrics and state of a sidecar,
// for people, orchestrators and Prometheus, over HTTP on a port of its own.
//
// It reads atomic and immutable parts of the core directly. For the parts that belong
// to a loop it posts one function per request to that loop. The history reads loops that wait
// without waking them. A loop waits for the admin API only while such a function runs.
//
//	admin.go            the API, its options and paths; guard.go and connections.go who may ask, and how many at once
//	health.go           /healthz and /readyz; sources.go how the sources of endpoints do
//	collect.go          asks all loops at once
//	stats.go            /stats; history.go /history; sums.go what a sidecar reports to its fleet
//	hedging.go          /hedging; state.go /endpoints and /services; config.go /config
//	dashboard.go        the page at /
//	profiles.go         /debug/pprof/
//	metrics.go          /metrics; page.go its text, family.go a metric; each metrics_*.go has the metrics of one subject
//	metrics_loop.go     loops and links; metrics_service.go services and streams; metrics_endpoint.go endpoints
//	metrics_process.go  the process; metrics_optional.go what needs a registry, TLS or tracing
package admin

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/internal/panics"
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/overload"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/otlp"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
)

// Options are the sources of the API. All fields but Overlay are required.
type Options struct {
	Process *proxy.Process
	Version string
	Engine  string // that waits for the sockets of the loops

	// Reactor returns the driver's counters.
	Reactor func() stats.DriverStats

	Panics *panics.Counter // counts those on the goroutine of the history

	// Registrations returns the endpoints that this sidecar announces.
	Registrations func() []Registration

	// Identities returns the state of the TLS certificates.
	Identities func() []Identity

	// Sources returns how the sources of endpoints do, in an order that stays.
	Sources func() []SourceStats

	// Refused returns the endpoints that registries have and the sidecar does not use.
	Refused func() RefusedStats

	// Reloads returns the results of reloads.
	Reloads func() ReloadStats

	// Overlay returns the revision of the overlay in use. nil means that there are no overlays.
	Overlay func() OverlayStats

	// Restarts is the number of hot restarts before this process.
	Restarts int

	// Tracing returns the counts of spans.
	Tracing func() otlp.Stats

	// AccessLog has the counts of the access log since the start, over all
	// configurations.
	AccessLog *accesslog.Counts

	// Overload has the resources of the process and their use.
	Overload *overload.Manager

	// Drain starts a drain and returns at once. It may be called again, but is not called
	// in phase Starting.
	Drain func()

	Log *slog.Logger

	// Level is the level of Log, which /log/level shows and changes.
	Level *slog.LevelVar
}

// Identity is the state of one certificate of this sidecar.
type Identity struct {
	Name     string    // its place in the configuration
	Loads    uint64    // successful loads of its files
	Failures uint64    // failed loads of changed files
	Begins   time.Time // of its certificate that ends first; zero if there are only authorities
	Expires  time.Time // its end
	Outdates time.Time // first nextUpdate of its revocation lists; zero if there is none
}

// RefusedStats are endpoints that registries have and that the sidecar does not use, as their addresses are no address of a replica.
type RefusedStats struct {
	Endpoints []RefusedEndpoint // now; only some, if there are many
	Counts    []RefusedCount    // since the start
}

// RefusedEndpoint is one of RefusedStats.
type RefusedEndpoint struct {
	Source  string `json:"source"` // name of the registry
	Service string `json:"service"`
	Address string `json:"address"`
	Host    string `json:"host,omitempty"` // the name that led to the address
	Reason  string `json:"reason"`
}

// RefusedCount is how many endpoints of a registry were refused for a reason.
type RefusedCount struct {
	Source, Reason string
	Endpoints      uint64
}

// Registration is one endpoint that this sidecar announces.
type Registration struct {
	Service string `json:"service"`
	Address string `json:"address"`
	State   string `json:"state"` // a registry.State, or "checking" before the first passed check
	Error   string `json:"error,omitempty"`
}

// Server serves the admin API over HTTP: what the sidecar does now, and how to drain it. Its methods may be called
// from any goroutine.
type Server struct {
	opt      Options
	phase    atomic.Uint32
	http     http.Server
	conns    connLimit
	serving  sync.WaitGroup // goroutines of the sockets
	reports  chan struct{}  // has a token while the loops are queried
	history  history
	recorder sync.WaitGroup
	stop     context.CancelFunc // of recorder; nil before Start
	denied   atomic.Uint64      // requests without the token
	began    time.Time

	loopTimeout time.Duration // defaultLoopTimeout, except in tests
}

const (
	// defaultLoopTimeout is how long a loop may take to respond before it counts as stuck.
	defaultLoopTimeout = time.Second

	// writeTimeout limits a response. Profiles add their own duration to it.
	writeTimeout = 10 * time.Second

	maxHeader = 16 << 10
)

// New returns a Server in phase Starting that does not listen yet.
func New(o Options) *Server {
	s := &Server{opt: o, began: time.Now(), loopTimeout: defaultLoopTimeout, reports: make(chan struct{}, 1)}
	s.http = http.Server{
		Handler:           s.guard(s.routes()),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       writeTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	s.conns.bound(&s.http, o.Process.Config().Limits.AdminConnections)
	return s
}

// Start serves the API on sockets, which the Server then owns. It returns at once.
func (s *Server) Start(sockets ...net.Listener) {
	ctx, stop := context.WithCancel(context.Background())
	s.stop = stop
	s.recorder.Go(func() { s.history.record(ctx, s) })
	for _, ln := range sockets {
		s.serving.Go(func() {
			if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
				s.opt.Log.Error("admin API has stopped: its listener failed", "address", ln.Addr().String(), "error", err)
			}
		})
	}
}

// Close stops the API. Responses in progress are finished, or aborted when ctx ends.
// Without Start it does nothing.
func (s *Server) Close(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.recorder.Wait()
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	s.serving.Wait()
	return err
}

// Connections returns the number of open connections of the API.
func (s *Server) Connections() int { return s.conns.count() }

// routes returns the paths of the API.
func (s *Server) routes() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", index)
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	mux.Handle("GET /metrics", newScraper(s))
	mux.HandleFunc("GET /config", s.showConfig)
	mux.HandleFunc("GET /endpoints", s.reported(stats.Counters, s.endpoints, forPeople))
	mux.HandleFunc("GET /hedging", s.reported(stats.Forecasts, s.hedging, forPeople))
	mux.HandleFunc("GET /stats", s.reported(stats.Verdicts, s.stats, forPrograms))
	mux.HandleFunc("GET /milliseconds", s.milliseconds)
	mux.Handle("GET /history", &s.history)
	mux.HandleFunc("POST /drain", s.drain)
	mux.HandleFunc("GET /log/level", s.logLevel)
	mux.HandleFunc("PUT /log/level", s.setLogLevel)
	mux.Handle("/debug/pprof/", profiles(func() bool { return s.config().Admin.Profiles }))
	return mux
}

// routeName returns the name of a route in metrics and JSON: its place in the
// configuration, or "listener" for the route of a listener with a fixed service.
func routeName(i int) string {
	if i < 0 {
		return "listener"
	}
	return "routes[" + strconv.Itoa(i) + "]"
}

// config returns the configuration in use.
func (s *Server) config() *config.Config { return s.opt.Process.Config() }

// service returns the configuration of a service, or the defaults if a reload has removed it.
func (s *Server) service(name string) *config.Service {
	if c := s.config().Services[name]; c != nil {
		return c
	}
	return config.DefaultService(name)
}
