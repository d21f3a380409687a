package sidecar

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"time"

	"github.com/remora-proxy/remora/fleet"
	"github.com/remora-proxy/remora/internal/cpuquota"
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

// Options are what a sidecar is started with.
type Options struct {
	Config     *config.Config
	File       *ConfigFile // that Config came from; nil without one
	Watch      bool        // the file is applied whenever its content changes
	Engine     engine.Kind
	Version    string // of the program
	Successors string // path of the socket at which the process awaits its successor; empty for none
	Log        *slog.Logger
	Level      *slog.LevelVar // of Log
}

// starting is the start of a sidecar.
type starting struct {
	*Sidecar
	ctx       context.Context // its end ends the start
	detach    func() bool     // makes the end of ctx mean nothing
	inherited *inheritance
}

// start starts a sidecar. If a process listens at o.Successors, start takes over from it. Until the sidecar accepts
// connections, the end of ctx ends the start, with ctx's error.
func start(ctx context.Context, o Options) (*Sidecar, error) {
	revision := o.firstRevision()
	inherited, err := inherit(o.Config, o.Successors, o.Log)
	if err != nil {
		return nil, err
	}
	defer inherited.close()
	s := &starting{Sidecar: newSidecar(o), ctx: ctx, inherited: inherited}
	s.succession.inherited = inherited
	s.useOverlays(revision)
	s.detach = context.AfterFunc(ctx, s.end)
	for _, step := range s.steps() {
		if err := step(); err != nil {
			if s.ended.Err() != nil {
				err = ctx.Err() // the error of the step is only a consequence
			}
			s.stop()
			return nil, err
		}
	}
	s.enterService()
	return s.Sidecar, nil
}

// steps returns the steps of a start that can fail, in their order: nothing is accepted before it can be served.
//
// Without a predecessor, sockets are bound early: an address in use ends the start at once. Beside a predecessor they
// are bound late: the kernel gives a new socket connections that the predecessor would have got, and they are lost if
// a later step fails.
func (s *starting) steps() []func() error {
	alone := s.inherited.predecessor == nil
	return []func() error{
		s.startLoops,
		s.connectRegistries,
		s.openAdmin,
		s.watchEndpoints,
		s.bindIf(alone),
		s.awaitEndpoints,
		s.detachContext,
		s.bindIf(!alone),
		s.inherited.exchangeReadyForReleased,
		s.accept,
	}
}

// enterService is the rest of a start, which can't fail: nothing is registered before it can be accepted.
func (s *starting) enterService() {
	s.registrations.update(s.cfg, s.identities)
	if s.inherited.predecessor == nil {
		s.awaitRegistrations()
	} else {
		s.inherited.sayServing(s.ended, s.registrations.registered, s.log)
	}
	s.inherited.own()
	s.admin.own()
	s.listeners.ownAll(s.cfg)
	s.succession.listen(s.inherited.path)
	s.admin.Enter(admin.Serving)
	if conn := s.inherited.predecessor; conn != nil {
		s.succession.predecessorEnded = make(chan struct{})
		s.admin.serve()
		s.inherited.predecessor = nil // watchPredecessor closes it
		s.background.Go(func() { s.succession.watchPredecessor(conn) })
	}
	if s.succession.successors != nil {
		s.background.Go(s.succession.accept)
	}
	if s.overlays.keys != nil {
		s.background.Go(s.overlays.run)
	}
	s.releaseStart()
	paceCollector(s.ended)
	s.log.Info("serving", "version", s.version, "node", s.cfg.Node.ID,
		"engine", s.engineKind.Name, "loops", len(s.proc.Workers()), "gomaxprocs", runtime.GOMAXPROCS(0))
}

