package sidecar

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

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
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/sidecar/program"
)

// Sidecar is a running process. It starts its parts, drains them and stops them; what changes while it runs is the job
// of reloads, and its registrations, listeners and sources. succession passes the sidecar to another process. Parts that
// start has not reached yet are nil.
type Sidecar struct {
	log     *slog.Logger
	level   *slog.LevelVar // level of log
	version string         // of the program
	kind    engine.Kind    // of engine
	engine  *reactor.Engine
	proc    *proxy.Process
	workers map[loop.Loop]*proxy.Worker
	streams *stream.Server
	spans   *otlp.Exporter
	admin   adminAPI

	access        accessLog
	clientCerts   clientCerts
	discovery     discovery
	sources       sources
	listeners     listeners
	registrations registrations
	reloads       *reloads
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
	draining sync.Once
	drained  chan struct{}      // closed at the end of the drain
	ended    context.Context    // ends when stop begins
	end      context.CancelFunc // ends ended
	retiring sync.WaitGroup     // goroutines that stop waits for
}

// stopTimeout bounds each part of stop. By then no client waits for a response.
const stopTimeout = 2 * time.Second

// memoryBase is the memory of the process in addition to that of messages, which
// limitMemory computes.
const memoryBase = 128 << 20

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

// start starts the parts of a sidecar from the endpoints to the listeners, so that
// nothing is accepted before it can be served, and nothing registered before it can be
// accepted. If a process listens at o.Successors, start takes over from it. Until it
// accepts connections, the end of ctx ends the start, with ctx's error.
func start(ctx context.Context, o Options) (s *Sidecar, err error) {
	cfg, log := o.Config, o.Log
	s = &Sidecar{
		cfg: cfg, kind: o.Engine, version: o.Version, log: log, level: o.Level, workers: make(map[loop.Loop]*proxy.Worker),
		access: accessLog{log: log}, discovery: discovery{dns: dns.Options{Others: new(dns.Others), Logger: log}},
		admin: adminAPI{log: log, address: cfg.Admin.Address}, registrations: registrations{log: log},
		lifetime: lifetime{drained: make(chan struct{})},
	}
	s.ended, s.end = context.WithCancel(context.Background())
	s.reloads = newReloads(s)
	inherited, err := inherit(cfg, o.Successors, log)
	if err != nil {
		s.end()
		return nil, err
	}
	defer inherited.close()
	s.succession = succession{
		log: log, ended: s.ended, inherited: inherited, replaced: make(chan struct{}), changing: &s.changing, admin: &s.admin,
		listeners: &s.listeners, sources: &s.sources, registrations: &s.registrations,
		drain: func() bool { return s.beginDrain(s.drainReplaced) },
	}
	detach := context.AfterFunc(ctx, s.end)
	detachContext := func() error { // from here on ctx does not end the start
		if detach() {
			return nil
		}
		return ctx.Err()
	}
	startSources := func() error { return s.sources.startAll(cfg, s.identities, inherited.names) }
	serve := func() error { return s.listeners.serveAll(s.proc.Generation(), s.identities) }
	bindEarly, bindLate := func() error { return s.listeners.bindAll(cfg, inherited.sockets) }, func() error { return nil }
	if inherited.predecessor != nil { // whose connections a new socket may take, and lose if the start fails
		bindEarly, bindLate = bindLate, bindEarly
	}
	for _, step := range []func() error{
		s.startLoops, s.connectRegistries, s.openAdmin, startSources, bindEarly, s.awaitEndpoints, detachContext,
		bindLate, inherited.awaitRelease, serve,
	} {
		if err := step(); err != nil {
			if s.ended.Err() != nil {
				err = ctx.Err() // the error of the step is only a consequence
			}
			s.stop()
			return nil, err
		}
	}
	s.registrations.update(cfg, s.identities)
	if inherited.predecessor == nil {
		s.awaitRegistrations(ctx)
	} else {
		inherited.sayServing(s.ended, s.registrations.registered, log)
	}
	inherited.own()
	s.admin.own()
	s.listeners.ownAll(cfg)
	s.succession.listen(inherited.path)
	s.admin.Enter(admin.Serving)
	if conn := inherited.predecessor; conn != nil {
		s.succession.predecessorEnded = make(chan struct{})
		s.admin.serve()
		inherited.predecessor = nil // watchPredecessor closes it
		s.retiring.Go(func() { s.succession.watchPredecessor(conn) })
	}
	if s.succession.successors != nil {
		s.retiring.Go(s.succession.accept)
	}
	s.releasePages()
	log.Info("serving", "version", s.version, "node", cfg.Node.ID,
		"engine", s.kind.Name, "loops", len(s.proc.Workers()), "gomaxprocs", runtime.GOMAXPROCS(0))
	return s, nil
}

