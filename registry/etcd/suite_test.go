package etcd_test

import (
	"fmt"
	"testing"

	"github.com/remora-proxy/remora/internal/cutlink"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/reach"
	"github.com/remora-proxy/remora/registry/registrytest"
)

// TestSuite runs the suite of all registries against a real etcd.
func TestSuite(t *testing.T) {
	registrytest.Run(t, func(t *testing.T, endpoints ...registry.Endpoint) *registrytest.Registry {
		s := startEtcd(t, lab.EtcdOptions{})
		ctx, client := raw(t, s)
		link := cutlink.To(t, s.Addr())
		add := func(t *testing.T, e registry.Endpoint) {
			put(t, ctx, client, registrytest.Service+"/n@"+e.Addr,
				fmt.Sprintf(`{"Op":0,"Addr":%q,"Metadata":{"weight":%d,"zone":%q}}`, e.Addr, e.Weight, e.Zone))
		}
		for _, e := range endpoints {
			add(t, e)
		}
		return &registrytest.Registry{
			Open: func(t *testing.T, dir string) registrytest.Client {
				return open(t, link.Addr(), func(o *etcd.Options) { o.CacheDir = dir })
			},
			Restricted: func(t *testing.T, rule *reach.Rule) registrytest.Client {
				return open(t, link.Addr(), func(o *etcd.Options) { o.DNS.Reach = rule })
			},
			Put: add,
			Remove: func(t *testing.T, e registry.Endpoint) {
				if _, err := client.Delete(ctx, prefix+"/"+registrytest.Service+"/n@"+e.Addr); err != nil {
					t.Fatal(err)
				}
			},
			Cut:    link.Cut,
			Caches: true,
		}
	})
}
