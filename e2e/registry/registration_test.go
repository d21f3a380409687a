package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/etcd"
)

// TestRegistration: an endpoint is in etcd only while its application is healthy and its
// sidecar does not drain.
func TestRegistration(t *testing.T) {
	t.Parallel() // it mostly waits
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	watcher, err := etcd.New(etcd.Options{Endpoints: []string{e.Addr()}, Grace: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Close()
	snapshots := make(chan *registry.Snapshot, 64)
	watcher.Watch("compute", func(s *registry.Snapshot) { snapshots <- s })
	await := func(what string, n int) registry.Endpoint {
		t.Helper()
		for {
			s := harness.Receive(t, what, snapshots)
			if len(s.Endpoints) != n {
				continue
			}
			if n == 0 {
				return registry.Endpoint{}
			}
			return s.Endpoints[0]
		}
	}
	await("an empty snapshot", 0)

	a := harness.NewApp(t)
	sick := &harness.CheckedApp{App: "http://" + a.Addr}
	checked := sick.Start(t)
	ingress := harness.FreeAddrs(t, 1)[0]
	sick.Down.Store(true)
	p := harness.Start(t, fmt.Sprintf(`
node: {id: n1, zone: z1}
registry: {etcd: {endpoints: [%q], lease_ttl: 600s}}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services: {local: {discover: static, endpoints: [%q], protocol: http, connect_timeout: 15s, timeout: 2m}}
register: [{service: compute, listener: ingress, advertise: %q, weight: 3, check: {http: /healthz, interval: 200ms}}]`,
		e.Addr(), ingress, checked, ingress))
	p.Ready()
	seen := sick.Checks.Load()
	eventually.Nil(t, "some checks", func() error {
		if sick.Checks.Load() < seen+3 {
			return fmt.Errorf("%d checks", sick.Checks.Load())
		}
		return nil
	})
	eventually.Nil(t, "/endpoints to tell of the failed checks", func() error {
		_, body := p.Get("/endpoints")
		if !regexp.MustCompile(`"state": "checking",\s*"error": ".*503`).MatchString(body) {
			return errors.New(body)
		}
		return nil
	})
	select {
	case s := <-snapshots:
		t.Errorf("registered before the check has succeeded: %+v", s)
	default:
	}

	sick.Down.Store(false)
	got := await("the registration", 1)
	want := registry.Endpoint{Addr: ingress, Weight: 3, Zone: "z1", Protocol: "link", Node: "n1"}
	if got != want {
		t.Errorf("registered %+v, want %+v", got, want)
	}
	sick.Down.Store(true)
	await("the withdrawal", 0)
	sick.Down.Store(false)
	await("the return", 1)
	p.Signal(syscall.SIGTERM)
	// The lease lasts for minutes, so it was the drain that removed the key.
	await("the end", 0)
	p.Ends()
}

// TestMaxWeight: picks use the highest weights that the configuration allows for an
// endpoint and a registration.
func TestMaxWeight(t *testing.T) {
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a := harness.NewApp(t)
	ingress := harness.FreeAddrs(t, 1)[0]
	yaml := func(weight int) string {
		return fmt.Sprintf(`
registry: {etcd: {endpoints: [%q], lease_ttl: 600s}}
listeners: [{name: ingress, address: %q, protocol: link, service: local}]
services:
  local: {discover: static, endpoints: [{address: %q, weight: %[4]d}], protocol: http}
  compute: {}
register: [{service: compute, listener: ingress, advertise: %[2]q, weight: %[4]d}]`, e.Addr(), ingress, a.Addr, weight)
	}
	p := harness.Start(t, yaml(registry.MaxWeight))
	p.Ready()
	eventually.Nil(t, "both weights in /endpoints", func() error {
		_, body := p.Get("/endpoints")
		if strings.Count(body, fmt.Sprintf(`"weight": %d`, registry.MaxWeight)) != 2 {
			return errors.New(body)
		}
		return nil
	})
	_, err = config.Parse("heavier", []byte(yaml(registry.MaxWeight+1)), os.LookupEnv)
	if n := strings.Count(fmt.Sprint(err), "weight: expected at most"); n != 2 {
		t.Errorf("%d of 2 greater weights are refused: %v", n, err)
	}
}

// TestRegisteredValue: a consumer uses what a provider's sidecar has registered: the protocol of a listener, the zone and the
// weight. Its own configuration names none of them.
func TestRegisteredValue(t *testing.T) {
	t.Parallel() // it mostly waits
	e, err := lab.StartEtcd(lab.EtcdOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	a := harness.NewApp(t)
	addrs := harness.FreeAddrs(t, 4)
	found := fmt.Sprintf("loops: 1\nregistry: {etcd: {endpoints: [%q], lease_ttl: 600s}}\n", e.Addr())
	harness.Start(t, found+fmt.Sprintf(`
node: {id: n1, zone: z1}
listeners:
  - {name: linked, address: %[1]q, protocol: link, service: local}
  - {name: plain, address: %[2]q, protocol: http, service: local}
services: {local: {discover: static, endpoints: [%[3]q], protocol: http, connect_timeout: 15s, timeout: 2m}}
register:
  - {service: linked, listener: linked, advertise: %[1]q, weight: 3}
  - {service: plain, listener: plain, advertise: %[2]q, weight: 4}`, addrs[0], addrs[1], a.Addr)).Ready()
	consumer := harness.Start(t, found+fmt.Sprintf(`
listeners:
  - {name: linked, address: %q, protocol: http, service: linked}
  - {name: plain, address: %q, protocol: http, service: plain}
services:
  linked: {discover: etcd, connect_timeout: 15s, timeout: 2m}
  plain: {discover: etcd, connect_timeout: 15s, timeout: 2m}`, addrs[2], addrs[3]))
	consumer.Ready()
	for i, want := range []struct {
		service, protocol string
		weight            int
	}{{"linked", "link", 3}, {"plain", "http", 4}} {
		eventually.Nil(t, "a response of "+want.service, func() error { return harness.Post(http.DefaultClient, addrs[2+i], "hi") })
		var shown struct {
			Services map[string]struct{ Endpoints []registry.Endpoint }
		}
		_, body := consumer.Get("/endpoints")
		if err := json.Unmarshal([]byte(body), &shown); err != nil {
			t.Fatal(err)
		}
		all := shown.Services[want.service].Endpoints
		if len(all) != 1 || all[0].Protocol != want.protocol || all[0].Zone != "z1" || all[0].Weight != want.weight {
			t.Errorf("%s: %+v", want.service, all)
		}
	}
}
