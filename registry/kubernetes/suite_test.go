package kubernetes

import (
	"slices"
	"sync"
	"testing"

	"github.com/remora-proxy/remora/internal/leaktest"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/reach"
	"github.com/remora-proxy/remora/registry/registrytest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// TestSuite runs the suite of all registries.
func TestSuite(t *testing.T) {
	registrytest.Run(t, func(t *testing.T, endpoints ...registry.Endpoint) *registrytest.Registry {
		a := newAPI(t)
		var mu sync.Mutex
		var all []registry.Endpoint
		store := func() { a.set("compute", sliceOf(registrytest.Service, 80, all...)) }
		remove := func(e registry.Endpoint) {
			all = slices.DeleteFunc(all, func(o registry.Endpoint) bool { return o.Addr == e.Addr })
		}
		all = append(all, endpoints...)
		store()
		return &registrytest.Registry{
			Open: func(t *testing.T, dir string) registrytest.Client {
				return open(t, a, func(o *Options) { o.CacheDir = dir })
			},
			Restricted: func(t *testing.T, rule *reach.Rule) registrytest.Client {
				return open(t, a, func(o *Options) { o.DNS.Reach = rule })
			},
			Put: func(t *testing.T, e registry.Endpoint) {
				mu.Lock()
				defer mu.Unlock()
				remove(e)
				all = append(all, e)
				store()
			},
			Remove: func(t *testing.T, e registry.Endpoint) {
				mu.Lock()
				defer mu.Unlock()
				remove(e)
				store()
			},
			Cut:    a.setCut,
			Caches: true, Weightless: true,
		}
	})
}
