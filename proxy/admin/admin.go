// Package admin serves the admin API: health, metrics and state of a sidecar,
// for people, orchestrators and Prometheus, over HTTP on a port of its own.
//
// It reads the core in two ways only: what is atomic or immutable it reads
// directly, and what belongs to a loop it asks that loop for, with one posted
// function per loop and request. A loop never waits for the admin API.
package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy"
)

// Options is what the API tells about. Fields of which nil means nothing say so; the
// others are needed.
type Options struct {
	Process *proxy.Process
	Version string

	// Reactor reads the driver's counters.
	Reactor func() ReactorStats

	// Registrations lists what this sidecar announces; nil: nothing, ever.
	Registrations func() []Registration

	// Identities reads the state of the TLS certificates; nil: there are none.
	Identities func() []Identity

	// Registry reads the state of the registry; nil: there is none.
	Registry func() RegistryStats

	// Reloads reads what became of changes of the configuration; nil: there are
	// none.
	Reloads func() ReloadStats

	// Tracing counts the spans that were exported, and those that were not; nil:
	// there is no tracing.
	Tracing func() TracingStats

	// AccessLog reads the counts of the access log; nil: there is none, ever.
	AccessLog func() AccessLogStats

	// Drain starts a drain and returns at once. It may be called repeatedly,
	// but never in phase Starting.
	Drain func()

	Log *slog.Logger

	// Level is that of Log, for /log/level to show and to change; nil: it can't
	// be changed, and the path is not there.
	Level *slog.LevelVar
}

// ReactorStats are the driver's counters, as reactor.Stats has them.
type ReactorStats struct {
	Accepted      int64 // connections accepted and given to a loop
	Refused       int64 // connections closed at once, being over limits.connections
	RefusedSource int64 // connections closed at once, being over limits.per_source
	AcceptErrors  int64 // failed accepts, and accepted sockets that no loop took
	Inbound       int64 // accepted connections now open, detached and reserved ones too
	Open          int64 // connections now open, accepted and dialled, detached and reserved ones too
	Dialed        int64 // connections established
	DialErrors    int64 // dials that failed or took too long
	Panics        int64 // panics recovered from callbacks
	Detached      int64 // connections that left their loop
	Handshakes    int64 // TLS handshakes that succeeded

	// TLSFailures counts refused and broken TLS connections by code.
	TLSFailures map[string]int64
}

// Identity is one certificate of this sidecar, and the files it comes from.
type Identity struct {
	Name     string    // where in the configuration it stands
	Loads    uint64    // times that its files were taken into use
	Failures uint64    // times that changed files were no good
	Expires  time.Time // zero: there is no certificate, authorities alone
}

// RegistryStats say how the registry is.
type RegistryStats struct {
	Connected bool   // it answered the last probe
	LastError string // of the last probe, or ""
}

// Registration is one endpoint that this sidecar announces.
type Registration struct {
	Service string `json:"service"`
	Address string `json:"address"`
	State   string `json:"state"` // a registry.State, or "checking" before the first passed check
	Error   string `json:"error,omitempty"`
}

// Server is the admin API. Its methods may be called from any goroutine.
type Server struct {
	opt     Options
	phase   atomic.Uint32
	http    http.Server
	ln      net.Listener
	served  chan struct{}
	reports chan struct{} // held while the loops are asked
	denied  atomic.Uint64 // calls without the token
	began   time.Time

	patience time.Duration // loopPatience
}

const (
	// loopPatience is how long a loop may take to answer before it counts as
	// stuck.
	loopPatience = time.Second

	// writeTimeout bounds an answer; profiles add their own duration to it.
	writeTimeout = 10 * time.Second

	maxHeader = 16 << 10
)

// New makes the API, in phase Starting and not yet listening.
func New(o Options) *Server {
	s := &Server{opt: o, began: time.Now(), patience: loopPatience, served: make(chan struct{}), reports: make(chan struct{}, 1)}
	s.http = http.Server{
		Handler:           s.guard(s.routes()),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       writeTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       time.Minute,
		MaxHeaderBytes:    maxHeader,
		ErrorLog:          slog.NewLogLogger(o.Log.Handler(), slog.LevelWarn),
	}
	return s
}

// Handler is the API without a listener, for tests.
func (s *Server) Handler() http.Handler { return s.http.Handler }

// Start serves the API on admin.address.
func (s *Server) Start() error {
	ln, err := net.Listen("tcp", s.config().Admin.Address)
	if err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	s.ln = ln
	go func() {
		defer close(s.served)
		if err := s.http.Serve(ln); !errors.Is(err, http.ErrServerClosed) {
			s.opt.Log.Error("the admin API has ended", "error", err)
		}
	}()
	return nil
}

// Addr is where the API is served, after Start.
func (s *Server) Addr() net.Addr { return s.ln.Addr() }

// Close ends the API: answers in progress are finished, or cut off when ctx is
// done. Without Start it does nothing.
func (s *Server) Close(ctx context.Context) error {
	if s.ln == nil {
		return nil
	}
	err := s.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(err, s.http.Close())
	}
	<-s.served
	return err
}
