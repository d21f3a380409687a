// Package static delivers the endpoints that the configuration lists. It is the registry of
// services without a discovery service, and resolves host names with package dns.
package static

import (
	"fmt"
	"strings"
	"time"

	"github.com/remora-proxy/remora/internal/srvname"
	"github.com/remora-proxy/remora/internal/unixaddr"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
)

// New returns a watcher for the endpoints of each service, by the service's name. The watcher
// resolves host names, again and again. An unlisted service has an empty snapshot. The error names
// the first address that is not "host:port", a Unix socket or a name of SRV records. The caller must close the watcher.
func New(services map[string][]registry.Endpoint, opt dns.Options) (*dns.Watcher, error) {
	l := make(list, len(services))
	for service, endpoints := range services {
		own := make([]registry.Endpoint, len(endpoints))
		for i, e := range endpoints {
			addr, err := canonical(e.Addr)
			if err != nil {
				return nil, fmt.Errorf("static endpoint %q of service %s: %w", e.Addr, service, err)
			}
			e.Addr = addr
			own[i] = e
		}
		l[service] = registry.NewSnapshot(service, registry.SourceLive, time.Now(), own)
	}
	return dns.New(l, opt), nil
}

// canonical returns the one spelling of an address. Only endpoints of the configuration may be
// Unix sockets: a registry must not lead the sidecar to those of its own host.
func canonical(addr string) (string, error) {
	switch {
	case unixaddr.Is(addr):
		return addr, unixaddr.Check(addr)
	case srvname.Is(addr):
		return strings.ToLower(addr), srvname.Check(addr)
	}
	a, err := registry.ParseAddr(addr)
	return a.String(), err
}

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