// releasePages gives back the pages of the program that only a start or a reload uses.
func (s *Sidecar) releasePages() {
	if err := program.ReleasePages(); err != nil {
		s.log.Warn("pages of the program that are not used any more stay resident", "error", err)
	}
}

// startLoops starts the driver, and the core on its loops.
func (s *Sidecar) startLoops() (err error) {
	loops := s.cfg.Loops
	if loops == 0 {
		loops = min(cpuquota.Whole(), reactor.MaxLoops)
	}
	// One processor more than loops. Otherwise the runtime would take a loop's
	// processor during its blocking wait, which costs time at each request.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(loops + 1)
	}
	limitMemory(s.cfg)
	s.engine, err = reactor.Start(reactor.Options{
		Engine: s.kind, Loops: loops, MaxConnections: s.cfg.Limits.Connections, MaxPerSource: s.cfg.Limits.PerSource, WriteStall: s.cfg.Timeouts.Write,
		ReservedFiles: reservedFiles(s.cfg), DialTLS: s.clientCerts.client, DialOther: s.sources.otherAddress, Logger: s.log,
	})
	if err != nil {
		return err
	}
	if s.identities, err = openIdentities(s.cfg, nil, s.log, s.engine.RecheckPeers); err != nil {
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
	for _, l := range s.engine.Loops() {
		s.workers[l] = proxy.NewWorker(s.proc, l, s.log, rand.Uint64())
	}
	s.clientCerts.set(s.proc.Generation(), s.proc.Generation(), s.identities, false)
	s.streams = stream.New(stream.Options{
		Process: s.proc, Dial: s.engine.DialSocketWith, Reserver: s.engine.Reserver, Logger: s.log, Previous: s.succession.inherited.parked,
	})
	s.proc.SetStreams(s.streams)
	s.spans = otlp.New(otlp.Options{Node: s.cfg.Node.ID, Version: s.version, Logger: s.log})
	s.spans.Configure(&s.cfg.Tracing)
	s.proc.SetSpans(s.spans)
	s.listeners = listeners{
		log: s.log, engine: s.engine, proc: s.proc, workers: s.workers, streams: s.streams, byName: make(map[string]*openListener),
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

// limitMemory sets the soft memory limit of the process. Messages may take a quarter
// more than limits.buffered, and the garbage collector may need twice that. Near the
// limit it runs sooner than at twice the live heap, so that a short peak of buffered
// messages does not double the memory.
func limitMemory(cfg *config.Config) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(memoryBase + 5*cfg.Limits.Buffered/2)
	}
}

