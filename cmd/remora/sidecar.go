package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/handover"
	"github.com/remora-proxy/remora/proxy/loop"
	"github.com/remora-proxy/remora/proxy/reactor"
	"github.com/remora-proxy/remora/proxy/stream"
	"github.com/remora-proxy/remora/proxy/telemetry/accesslog"
	"github.com/remora-proxy/remora/proxy/telemetry/otlp"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
)

// sidecar is a running process: the core on its loops, its listeners, its
// registry and its admin API. Fields that start has not come to are nil.
type sidecar struct {
	log          *slog.Logger
	level        *slog.LevelVar // of log
	engine       *reactor.Engine
	proc         *proxy.Process
	workers      map[loop.Loop]*proxy.Worker
	admin        *admin.Server
	streams      *stream.Server
	spans        *otlp.Exporter
	etcd         *etcd.Registry   // nil: none configured
	discovered   *registry.Shared // of etcd; nil: none configured
	dns          dns.Options      // how host names are resolved
	accessCounts accesslog.Counts
	dialing      atomic.Pointer[dialers]

	// door is where a successor comes, nil: none can; replaced is closed when one
	// serves. restarts is how many processes this one is the successor of.
	door        *handover.Door
	replaced    chan struct{}
	restarts    int
	before      chan struct{} // closed when the process whose place this one took has ended; nil: there was none
	inherited   *inheritance  // of the process before, until the end of start
	adminSocket net.Listener  // nil: no admin API

	// changing is held by a reload, and by a drain from its start on; with it go
	// the configuration in use and what was made of it. mu guards what the admin
	// API reads of that.
	changing      sync.Mutex
	cfg           *config.Config
	listeners     map[string]*listening
	sources       map[string]*source
	mu            sync.Mutex
	announcements []*announcement
	identities    identities
	reloads       admin.ReloadStats
	access        *accesslog.Writer // nil: no access log

	// ended ends with stop; retiring is what reloads have left behind to end.
	ended    context.Context
	end      context.CancelFunc
	retiring sync.WaitGroup

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
// accepted before it can be served, and nothing announced before it is accepted. It
// takes the place of the process that has its door at path; "": of none. While nothing is
// accepted yet, ctx ends it, with its error.
func start(ctx context.Context, cfg *config.Config, path string, log *slog.Logger, level *slog.LevelVar) (s *sidecar, err error) {
	s = &sidecar{
		cfg: cfg, log: log, level: level, drained: make(chan struct{}), workers: make(map[loop.Loop]*proxy.Worker),
		replaced: make(chan struct{}), dns: dns.Options{Logger: log},
		listeners: make(map[string]*listening), sources: make(map[string]*source),
		reloads: admin.ReloadStats{Since: time.Now(), Outcomes: make(map[string]uint64)},
	}
	for _, outcome := range outcomes { // a rate needs the 0 before the first
		s.reloads.Outcomes[outcome] = 0
	}
	s.ended, s.end = context.WithCancel(context.Background())
	if s.inherited, err = inherit(cfg, path, log); err != nil {
		s.end()
		return nil, err
	}
	defer s.inherited.close()
	s.restarts = s.inherited.restarts
	goOn := context.AfterFunc(ctx, s.end)
	settled := func() error {
		if goOn() {
			return nil
		}
		return ctx.Err()
	}
	for _, step := range []func() error{
		s.startLoops, s.connect, s.openAdmin, s.watch, s.bindAll, s.learn, settled, s.succeed, s.listen,
	} {
		if err := step(); err != nil {
			if s.ended.Err() != nil {
				err = ctx.Err() // what it was waiting for does not matter
			}
			s.stop()
			return nil, err
		}
	}
	s.announce(cfg)
	s.relieve()
	s.openDoor(s.inherited.door)
	s.admin.Enter(admin.Serving)
	if before := s.inherited.predecessor; before != nil {
		s.before = make(chan struct{})
		s.startAdmin()
		s.inherited.predecessor = nil
		s.retiring.Go(func() { s.outlive(before) })
	}
	if s.door != nil {
		s.retiring.Go(s.answerDoor)
	}
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
	if s.identities, err = openIdentities(s.cfg, nil, s.log); err != nil {
		return err
	}
	limitMemory(s.cfg)
	s.engine, err = reactor.Start(reactor.Options{
		Loops: loops, MaxConnections: s.cfg.Limits.Connections, MaxPerSource: s.cfg.Limits.PerSource, WriteStall: s.cfg.Timeouts.Write,
		DialTLS: s.dialTLS, Logger: s.log,
	})
	if err != nil {
		return err
	}
	s.proc = proxy.NewProcess(s.cfg, loops)
	s.proc.SetWall(time.Now)
	if s.access, err = s.openAccessLog(s.cfg); err != nil {
		return err
	}
	s.proc.Generation().LogTo(queue(s.access))
	for _, l := range s.engine.Loops() {
		s.workers[l] = proxy.NewWorker(s.proc, l, s.log, rand.Uint64())
	}
	dialing := s.dialersOf(s.cfg, s.identities)
	s.dialing.Store(&dialing)
	s.streams = stream.New(stream.Options{
		Process: s.proc, Dial: s.engine.DialSocket, Room: s.engine.Room, Logger: s.log, Before: s.inherited.parked,
	})
	s.proc.SetStreams(s.streams)
	s.spans = otlp.New(otlp.Options{Node: s.cfg.Node.ID, Version: versionOf(version, buildInfo()), Logger: s.log})
	s.spans.Configure(&s.cfg.Tracing)
	s.proc.SetSpans(s.spans)
	return nil
}

// limitMemory sets how much memory the process should take. Near this the collector
// runs sooner than at twice the live heap, so that what peers make the sidecar hold
// for a moment does not count double.
func limitMemory(cfg *config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryBase + 5*cfg.Limits.Buffered/2)
	}
}