// newSidecar returns a sidecar of which nothing has started.
func newSidecar(o Options) *Sidecar {
	s := &Sidecar{
		cfg: o.Config, engineKind: o.Engine, version: o.Version, log: o.Log, level: o.Level, workers: make(map[loop.Loop]*proxy.Worker),
		access: accessLog{log: o.Log}, discovery: newDiscovery(o.Log),
		admin: adminAPI{log: o.Log, address: o.Config.Admin.Address}, registrations: registrations{log: o.Log},
		lifetime: lifetime{drained: make(chan struct{})},
	}
	s.ended, s.end = context.WithCancel(context.Background())
	s.drains, s.leave = context.WithCancel(s.ended)
	s.reloads = newReloads(s, o.File)
	s.succession = succession{
		log: o.Log, ended: s.ended, replaced: make(chan struct{}), changing: &s.changing, admin: &s.admin,
		listeners: &s.listeners, sources: &s.sources, registrations: &s.registrations,
		drain: func() bool { return s.beginDrain(s.drainReplaced) },
	}
	return s
}

// useOverlays makes the sidecar follow overlays from a revision that its configuration has.
func (s *Sidecar) useOverlays(r fleet.Revision) {
	s.reloads.revision = r
	s.overlays = newOverlays(s, r.Number)
	s.reloads.applied = s.overlays.changed
}

// watchEndpoints watches the endpoints of all services.
func (s *starting) watchEndpoints() error {
	return s.sources.startAll(s.cfg, s.identities, s.inherited.names)
}

// bindIf returns the step that binds the sockets of all listeners, or does nothing.
func (s *starting) bindIf(now bool) func() error {
	return func() error {
		if !now {
			return nil
		}
		if err := s.listeners.bindAll(s.cfg, s.inherited.sockets); err != nil {
			return err
		}
		s.discovery.reach.settle(s.cfg, s.boundNames())
		return nil
	}
}

// detachContext makes the end of the context mean nothing for the sidecar.
func (s *starting) detachContext() error {
	if s.detach() {
		return nil
	}
	return s.ctx.Err()
}

// accept begins to accept connections.
func (s *starting) accept() error { return s.listeners.serveAll(s.proc.Generation(), s.identities) }

// startLoops starts the driver, and the core on its loops.
func (s *starting) startLoops() (err error) {
	loops := s.cfg.Loops
	if loops == 0 {
		loops = min(cpuquota.Whole(), reactor.MaxLoops)
	}
	// More processors than loops. Otherwise the runtime would take a loop's processor during its blocking wait, which
	// costs time at each request.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(reactor.Processors(loops))
	}
	limitMemory(s.cfg)
	s.reactor, err = reactor.Start(reactor.Options{
		Engine: s.engineKind, Loops: loops, MaxConnections: s.cfg.Limits.Connections, MaxPerSource: s.cfg.Limits.PerSource, WriteStall: s.cfg.Timeouts.Write,
		ReservedFiles: reservedFiles(s.cfg), DialTLS: s.clientCerts.client, DialOther: s.sources.otherAddress, Logger: s.log,
	})
	if err != nil {
		return err
	}
	if s.identities, err = openIdentities(s.cfg, nil, s.log, s.reactor.Trust().Recheck); err != nil {
		return err
	}
	s.proc = proxy.NewProcess(s.cfg, loops)
	s.proc.SetWall(time.Now)
	w, err := s.access.open(&s.cfg.AccessLog, loops)
	if err != nil {
		return err
	}
	s.access.use(w, &s.cfg.AccessLog)
	s.proc.Generation().LogTo(queueOf(w))
	for _, l := range s.reactor.Loops() {
		s.workers[l] = proxy.NewWorker(s.proc, l, s.log, rand.Uint64())
	}
	s.clientCerts.set(s.proc.Generation(), s.proc.Generation(), s.identities, false)
	s.streams = stream.New(stream.Options{
		Process: s.proc, Dial: s.reactor.SocketDialer().Dial, Reserver: s.reactor.Connections().Reserver,
		Logger: s.log, Panics: s.reactor.Panics(), Previous: s.inherited.parked,
	})
	s.proc.SetStreams(s.streams)
	s.spans = otlp.New(otlp.Options{Node: s.cfg.Node.ID, Version: s.version, Logger: s.log})
	s.spans.Configure(&s.cfg.Tracing)
	s.proc.SetSpans(s.spans)
	s.listeners = listeners{
		log: s.log, reactor: s.reactor, proc: s.proc, workers: s.workers, streams: s.streams, byName: make(map[string]*openListener),
	}
	s.sources = sources{log: s.log, discovery: &s.discovery, proc: s.proc, streams: s.streams, byService: make(map[string]*source)}
	s.succession.streams = s.streams
	return nil
}

