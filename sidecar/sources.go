package sidecar

import (
	"crypto/tls"
	"log/slog"
	"maps"
	"reflect"
	"slices"
	"sync"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/stream"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/health"
)

// sources watch the endpoints of all services. Reloads replace those of services that have changed.
type sources struct {
	log       *slog.Logger
	discovery *discovery
	proc      *proxy.Process
	streams   *stream.Server

	byService map[string]*source
}

// startAll starts the sources of all services of cfg, whose identities are ids. known are the addresses of host names
// that the predecessor knows.
func (s *sources) startAll(cfg *config.Config, ids identities, known dns.Known) error {
	update := s.proc.Generation().Update // of this generation only: a reload replaces the sources that change
	for name, svc := range cfg.Services {
		src, err := s.start(svc, ids.ofService(name), sourceState{names: known}, update)
		if err != nil {
			return err
		}
		src.use()
		s.byService[name] = src
	}
	return nil
}

// stop stops all sources.
func (s *sources) stop() {
	for _, src := range s.byService {
		src.stop()
	}
}

// source watches the endpoints of one service, and checks their health if the service
// has a check.
type source struct {
	cfg     *config.Service
	own     registryClient   // of this service alone; nil if the registry serves all services
	keeper  *keeper          // nil if the source could not be started
	checks  *health.Follower // nil without a check
	unwatch func()
	cut     func(service string, down []string) // cuts streams, as stream.Server.SetDown does

	notifying sync.Mutex // held while a snapshot is passed on; guards the fields below
	stopped   bool
	inUse     bool
	isKnown   bool     // a snapshot came
	down      []string // addresses of the endpoints that must not be used, as the last snapshot has them
}

// sourceState is what a source passes to the next source of the service.
type sourceState struct {
	names     dns.Known
	verdicts  health.Verdicts
	endpoints []registry.Endpoint // in use, if the next source replaces this one
}

// start starts a source of the service c, whose TLS identity is id. It continues with the state of the
// previous source, and passes snapshots to notify. Until use it changes no stream: a reload may still be refused.
func (s *sources) start(c *config.Service, id *certs.Source, before sourceState, notify func(*registry.Snapshot)) (*source, error) {
	w, own, err := s.discovery.watcher(c, before.names)
	if err != nil {
		return nil, err
	}
	src := &source{cfg: c, own: own, cut: s.streams.SetDown}
	update := notify
	notify = func(snap *registry.Snapshot) {
		src.setDown(downIn(snap))
		update(snap)
	}
	src.keeper = &keeper{inner: w, refuses: s.discovery.reach.comesBack, log: s.log, tally: &s.discovery.kept, last: before.endpoints}
	passOn := func(snap *registry.Snapshot) { src.notify(snap, notify) }
	if c.Check.Enabled() {
		src.checks = health.Follow(src.keeper, c.Name, health.Options{
			Check: healthCheck(&c.Check, checkTLS(c, id)), Protocol: c.Protocol, Verdicts: before.verdicts, Logger: s.log,
			Other: func(addr string) string { return s.discovery.dns.Others.Of(c.Name, addr) },
		}, passOn)
		src.unwatch = src.checks.Stop
	} else {
		src.unwatch = src.keeper.Watch(c.Name, passOn)
	}
	return src, nil
}

// otherAddress returns another address of the endpoint at addr of the service with this key, or "".
func (s *sources) otherAddress(key, addr string) string {
	if key == "" || s.discovery.dns.Others.Empty() {
		return ""
	}
	return s.discovery.dns.Others.Of(s.proc.Generation().ServiceOf(key), addr)
}

// downIn returns the addresses of the endpoints that must not be used.
func downIn(snap *registry.Snapshot) (addrs []string) {
	for i := range snap.Endpoints {
		if snap.Endpoints[i].Down {
			addrs = append(addrs, snap.Endpoints[i].Addr)
		}
	}
	return addrs
}

func (src *source) notify(snap *registry.Snapshot, notify func(*registry.Snapshot)) {
	src.notifying.Lock()
	defer src.notifying.Unlock()
	if !src.stopped {
		notify(snap)
	}
}

// setDown notes which endpoints must not be used, and cuts their streams if the source is in use. The caller holds notifying.
func (src *source) setDown(addrs []string) {
	src.isKnown = true
	if src.down = addrs; src.inUse {
		src.cut(src.cfg.Name, addrs)
	}
}

// use puts the source into use, after the end of the previous one. A second call does nothing.
func (src *source) use() {
	src.notifying.Lock()
	defer src.notifying.Unlock()
	if src.inUse {
		return
	}
	if src.inUse = true; src.isKnown {
		src.setDown(src.down)
	}
}

// stop stops the source. It passes on no snapshot after stop has returned.
func (src *source) stop() {
	if src.unwatch != nil {
		src.unwatch()
	}
	if src.own != nil {
		_ = src.own.Close()
	}
	src.notifying.Lock()
	defer src.notifying.Unlock()
	src.stopped = true
}

// state returns the current state of the source, which must not be stopped. A nil
// source has none.
func (src *source) state() (st sourceState) {
	if src == nil {
		return st
	}
	if src.own != nil {
		st.names = src.own.Known()
	}
	if src.checks != nil {
		st.verdicts = src.checks.Verdicts()
	}
	return st
}

// resolvedNames returns what is known of all host names in use.
func (s *sources) resolvedNames() map[string][]string {
	all := make(map[string][]string)
	for _, src := range s.byService {
		maps.Copy(all, src.state().names.Texts())
	}
	for _, c := range s.discovery.connections {
		maps.Copy(all, c.client.Known().Texts())
	}
	return all
}

// replace stops a source and starts another one for c, which takes over its
// state.
func (s *sources) replace(src *source, c *config.Service, id *certs.Source, notify func(*registry.Snapshot)) (*source, error) {
	defer s.discovery.hold(src.cfg)() // until the new source watches
	st := src.state()
	if snap := s.proc.Snapshot(c.Name); snap != nil {
		st.endpoints = unjudged(snap.Endpoints)
	}
	src.stop() // first, so that snapshots of the two can't overtake each other
	return s.start(c, id, st, notify)
}

// unjudged returns endpoints without the verdicts of checks.
func unjudged(endpoints []registry.Endpoint) []registry.Endpoint {
	endpoints = slices.Clone(endpoints)
	for i := range endpoints {
		endpoints[i].Unhealthy, endpoints[i].Down = false, false
	}
	return endpoints
}

// judgeAgain has all sources judge the endpoints again that they keep.
func (s *sources) judgeAgain() {
	for _, src := range s.byService {
		if src.keeper != nil {
			src.keeper.judgeAgain()
		}
	}
}

// suits reports whether the source can stay for the configuration c of its service.
func (src *source) suits(c *config.Service) bool {
	return slices.Equal(src.cfg.Discover, c.Discover) && src.cfg.Combine == c.Combine && src.cfg.Protocol == c.Protocol && src.cfg.Check == c.Check &&
		reflect.DeepEqual(src.cfg.Endpoints, c.Endpoints)
}

// healthCheck converts a check for package health. secure is the TLS of the endpoints, see checkTLS.
func healthCheck(c *config.Check, secure func(addr, host string) *tls.Config) health.Check {
	if c.Beside() {
		secure = nil
	}
	return health.Check{
		Path: c.HTTP, GRPC: c.GRPC, Host: c.Host, Port: c.Port, Interval: c.Interval, Timeout: c.Timeout,
		Healthy: c.Healthy, Unhealthy: c.Unhealthy, Strict: c.OnDown == config.OnDownClose, TLS: secure,
	}
}
