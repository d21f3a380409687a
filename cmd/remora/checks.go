package main

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/health"
)

// watch follows the endpoints of every service, and checks those that are to be
// checked.
func (s *sidecar) watch() error {
	for name, svc := range s.cfg.Services {
		var w registry.Watcher = s.static
		if svc.Discover == config.DiscoverEtcd {
			w = s.etcd
		}
		if !svc.Check.Enabled() {
			w.Watch(name, s.proc.Update)
			continue
		}
		s.checks = append(s.checks, health.Follow(w, name, health.Options{
			Check: checkOf(&svc.Check), Protocol: svc.Protocol, Logger: s.log,
		}, s.proc.Update))
	}
	return nil
}

// checkOf is a check as package health has it.
func checkOf(c *config.Check) health.Check {
	return health.Check{
		Path: c.HTTP, Interval: c.Interval, Timeout: c.Timeout, Healthy: c.Healthy, Unhealthy: c.Unhealthy,
	}
}