// reservedFiles returns the number of descriptors of what the driver does not know: the admin
// API; sockets that listen, two at a time (one may be at a part of the other's address), and as many
// again while a reload or a hot restart passes them on; and connections to etcd, which a reload
// replaces, too.
func reservedFiles(cfg *config.Config) int {
	return cfg.Limits.AdminConnections + 4*(1+len(cfg.Listeners)) + 4*cfg.Registry.Servers()
}

// connectRegistries makes the clients of the registries.
func (s *starting) connectRegistries() error {
	err := s.discovery.connect(s.cfg, s.identities, s.inherited.names)
	s.registrations.registrar = s.discovery.registrar
	if st := storeOf(s.cfg, s.discovery.connections[config.DiscoverEtcd]); st != nil {
		s.overlays.keys = st
	}
	return err
}

// openAdmin creates the admin API. It opens early, so that /readyz says what a start
// waits for. During a hot restart the predecessor's admin API responds until this
// process serves.
func (s *starting) openAdmin() error {
	resources := s.resources()
	s.reactor.Connections().RefuseWhile(resources.Refusing)
	s.proc.SetOverload(func() bool {
		state, _ := resources.State()
		return state != overload.Normal
	})
	var overlay func() admin.OverlayStats
	if s.overlays.keys != nil {
		overlay = s.overlays.stats
	}
	s.admin.Server = admin.New(admin.Options{
		Overlay: overlay,
		Process: s.proc, Version: s.version, Engine: s.engineKind.Name, Log: s.log, Level: s.level,
		Reactor:       s.reactor.Stats,
		Panics:        s.reactor.Panics(),
		Sources:       s.discovery.stats,
		Refused:       s.discovery.reach.stats,
		Registrations: s.registrationStats,
		Identities:    s.identityStats,
		Reloads:       s.reloads.stats,
		Restarts:      s.inherited.restarts,
		Tracing:       s.spans.Stats,
		AccessLog:     &s.access.counts,
		Overload:      resources,
		Drain:         s.startDrain,
	})
	s.background.Go(func() { resources.Run(s.ended) })
	if err := s.admin.bind(s.inherited.sockets); err != nil {
		return err
	}
	s.discovery.reach.settle(s.cfg, s.boundNames()) // before the first endpoint is judged
	if s.inherited.predecessor == nil {
		s.admin.serve()
	}
	return nil
}

// awaitEndpoints waits until the loops know the endpoints of all services. Clients wait
// meanwhile in the backlog of a socket, so that early requests don't fail. A service
// whose endpoints stay unknown doesn't stop a start, but it stops a hot restart: a
// predecessor must not be replaced by a process that knows less.
func (s *starting) awaitEndpoints() error {
	err := endpointsKnown(s.ended, s.proc.Generation())
	if err != nil && s.inherited.predecessor == nil {
		s.log.Warn("a service has no endpoints yet", "error", err)
		return nil
	}
	return err
}

// awaitRegistrations waits until the registry has confirmed the endpoints of this sidecar, so
// that a caller that starts after this sidecar is ready finds them. Applications that have not
// passed their check yet are not waited for: an application may start after its sidecar is
// ready. A registry that does not respond delays a start, but doesn't stop it.
func (s *starting) awaitRegistrations() {
	ctx, cancel := context.WithTimeout(s.ctx, endpointsTimeout)
	defer cancel()
	if !poll(ctx, s.registrations.settled) {
		s.log.Warn("the registry has not confirmed an own endpoint yet")
	}
}
