package zookeeper

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/internal/cutlink"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestSuite runs the suite of all registries.
func TestSuite(t *testing.T) {
	registrytest.Run(t, func(t *testing.T, endpoints ...registry.Endpoint) *registrytest.Registry {
		s := newStore(t)
		link := cutlink.To(t, s.addr)
		stored := map[string]string{} // paths of nodes, by address
		remove := func(t *testing.T, e registry.Endpoint) {
			s.delete(stored[e.Addr])
			delete(stored, e.Addr)
		}
		put := func(t *testing.T, e registry.Endpoint) {
			before := stored[e.Addr]
			stored[e.Addr] = providerPath(registrytest.Service,
				fmt.Sprintf("dubbo://%s/compute?weight=%d&zone=%s&side=provider", e.Addr, e.Weight, e.Zone))
			s.set(stored[e.Addr], "")
			if before != "" {
				s.delete(before)
			}
		}
		for _, e := range endpoints {
			put(t, e)
		}
		return &registrytest.Registry{
			Open: func(t *testing.T, dir string) registrytest.Client {
				return s.make(link.Addr(), grace, func(o *Options) { o.CacheDir = dir })
			},
			Restricted: func(t *testing.T, rule *reach.Rule) registrytest.Client {
				return s.make(link.Addr(), grace, func(o *Options) { o.DNS.Reach = rule })
			},
			Put: put, Remove: remove, Cut: link.Cut, Caches: true,
		}
	})
}