// openAdmin makes the admin API. It comes early, so that /readyz tells what a start is
// waiting for; but while a predecessor is ready, that answers.
func (s *sidecar) openAdmin() (err error) {
	o := admin.Options{
		Process: s.proc, Version: versionOf(version, buildInfo()), Log: s.log, Level: s.level,
		Reactor:       func() admin.ReactorStats { return admin.ReactorStats(s.engine.Stats()) },
		Registrations: s.registrations,
		Identities:    s.identityStats,
		Reloads:       s.reloadStats,
		Restarts:      s.restarts,
		Tracing:       func() admin.TracingStats { return admin.TracingStats(s.spans.Stats()) },
		AccessLog:     s.accessStats,
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
	if s.adminSocket, err = s.inherited.socket(s.cfg.Admin.Address); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	if s.inherited.predecessor == nil {
		s.startAdmin()
	}
	return nil
}

func (s *sidecar) startAdmin() {
	if s.adminSocket != nil {
		s.admin.Start(s.adminSocket)
		s.log.Info("admin API", "address", s.adminSocket.Addr().String())
	}
}

// connect turns to the registry, if there is one. It does not wait for it.
func (s *sidecar) connect() (err error) {
	c := &s.cfg.Registry.Etcd
	if len(c.Endpoints) == 0 {
		return nil
	}
	o := etcd.Options{
		Endpoints: c.Endpoints, Prefix: c.Prefix, LeaseTTL: c.LeaseTTL,
		Username: c.Username, Password: c.Password,
		CacheDir: s.cfg.Registry.CacheDir, DNS: s.dns, Logger: s.log,
	}
	o.DNS.Known = s.inherited.names
	if source := s.identities.source(etcdIdentity); source != nil {
		o.TLS = source.Client
	}
	if s.etcd, err = etcd.New(o); err != nil {
		return fmt.Errorf("registry: %w", err)
	}
	s.discovered = registry.Share(s.etcd)
	return nil
}

// stop ends what start has started, in the reverse order, and waits for it.
func (s *sidecar) stop() {
	s.end()
	s.shutDoor()
	s.retiring.Wait()
	for _, a := range s.announcements {
		a.stop()
	}
	for _, l := range s.listeners {
		_ = l.close() // again, after a drain
	}
	var err error
	if s.admin != nil {
		err = bounded(s.admin.Close)
	}
	if s.adminSocket != nil {
		_ = s.adminSocket.Close() // of a start that did not come to its use
	}
	for _, src := range s.sources {
		src.stop()
	}
	if s.etcd != nil {
		err = errors.Join(err, s.etcd.Close())
	}
	if s.streams != nil {
		err = errors.Join(err, bounded(s.streams.Close)) // before the loops that keep their accounts
	}
	if s.engine != nil {
		stopped := bounded(s.engine.Stop)
		if stopped == nil && s.proc != nil {
			s.proc.FlushAccessLog()
		}
		err = errors.Join(err, stopped)
	}
	if s.spans != nil {
		err = errors.Join(err, bounded(s.spans.Close)) // after the loops: what they end last is among it
	}
	err = errors.Join(err, s.closeAccessLog(s.access))
	s.identities.closeBut(nil)
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
