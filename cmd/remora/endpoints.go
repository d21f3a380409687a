package main

import (
	"maps"
	"net/netip"
	"reflect"
	"sync"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/health"
	"github.com/remora-proxy/remora/registry/static"
)

// source follows the endpoints of one service, and checks them if they are to be
// checked.
type source struct {
	cfg     *config.Service
	fixed   *static.Watcher  // nil: they are in the registry
	checks  *health.Follower // nil: they are not checked
	unwatch func()

	passing sync.Mutex // held while a snapshot is passed on
	ended   bool
}

// memory is what the source of a service leaves to the next.
type memory struct {
	names    dns.Known
	verdicts health.Verdicts
}

// follow starts the source of a service, which goes on with what the one before
// knows, if there is one.
func (s *sidecar) follow(c *config.Service, before memory, notify func(*registry.Snapshot)) (*source, error) {
	src := &source{cfg: c}
	var w registry.Watcher = s.discovered
	if c.Discover == config.DiscoverStatic {
		list := make([]registry.Endpoint, len(c.Endpoints))
		for i, e := range c.Endpoints {
			list[i] = registry.Endpoint{Addr: e.Address, Weight: e.Weight, Zone: e.Zone}
		}
		o := s.dns
		o.Known = before.names
		var err error
		if src.fixed, err = static.New(map[string][]registry.Endpoint{c.Name: list}, o); err != nil {
			return nil, err
		}
		w = src.fixed
		if snap := s.proc.Snapshot(c.Name); snap != nil && len(snap.Endpoints) > 0 {
			notify = s.butNone(notify)
		}
	}
	pass := func(snap *registry.Snapshot) { src.pass(snap, notify) }
	if c.Check.Enabled() {
		src.checks = health.Follow(w, c.Name, health.Options{
			Check: checkOf(&c.Check), Protocol: c.Protocol, Verdicts: before.verdicts, Logger: s.log,
		}, pass)
		src.unwatch = src.checks.Stop
	} else {
		src.unwatch = w.Watch(c.Name, pass)
	}
	return src, nil
}

// butNone leaves out static endpoints that are none, which is that no name of theirs
// resolves: addresses that may work are in use.
func (s *sidecar) butNone(notify func(*registry.Snapshot)) func(*registry.Snapshot) {
	return func(snap *registry.Snapshot) {
		if len(snap.Endpoints) == 0 {
			s.log.Warn("no host name of a service resolves; the endpoints of before stay in use", "service", snap.Service)
			return
		}
		notify(snap)
	}
}

func (src *source) pass(snap *registry.Snapshot, notify func(*registry.Snapshot)) {
	src.passing.Lock()
	defer src.passing.Unlock()
	if !src.ended {
		notify(snap)
	}
}

// stop returns when it has ended, and nothing is passed on any more.
func (src *source) stop() {
	if src.unwatch != nil {
		src.unwatch()
	}
	if src.fixed != nil {
		_ = src.fixed.Close()
	}
	src.passing.Lock()
	defer src.passing.Unlock()
	src.ended = true
}

// leaves is what the source knows by now. It must not have been stopped.
func (src *source) leaves() (m memory) {
	if src == nil {
		return m
	}
	if src.fixed != nil {
		m.names = src.fixed.Known()
	}
	if src.checks != nil {
		m.verdicts = src.checks.Verdicts()
	}
	return m
}

// resolved are the addresses of all host names in use.
func (s *sidecar) resolved() map[string][]netip.Addr {
	all := make(map[string][]netip.Addr)
	for _, src := range s.sources {
		maps.Copy(all, src.leaves().names.Addrs())
	}
	if s.etcd != nil {
		maps.Copy(all, s.etcd.Known().Addrs())
	}
	return all
}

// replace puts a source in the place of another, of which what it knows stays.
func (s *sidecar) replace(src *source, c *config.Service, notify func(*registry.Snapshot)) (*source, error) {
	if src.cfg.Discover == config.DiscoverEtcd {
		// The watch in etcd outlasts src, and with it what that holds on to.
		defer s.discovered.Watch(c.Name, func(*registry.Snapshot) {})()
	}
	m := src.leaves()
	src.stop() // first: two would overtake each other
	return s.follow(c, m, notify)
}

// serves tells whether the source is right for another configuration of its
// service.
func (src *source) serves(c *config.Service) bool {
	return src.cfg.Discover == c.Discover && src.cfg.Protocol == c.Protocol && src.cfg.Check == c.Check &&
		reflect.DeepEqual(src.cfg.Endpoints, c.Endpoints)
}

// watch follows the endpoints of every service.
func (s *sidecar) watch() error {
	update := s.proc.Generation().Update // and of no later one, for which others follow what has changed
	for name, svc := range s.cfg.Services {
		src, err := s.follow(svc, memory{names: s.inherited.names}, update)
		if err != nil {
			return err
		}
		s.sources[name] = src
	}
	return nil
}

// checkOf is a check as package health has it.
func checkOf(c *config.Check) health.Check {
	return health.Check{
		Path: c.HTTP, Interval: c.Interval, Timeout: c.Timeout, Healthy: c.Healthy, Unhealthy: c.Unhealthy,
	}
}
