package bench

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// What grows in a mesh is the consumer's, and its provider has as many addresses.
func TestGrownSidecars(t *testing.T) {
	var configs []*config.Config
	for i, h := range mesh(manner{}) {
		p := testPlace(t)
		p.hop, p.size = i, size{loops: 2, endpoints: 1000, routes: 1000}
		args, err := h.args(p)
		if err != nil {
			t.Fatal(err)
		}
		c, err := config.Load(args[len(args)-1])
		if err != nil {
			t.Fatalf("sidecar %d: %v", i, err)
		}
		configs = append(configs, c)
	}
	consumer, provider := configs[0], configs[1]
	if consumer.Loops != 2 || provider.Loops != 2 {
		t.Errorf("loops %d and %d", consumer.Loops, provider.Loops)
	}
	endpoints := consumer.Services["out"].Endpoints
	if len(endpoints) != 1000 || endpoints[0].Address != testUpstream || len(provider.Services["out"].Endpoints) != 1 {
		t.Errorf("%d endpoints, the first %+v", len(endpoints), endpoints[0])
	}
	if len(consumer.Listeners) != 1 || len(provider.Listeners) != 1000 || provider.Listeners[0].Address != testListen {
		t.Errorf("%d and %d listeners", len(consumer.Listeners), len(provider.Listeners))
	}
	if c, p := consumer.Services["out"], provider.Services["out"]; c.MaxConcurrency != 0 || p.MaxConcurrency != concurrency {
		t.Errorf("concurrency %d and %d", c.MaxConcurrency, p.MaxConcurrency)
	}
	routes := consumer.Routes
	if len(routes) != 1000 || len(provider.Routes) != 0 || routes[999].Match.Path != computePath || routes[998].Match.Path == computePath {
		t.Errorf("%d and %d routes", len(routes), len(provider.Routes))
	}
	if consumer.Listeners[0].Service != "" || provider.Listeners[0].Service != "out" {
		t.Errorf("services %q and %q", consumer.Listeners[0].Service, provider.Listeners[0].Service)
	}
}

func TestAliases(t *testing.T) {
	all, err := aliases("127.0.0.1:80", 1000)
	if err != nil || len(all) != 1000 || all[0] != "127.0.0.1:80" || all[1] != "127.0.0.2:80" || all[250] != "127.0.1.1:80" {
		t.Errorf("%d, %v", len(all), err)
	}
	slices.Sort(all)
	if len(slices.Compact(all)) != 1000 {
		t.Error("some are the same")
	}
	if one, err := aliases("127.0.0.1:80", 0); err != nil || len(one) != 1 {
		t.Errorf("%v, %v", one, err)
	}
	if _, err := aliases("nowhere", 2); err == nil {
		t.Error("an address without a port was accepted")
	}
}
