package static

import (
	"testing"

	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestSuite runs the suite of all registries. The list of a watcher is fixed.
func TestSuite(t *testing.T) {
	registrytest.Run(t, func(t *testing.T, endpoints ...registry.Endpoint) *registrytest.Registry {
		return &registrytest.Registry{Open: func(t *testing.T, _ string) registrytest.Client {
			w, err := New(map[string][]registry.Endpoint{registrytest.Service: endpoints}, dns.Options{})
			if err != nil {
				t.Fatal(err)
			}
			return w
		}}
	})
}