// openAdmin creates the admin API. It opens early, so that /readyz says what a start
// waits for. During a hot restart the predecessor's admin API responds until this
// process serves.
func (s *Sidecar) openAdmin() error {
	resources := s.resources()
	s.engine.RefuseWhile(resources.Refusing)
	s.proc.SetOverload(func() bool {
		state, _ := resources.State()
		return state != overload.Normal
	})
	s.admin.Server = admin.New(admin.Options{
		Process: s.proc, Version: s.version, Engine: s.kind.Name, Log: s.log, Level: s.level,
		Reactor:       s.engine.Stats,
		Registry:      s.discovery.registryStats,
		Registrations: s.registrationStats,
		Identities:    s.identityStats,
		Reloads:       s.reloads.stats,
		Restarts:      s.succession.inherited.restarts,
		Tracing:       s.spans.Stats,
		AccessLog:     &s.access.counts,
		Overload:      resources,
		Drain:         s.startDrain,
	})
	s.retiring.Go(func() { resources.Run(s.ended) })
	if err := s.admin.bind(s.succession.inherited.sockets); err != nil {
		return err
	}
	if s.succession.inherited.predecessor == nil {
		s.admin.serve()
	}
	return nil
}

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
			{Name: "descriptors", Used: s.openFiles, Limit: s.engine.FileLimit},
			overload.Memory(),
			{Name: "connections", Used: s.engine.Accepted, Limit: s.engine.MaxAccepted},
			boundedBy("handshakes", s.engine.Handshakes),
			boundedBy("streams", s.streams.Places),
			boundedBy("buffered", func() (used, limit int) { return int(s.proc.Buffered()), int(s.proc.Config().Limits.Buffered) }),
			boundedBy("admin_connections", func() (used, limit int) { return s.admin.Connections(), s.proc.Config().Limits.AdminConnections }),
		},
		Shed: s.proc.ShedIdle, Logger: s.log, OnWork: s.engine.OnWork,
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
	return otherFiles + s.engine.Files() + int64(s.admin.Connections())
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

// connectRegistries makes the clients of the registries.
func (s *Sidecar) connectRegistries() error {
	err := s.discovery.connect(s.cfg, s.identities, s.succession.inherited.names)
	s.registrations.registrar = s.discovery.registrar
	return err
}

// awaitEndpoints waits until the loops know the endpoints of all services. Clients wait
// meanwhile in the backlog of a socket, so that early requests don't fail. A service
// whose endpoints stay unknown doesn't stop a start, but it stops a hot restart: a
// predecessor must not be replaced by a process that knows less.
func (s *Sidecar) awaitEndpoints() error {
	err := endpointsKnown(s.ended, s.proc.Generation())
	if err != nil && s.succession.inherited.predecessor == nil {
		s.log.Warn("a service has no endpoints yet", "error", err)
		return nil
	}
	return err
}

// awaitRegistrations waits until the registry has confirmed the endpoints of this sidecar, so
// that a caller that starts after this sidecar is ready finds them. Applications that have not
// passed their check yet are not waited for: an application may start after its sidecar is
// ready. A registry that does not respond delays a start, but doesn't stop it.
func (s *Sidecar) awaitRegistrations(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, endpointsTimeout)
	defer cancel()
	if !poll(ctx, s.registrations.settled) {
		s.log.Warn("the registry has not confirmed an own endpoint yet")
	}
}

// stop stops the parts that start has started, in the reverse order, and waits for
// them.
func (s *Sidecar) stop() {
	s.end()
	s.succession.close()
	s.retiring.Wait()
	s.registrations.stop()
	s.listeners.stop()
	err := s.admin.stop()
	s.sources.stop()
	err = errors.Join(err, s.discovery.disconnect())
	if s.streams != nil {
		err = errors.Join(err, bounded(s.streams.Close)) // before the loops, which count their bytes
	}
	if s.engine != nil {
		stopped := bounded(s.engine.Stop)
		if stopped == nil && s.proc != nil {
			s.proc.FlushAccessLog()
		}
		err = errors.Join(err, stopped)
	}
	if s.spans != nil {
		err = errors.Join(err, bounded(s.spans.Close)) // after the loops, which may still add spans
	}
	err = errors.Join(err, closeAccessLog(s.access.writer.Load()))
	s.identities.closeExcept(nil)
	if err != nil {
		s.log.Warn("some parts did not stop in time", "error", err)
	}
}

// bounded calls f with stopTimeout.
func bounded(f func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	return f(ctx)
}
