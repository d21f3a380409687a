package main

import (
	"reflect"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/health"
	"github.com/remora-proxy/remora/registry/static"
)

// source follows the endpoints of one service, and checks them if they are to be
// checked.
type source struct {
	cfg  *config.Service
	stop func() // returns when it has ended
}

// follow starts the source of a service.
func (s *sidecar) follow(c *config.Service, notify func(*registry.Snapshot)) (*source, error) {
	src := &source{cfg: c}
	var w registry.Watcher = s.etcd
	end := func() {}
	if c.Discover == config.DiscoverStatic {
		list := make([]registry.Endpoint, len(c.Endpoints))
		for i, e := range c.Endpoints {
			list[i] = registry.Endpoint{Addr: e.Address, Weight: e.Weight, Zone: e.Zone}
		}
		fixed, err := static.New(map[string][]registry.Endpoint{c.Name: list}, dns.Options{Logger: s.log})
		if err != nil {
			return nil, err
		}
		w, end = fixed, func() { _ = fixed.Close() }
	}
	var unwatch func()
	if c.Check.Enabled() {
		unwatch = health.Follow(w, c.Name, health.Options{
			Check: checkOf(&c.Check), Protocol: c.Protocol, Logger: s.log,
		}, notify)
	} else {
		unwatch = w.Watch(c.Name, notify)
	}
	src.stop = func() { unwatch(); end() }
	return src, nil
}

// serves tells whether the source is right for another configuration of its
// service.
func (s *source) serves(c *config.Service) bool {
	return s.cfg.Discover == c.Discover && s.cfg.Protocol == c.Protocol && s.cfg.Check == c.Check &&
		reflect.DeepEqual(s.cfg.Endpoints, c.Endpoints)
}

// watch follows the endpoints of every service.
func (s *sidecar) watch() error {
	for name, svc := range s.cfg.Services {
		src, err := s.follow(svc, s.proc.Update)
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
