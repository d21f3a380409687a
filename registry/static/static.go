// Package static delivers the endpoints that the configuration lists. It is the
// registry of services without a discovery service, and resolves host names with
// package dns.
package static

import (
	"fmt"
	"time"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
)

// Watcher delivers a fixed list of endpoints per service. Host names in it are
// resolved, and resolved again from time to time.
type Watcher struct{ dns *dns.Watcher }

var _ registry.Watcher = (*Watcher)(nil)

// New returns a Watcher for the endpoints of each service, by name. The error names the
// first address that is not "host:port". The caller must close the Watcher.
func New(services map[string][]registry.Endpoint, opt dns.Options) (*Watcher, error) {
	l := make(list, len(services))
	for service, endpoints := range services {
		own := make([]registry.Endpoint, len(endpoints))
		for i, e := range endpoints {
			addr, _, _, err := registry.ParseAddr(e.Addr)
			if err != nil {
				return nil, fmt.Errorf("static endpoint %q of service %s: %w", e.Addr, service, err)
			}
			e.Addr = addr
			own[i] = e
		}
		l[service] = registry.NewSnapshot(service, registry.SourceLive, time.Now(), own)
	}
	return &Watcher{dns.New(l, opt)}, nil
}

// Watch implements registry.Watcher. An unlisted service has an empty snapshot.
func (w *Watcher) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	return w.dns.Watch(service, notify)
}

// Known returns what the running watches know of host names.
func (w *Watcher) Known() dns.Known { return w.dns.Known() }

// Close ends all watches and waits for their end. It must not be called from a notify
// function.
func (w *Watcher) Close() error { return w.dns.Close() }

// list is the configured list, which may have host names.

type list map[string]*registry.Snapshot

func (l list) Watch(service string, notify func(*registry.Snapshot)) (stop func()) {
	s, ok := l[service]
	if !ok {
		s = registry.NewSnapshot(service, registry.SourceLive, time.Now(), nil)
	}
	notify(s)
	return func() {}
}
