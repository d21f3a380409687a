package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/overload"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
	"github.com/remora-proxy/remora/proxy/stream"
	"github.com/remora-proxy/remora/proxy/telemetry/otlp"
)

// Sidecar is a running process. It starts its parts, drains them and stops them; what changes while it runs is the job
// of reloads, and its registrations, listeners and sources. succession passes the sidecar to another process. Parts that
// start has not reached yet are nil.
type Sidecar struct {
	log        *slog.Logger
	level      *slog.LevelVar // level of log
	version    string         // of the program
	engineKind engine.Kind
	reactor    *reactor.Reactor
	proc       *proxy.Process
	workers    map[loop.Loop]*proxy.Worker
	streams    *stream.Server
	spans      *otlp.Exporter
	admin      adminAPI

	access        accessLog
	clientCerts   clientCerts
	discovery     discovery
	sources       sources
	listeners     listeners
	registrations registrations
	reloads       *reloads
	overlays      *overlays
	succession    succession
	lifetime

	// A reload holds changing while it runs, a drain from its start on. It guards the configuration in use, and all that
	// was made of it: cfg, identities, the access log, listeners, sources and registrations. A change of identities also
	// needs mu, because the admin API reads them.
	changing   sync.Mutex
	cfg        *config.Config
	mu         sync.Mutex
	identities identities
}

// lifetime is the state of a sidecar's drain and stop.
type lifetime struct {
	draining   sync.Once
	drains     context.Context    // ends when a drain begins that no successor has caused, or with ended
	leave      context.CancelFunc // ends drains
	drained    chan struct{}      // closed at the end of the drain
	ended      context.Context    // ends when stop begins
	end        context.CancelFunc // ends ended
	background sync.WaitGroup     // goroutines that stop waits for
}

// stopTimeout bounds each part of stop. By then no client waits for a response.
const stopTimeout = 2 * time.Second

// registrationStats lists the registrations for the admin API.
func (s *Sidecar) registrationStats() []admin.Registration {
	if s.admin.Phase() == admin.Starting {
		return nil // their update may still run
	}
	return s.registrations.stats()
}

// otherFiles is the number of descriptors besides connections, on systems that don't count them.
const otherFiles = 64

// resources returns the accounting of what the process can run out of. Each resource is one line.
// s.admin must be set before anybody asks for its use.
func (s *Sidecar) resources() *overload.Manager {
	return overload.New(overload.Options{
		Resources: []overload.Resource{
			{Name: "descriptors", Used: s.openFiles, Limit: s.reactor.Connections().FileLimit},
			overload.Memory(),
			{Name: "connections", Used: s.reactor.Connections().Accepted, Limit: s.reactor.Connections().Max},
			boundedBy("handshakes", s.reactor.Handshakes),
			boundedBy("streams", s.streams.Places),
			boundedBy("buffered", func() (used, limit int) { return int(s.proc.Buffered()), int(s.proc.Config().Limits.Buffered) }),
			boundedBy("admin_connections", func() (used, limit int) { return s.admin.Connections(), s.proc.Config().Limits.AdminConnections }),
		},
		Shed: s.proc.ShedIdle, Logger: s.log, OnWork: s.reactor.OnWork,
	})
}

// boundedBy returns a resource that is bounded where it is used.
func boundedBy(name string, of func() (used, limit int)) overload.Resource {
	return overload.Resource{
		Name: name, Bounded: true,
		Used:  func() int64 { used, _ := of(); return int64(used) },
		Limit: func() int64 { _, limit := of(); return int64(limit) },
	}
}

// openFiles returns the number of open descriptors.
func (s *Sidecar) openFiles() int64 {
	if n, ok := overload.OpenFiles(); ok {
		return n
	}
	return otherFiles + s.reactor.Connections().Files() + int64(s.admin.Connections())
}

// identityStats lists the identities for the admin API.
func (s *Sidecar) identityStats() []admin.Identity {
	if s.admin.Phase() == admin.Starting {
		return nil // the start may still set them
	}
	s.mu.Lock()
	ids := s.identities
	s.mu.Unlock()
	var out []admin.Identity
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		st := ids[name].Stats()
		out = append(out, admin.Identity{
			Name: name, Loads: st.Loads, Failures: st.Failures, Begins: st.Begins, Expires: st.Expires, Outdates: st.Outdates,
		})
	}
	return out
}

// stop stops the parts that start has started, in the reverse order, and waits for
// them.
func (s *Sidecar) stop() {
	s.end()
	s.succession.close()
	err := inTime("tasks in the background", s.background.Wait)
	err = errors.Join(err, inTime("checks of registrations", s.registrations.stop))
	s.listeners.stop()
	err = errors.Join(err, s.admin.stop())
	err = errors.Join(err, inTime("sources of endpoints", s.sources.stop))
	err = errors.Join(err, inTime("registries", s.discovery.disconnect))
	if s.streams != nil {
		err = errors.Join(err, bounded(s.streams.Close)) // before the loops, which count their bytes
	}
	if s.reactor != nil {
		stopped := bounded(s.reactor.Stop)
		if stopped == nil && s.proc != nil {
			s.proc.FlushAccessLog()
		}
		err = errors.Join(err, stopped)
	}
	if s.spans != nil {
		err = errors.Join(err, bounded(s.spans.Close)) // after the loops, which may still add spans
	}
	err = errors.Join(err, closeAccessLog(s.access.writer.Load()))
	err = errors.Join(err, inTime("certificates", func() { s.identities.closeExcept(nil) }))
	if err != nil {
		s.log.Warn("some parts did not stop in time", "error", err)
	}
}

// inTime calls f, which stops a part, and returns after stopTimeout even if f does not: it may wait for a file system that does
// not respond.
func inTime(part string, f func()) error {
	return bounded(func(ctx context.Context) error {
		done := make(chan struct{})
		go func() {
			defer close(done)
			f()
		}()
		select {
		case <-done:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("%s: %w", part, ctx.Err())
		}
	})
}

// bounded calls f with stopTimeout.
func bounded(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return f(ctx)
}
