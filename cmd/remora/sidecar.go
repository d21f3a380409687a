package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/stream"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/static"
)

// sidecar is a running process: the core on its loops, its listeners, its
// registry and its admin API. Fields that start has not come to are nil.
type sidecar struct {
	cfg           *config.Config
	log           *slog.Logger
	level         *slog.LevelVar // of log
	engine        *reactor.Engine
	proc          *proxy.Process
	admin         *admin.Server
	listeners     []io.Closer // *reactor.Listener or *stream.Listener
	streams       *stream.Server
	static        *static.Watcher
	etcd          *etcd.Registry // nil: none configured
	checks        []func()       // of services; each call ends one
	announcements []*announcement
	identities    []identity

	draining sync.Once
	drained  chan struct{} // closed when nothing is left to drain
}

// stopTimeout bounds each part of stop. By then nothing is in flight that
// anybody waits for.
const stopTimeout = 2 * time.Second

// memoryBase is the memory of the process beside twice what messages may take,
// which is a quarter above limits.buffered.
const memoryBase = 128 << 20

// start brings everything up against the way of a request, so that nothing is
// accepted before it can be served, and nothing announced before it is accepted.
func start(cfg *config.Config, log *slog.Logger, level *slog.LevelVar) (s *sidecar, err error) {
	s = &sidecar{cfg: cfg, log: log, level: level, drained: make(chan struct{})}
	for _, step := range []func() error{
		s.startLoops, s.connect, s.startAdmin, s.watch, s.listen, s.announce,
	} {
		if err := step(); err != nil {
			s.stop()
			return nil, err
		}
	}
	s.admin.Enter(admin.Serving)
	log.Info("serving", "version", versionOf(version, buildInfo()), "node", cfg.Node.ID,
		"loops", len(s.proc.Workers()), "gomaxprocs", runtime.GOMAXPROCS(0))
	return s, nil
}

// startLoops starts the driver and puts the core on it.
func (s *sidecar) startLoops() (err error) {
	loops := s.cfg.Loops
	if loops == 0 {
		loops = reactor.Loops(reactor.CPUQuota())
	}
	// One processor more than loops: each loop's blocking wait would otherwise
	// have its processor taken away, and pay for it at every request.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(loops + 1)
	}
	dialTLS, err := s.dialTLS()
	if err != nil {
		return err
	}
	// Near this the collector runs sooner than at twice the live heap, so that
	// what peers make the sidecar hold for a moment does not count double.
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryBase + 5*s.cfg.Limits.Buffered/2)
	}
	s.engine, err = reactor.Start(reactor.Options{
		Loops: loops, MaxConnections: s.cfg.Limits.Connections, MaxPerSource: s.cfg.Limits.PerSource, WriteStall: s.cfg.Timeouts.Write,
		DialTLS: dialTLS, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.proc = proxy.NewProcess(s.cfg, loops)
	s.proc.Wall = time.Now
	for _, l := range s.engine.Loops() {
		proxy.NewWorker(s.proc, l, s.log, rand.Uint64())
	}
	s.streams = stream.New(stream.Options{
		Config: s.cfg, Process: s.proc, Dial: s.engine.DialSocket, Room: s.engine.Room, Logger: s.log,
	})
	s.proc.SetStreams(s.streams)
	return nil
}

// startAdmin comes early, so that /readyz tells what a start is waiting for.
func (s *sidecar) startAdmin() error {
	o := admin.Options{
		Config: s.cfg, Process: s.proc, Version: versionOf(version, buildInfo()), Log: s.log, Level: s.level,
		Reactor:       func() admin.ReactorStats { return admin.ReactorStats(s.engine.Stats()) },
		Registrations: s.registrations,
		Identities:    s.identityStats,
		Drain:         s.startDrain,
	}
	if s.etcd != nil {
		o.Registry = func() admin.RegistryStats {
			st := s.etcd.Stats()
			return admin.RegistryStats{Connected: st.Connected, LastError: st.LastError}
		}
	}
	s.admin = admin.New(o)
	if s.cfg.Admin.Address == "" {
		return nil
	}
	if err := s.admin.Start(); err != nil {
		return err
	}
	s.log.Info("admin API", "address", s.admin.Addr().String())
	return nil
}

// connect makes the sources of endpoints. It waits for none of them.
func (s *sidecar) connect() (err error) {
	lists := make(map[string][]registry.Endpoint)
	for name, svc := range s.cfg.Services {
		for _, e := range svc.Endpoints {
			lists[name] = append(lists[name], registry.Endpoint{Addr: e.Address, Weight: e.Weight, Zone: e.Zone})
		}
	}
	opt := dns.Options{Logger: s.log}
	if s.static, err = static.New(lists, opt); err != nil {
		return err
	}
	c := &s.cfg.Registry.Etcd
	if len(c.Endpoints) == 0 {
		return nil
	}
	o := etcd.Options{
		Endpoints: c.Endpoints, Prefix: c.Prefix, LeaseTTL: c.LeaseTTL,
		Username: c.Username, Password: c.Password,
		CacheDir: s.cfg.Registry.CacheDir, DNS: opt, Logger: s.log,
	}
	if c.Secured() {
		source, err := s.identity("registry.etcd.tls", &c.TLS)
		if err != nil {
			return err
		}
		o.TLS = source.Client
	}
	if s.etcd, err = etcd.New(o); err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	return nil
}

// listen opens all listeners.
func (s *sidecar) listen() error {
	byLoop := make(map[proxy.Loop]*proxy.Worker)
	for i, l := range s.engine.Loops() {
		byLoop[l] = s.proc.Workers()[i]
	}
	for i := range s.cfg.Listeners {
		c := &s.cfg.Listeners[i]
		var l interface {
			io.Closer
			Addr() net.Addr
		}
		o, err := s.listenOptions(c)
		if err != nil {
			return err
		}
		if c.Protocol == config.ProtocolTCP {
			l, err = s.streams.Listen(c)
		} else {
			l, err = s.engine.Listen(c.Address, o, func(l proxy.Loop, _ string) proxy.Stream {
				return byLoop[l].Accept(c)
			})
		}
		if err != nil {
			return fmt.Errorf("listener %s: %w", c.Name, err)
		}
		s.listeners = append(s.listeners, l)
		s.log.Info("listening", "listener", c.Name, "address", l.Addr().String(), "protocol", c.Protocol,
			"tls", c.TLS.Enabled())
	}
	return nil
}

// stop ends what start has started, in the reverse order, and waits for it.
func (s *sidecar) stop() {
	for _, a := range s.announcements {
		a.stop()
	}
	for _, l := range s.listeners {
		_ = l.Close() // again, after a drain
	}
	var err error
	if s.admin != nil {
		err = bounded(s.admin.Close)
	}
	for _, end := range s.checks {
		end()
	}
	if s.etcd != nil {
		err = errors.Join(err, s.etcd.Close())
	}
	if s.static != nil {
		err = errors.Join(err, s.static.Close())
	}
	if s.streams != nil {
		err = errors.Join(err, bounded(s.streams.Close)) // before the loops that keep their accounts
	}
	if s.engine != nil {
		err = errors.Join(err, bounded(s.engine.Stop))
	}
	for _, id := range s.identities {
		id.source.Close()
	}
	if err != nil {
		s.log.Warn("not all ended in order", "error", err)
	}
}

// bounded calls f with stopTimeout.
func bounded(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return f(ctx)
}
