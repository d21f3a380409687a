package sidecar

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/remora-proxy/remora/e2e/harness"
	"github.com/remora-proxy/remora/internal/eventually"
	"github.com/remora-proxy/remora/lab"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
)

// zone is a resolver whose data a test changes. They count as those of /etc/hosts, which may have loopback addresses, unless remote is set.
type zone struct {
	mu      sync.Mutex
	hosts   map[string]string // addresses by host name, or none; no other name resolves
	lookups map[string]int
	hangs   bool // lookups do not return until their context ends
	remote  bool // the addresses count as those of a name server
}

// none is in place of the address of a name that exists and has no address.
const none = "none"

func (z *zone) lookup(ctx context.Context, host string) (dns.Answer, error) {
	z.mu.Lock()
	z.lookups[host]++
	addr, known, hangs, remote := z.hosts[host], z.hosts[host] != "", z.hangs, z.remote
	z.mu.Unlock()
	if hangs {
		<-ctx.Done()
	}
	if addr == none {
		return dns.Answer{TTL: -1}, nil
	}
	if hangs || !known {
		return dns.Answer{}, errors.New("no response")
	}
	return dns.Answer{Addrs: []netip.Addr{netip.MustParseAddr(addr)}, TTL: -1, OfHost: !remote}, nil
}

func (z *zone) change(f func()) {
	z.mu.Lock()
	defer z.mu.Unlock()
	f()
}

// awaitLookups waits for further lookups of a name. The results of earlier lookups are
// then in use, because a lookup begins after the result of the one before is.
func (z *zone) awaitLookups(t *testing.T, host string) {
	t.Helper()
	before := -1
	eventually.Nil(t, "lookups of "+host, func() error {
		z.mu.Lock()
		defer z.mu.Unlock()
		if before < 0 {
			before = z.lookups[host]
		}
		if z.lookups[host] < before+3 {
			return fmt.Errorf("%d", z.lookups[host]-before)
		}
		return nil
	})
}

// resolving starts a sidecar in this process that resolves host names with z.
func resolving(t *testing.T, z *zone) (s *Sidecar, egress string) {
	t.Helper()
	return resolvingAt(t, z, "")
}

func resolvingAt(t *testing.T, z *zone, path string) (s *Sidecar, egress string) {
	t.Helper()
	procs := runtime.GOMAXPROCS(0)
	z.hosts, z.lookups = map[string]string{}, map[string]int{}
	s, egress = inProcess(t, path)
	t.Cleanup(func() { s.stop(); runtime.GOMAXPROCS(procs) })
	s.discovery.dns = dns.Options{Lookup: z.lookup, Others: new(dns.Others), Interval: time.Millisecond, Timeout: harness.Patience, Logger: s.log}
	return s, egress
}

// reloadApp reloads with the given settings of the service app.
func (s *Sidecar) reloadApp(t *testing.T, egress, app string) error {
	t.Helper()
	s.changing.Lock()
	defer s.changing.Unlock()
	return s.reloads.apply(configured(t, egress, app))
}

func configured(t *testing.T, egress, app string) *config.Config {
	t.Helper()
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {discover: static, connect_timeout: 15s, timeout: 2m, %s}}`, egress, app), nil)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// addresses returns the addresses in use for the service.
func (s *Sidecar) addresses(service string) (addrs []string) {
	if snap := s.proc.Snapshot(service); snap != nil {
		for _, e := range snap.Endpoints {
			addrs = append(addrs, e.Addr)
		}
	}
	return addrs
}

func (s *Sidecar) awaitAddresses(t *testing.T, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually.Nil(t, "the addresses", func() error {
		if got := s.addresses("app"); !slices.Equal(got, want) {
			return fmt.Errorf("%v, want %v", got, want)
		}
		return nil
	})
}

// TestReloadKeepsAddresses: while no name resolves, a service keeps its addresses through
// a reload, whatever that changes.
func TestReloadKeepsAddresses(t *testing.T) {
	for name, c := range map[string]struct{ app, asks string }{
		"check":     {`protocol: http, endpoints: ["old.test:%s"], check: {tcp: true, timeout: 15s, interval: 2h}`, "old.test"},
		"weight":    {`protocol: http, endpoints: [{address: "old.test:%s", weight: 2}]`, "old.test"},
		"subset":    {`protocol: http, endpoints: ["old.test:%s"], lb: {subset: 1}`, "old.test"},
		"the names": {`protocol: http, endpoints: ["new.test:%s"]`, "new.test"},
	} {
		t.Run(name, func(t *testing.T) {
			z := &zone{}
			s, egress := resolving(t, z)
			host, port, _ := net.SplitHostPort(harness.NewApp(t).Addr)
			z.change(func() { z.hosts["old.test"] = host })
			if err := s.reloadApp(t, egress, fmt.Sprintf(`protocol: http, endpoints: ["old.test:%s"]`, port)); err != nil {
				t.Fatal(err)
			}
			s.awaitAddresses(t, net.JoinHostPort(host, port))

			z.change(func() { clear(z.hosts) })
			if err := s.reloadApp(t, egress, fmt.Sprintf(c.app, port)); err != nil {
				t.Fatal(err)
			}
			z.awaitLookups(t, c.asks)
			if status, _, _, err := harness.Get(egress); status != 200 {
				t.Errorf("response %d, %v, with the addresses %v", status, err, s.addresses("app"))
			}
			z.change(func() { z.hosts[c.asks] = "127.0.0.2" })
			s.awaitAddresses(t, "127.0.0.2:"+port)
		})
	}
}

// TestReloadRefusesAddressInUse: an address that a reload makes a loop does not stay in use, whatever else the reload changes.
func TestReloadRefusesAddressInUse(t *testing.T) {
	for name, settings := range map[string]string{
		"the listener alone":   "endpoints: [%q]",
		"the source, too":      "endpoints: [{address: %q, weight: 2}]",
		"the check, too":       "endpoints: [%q], check: {tcp: true, interval: 2h}",
		"the service, too":     "endpoints: [%q], lb: {subset: 1}",
		"the service and more": "endpoints: [{address: %q, weight: 2}], lb: {subset: 1}, check: {tcp: true, interval: 2h}",
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			free := harness.FreeAddrs(t, 2)
			host, port, _ := net.SplitHostPort(free[1])
			with := func(listeners, settings string) *config.Config {
				cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
registry: {allow_addresses: ["127.0.0.0/8"]}
listeners: [{name: egress, address: %q, protocol: http, service: app}%s]
services: {app: {discover: static, protocol: http, %s}}`, free[0], listeners, settings), nil)
				if err != nil {
					t.Fatal(err)
				}
				return cfg
			}
			s, err := start(t.Context(), quiet(t, with("", `endpoints: ["127.0.0.9:9"]`), ""))
			if err != nil {
				t.Fatal(err)
			}
			defer s.stop()
			z := &zone{hosts: map[string]string{"app.test": host}, lookups: map[string]int{}, remote: true}
			s.discovery.dns = dns.Options{Lookup: z.lookup, Others: new(dns.Others), Interval: time.Millisecond, Timeout: harness.Patience, Logger: s.log}
			reload := func(cfg *config.Config) {
				t.Helper()
				s.changing.Lock()
				defer s.changing.Unlock()
				if err := s.reloads.apply(cfg); err != nil {
					t.Fatal(err)
				}
			}
			named := "app.test:" + port
			reload(with("", fmt.Sprintf("endpoints: [%q]", named)))
			s.awaitAddresses(t, free[1])
			reload(with(fmt.Sprintf(", {name: further, address: %q, protocol: http, service: app}", free[1]), fmt.Sprintf(settings, named)))
			s.awaitAddresses(t)
		})
	}
}

// TestReloadUnresolvedNames: a reload is refused if no host name of a new service
// resolves.
func TestReloadUnresolvedNames(t *testing.T) {
	t.Parallel() // it mostly waits
	z := &zone{}
	s, egress := resolving(t, z)
	err := s.reloadApp(t, egress, `protocol: http, lb: {subset: 1}, endpoints: ["none.test:80"]`)
	if r, ok := err.(*refusal); !ok || r.code != refusedEndpoints {
		t.Errorf("%v", err)
	}
	if status, _, _, err := harness.Get(egress); status != 200 {
		t.Errorf("response %d, %v", status, err)
	}
}

// TestReloadDuringLookup: when a reload adds an endpoint, the addresses of a host name
// stay in use, even during its lookup.
func TestReloadDuringLookup(t *testing.T) {
	z := &zone{}
	s, egress := resolving(t, z)
	z.change(func() { z.hosts["a.test"] = "127.0.0.2" })
	if err := s.reloadApp(t, egress, `protocol: http, endpoints: ["127.0.0.1:80", "a.test:80"]`); err != nil {
		t.Fatal(err)
	}
	s.awaitAddresses(t, "127.0.0.1:80", "127.0.0.2:80")
	z.change(func() { z.hangs = true })
	if err := s.reloadApp(t, egress, `protocol: http, endpoints: ["127.0.0.1:80", "a.test:80", "127.0.0.3:80"]`); err != nil {
		t.Fatal(err)
	}
	var addrs []string
	eventually.Nil(t, "the new endpoint", func() error {
		if addrs = s.addresses("app"); !slices.Contains(addrs, "127.0.0.3:80") {
			return fmt.Errorf("%v", addrs)
		}
		return nil
	})
	if !slices.Contains(addrs, "127.0.0.2:80") {
		t.Errorf("the address of the name is missing: %v", addrs)
	}
}

// TestReloadIgnoresFormerSource: while a reload replaces a service, a snapshot of the
// former source does not change the new service.
func TestReloadIgnoresFormerSource(t *testing.T) {
	z := &zone{}
	s, egress := resolving(t, z)
	z.change(func() { z.hosts["old.test"] = "127.0.0.2" })
	s.sources.byService["app"].stop()
	s.cfg = configured(t, egress, `protocol: http, endpoints: ["old.test:80"]`)
	if err := s.sources.startAll(s.cfg, s.identities, dns.Known{}); err != nil {
		t.Fatal(err)
	}
	s.awaitAddresses(t, "127.0.0.2:80")

	c := &change{s: s, cfg: configured(t, egress, `protocol: http, lb: {subset: 1}, endpoints: ["127.0.0.3:80"]`), sources: make(map[string]*source)}
	if err := c.prepare(); err != nil {
		t.Fatal(err)
	}
	switched := make(chan struct{})
	s.proc.Switch(c.gen, func() { close(switched) })
	<-switched
	z.change(func() { z.hosts["old.test"] = "127.0.0.4" })
	z.awaitLookups(t, "old.test")
	s.awaitAddresses(t, "127.0.0.3:80")
	c.updateSources()
}

// TestReloadWhileDataIsLost: the endpoints that stay in use after etcd has lost its data
// also stay through a reload.
func TestReloadWhileDataIsLost(t *testing.T) {
	for name, change := range map[string]string{"check": "check: {tcp: true, timeout: 15s}", "subset": "lb: {subset: 1}"} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			addrs := harness.FreeAddrs(t, 2)
			address, egress := addrs[0], addrs[1]
			e, err := lab.StartEtcd(lab.EtcdOptions{ClientAddr: address})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { e.Close() }()
			client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}})
			if err != nil {
				t.Fatal(err)
			}
			app := harness.NewApp(t).Addr
			for range 20 { // a revision that an empty etcd does not reach
				if _, err := client.Put(t.Context(), "/remora/services/app/n", fmt.Sprintf(`{"Op":0,"Addr":%q}`, app)); err != nil {
					t.Fatal(err)
				}
			}
			client.Close()
			with := func(more string) *config.Config {
				cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
registry: {etcd: {endpoints: [%q], lease_ttl: 600s}}
listeners: [{name: egress, address: %q, protocol: http}]
routes: [{service: app}]
services: {app: {protocol: http, connect_timeout: 15s, timeout: 2m, %s}}`, address, egress, more), nil)
				if err != nil {
					t.Fatal(err)
				}
				return cfg
			}
			s, err := start(t.Context(), quiet(t, with(""), ""))
			if err != nil {
				t.Fatal(err)
			}
			defer s.stop()
			s.awaitAddresses(t, app)
			connected := s.discovery.connections[config.DiscoverEtcd].client.(*etcd.Registry)
			lists := connected.Stats().Lists
			e.Close()
			if e, err = lab.StartEtcd(lab.EtcdOptions{ClientAddr: address}); err != nil {
				t.Fatal(err)
			}
			eventually.Nil(t, "the empty list to be seen", func() error {
				if st := connected.Stats(); !st.Connected || st.DataLosses == 0 || st.Lists == lists {
					return fmt.Errorf("%+v", st)
				}
				return nil
			})
			before := s.proc.Snapshot("app").Version
			s.changing.Lock()
			err = s.reloads.apply(with(change))
			s.changing.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			eventually.Nil(t, "a snapshot after the reload", func() error {
				if v := s.proc.Snapshot("app").Version; v <= before {
					return fmt.Errorf("version %d", v)
				}
				return nil
			})
			if status, _, _, err := harness.Get(egress); status != 200 {
				t.Errorf("response %d, %v, with the addresses %v", status, err, s.addresses("app"))
			}
		})
	}
}

// TestHotRestartKeepsAddresses: a successor uses the addresses of a name that no longer
// resolves.
func TestHotRestartKeepsAddresses(t *testing.T) {
	z := &zone{}
	path := filepath.Join(harness.SocketDir(t), "remora.sock")
	s, egress := resolvingAt(t, z, path)
	host, port, _ := net.SplitHostPort(harness.NewApp(t).Addr)
	z.change(func() { z.hosts["old.invalid"] = host })
	app := fmt.Sprintf(`protocol: http, endpoints: ["old.invalid:%s"]`, port)
	if err := s.reloadApp(t, egress, app); err != nil {
		t.Fatal(err)
	}
	s.awaitAddresses(t, net.JoinHostPort(host, port))
	next, err := start(t.Context(), quiet(t, configured(t, egress, app), path))
	if err != nil {
		t.Fatal(err)
	}
	defer next.stop()
	<-s.succession.replaced
	if status, _, _, err := harness.Get(egress); status != 200 {
		t.Errorf("response %d, %v, with the addresses %v", status, err, next.addresses("app"))
	}
}

// TestRefusedReloadKeepsStreams: the checks of a reload cut the streams of endpoints that are down, unless the reload is refused.
func TestRefusedReloadKeepsStreams(t *testing.T) {
	for name, c := range map[string]struct {
		taken bool // the address of a further listener
		code  string
	}{
		"refused": {true, refusedListen},
		"applied": {false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
			app := harness.ServeTCP(t, func(nc net.Conn) { _, _ = io.Copy(nc, nc) })
			free := harness.FreeAddrs(t, 3)
			further := free[1]
			if c.taken {
				further = harness.NewApp(t).Addr
			}
			_, closed, _ := net.SplitHostPort(free[2])
			with := func(listeners, settings string) *config.Config {
				cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
admin: {address: ""}
listeners: [{name: egress, address: %q, protocol: tcp, service: app}%s]
services: {app: {discover: static, endpoints: [%q], protocol: tcp, connect_timeout: 15s%s}}`, free[0], listeners, app, settings), nil)
				if err != nil {
					t.Fatal(err)
				}
				return cfg
			}
			s, err := start(t.Context(), quiet(t, with("", ""), ""))
			if err != nil {
				t.Fatal(err)
			}
			defer s.stop()
			client := harness.Dial(t, "tcp", free[0])
			_ = client.SetDeadline(time.Now().Add(harness.Patience))
			echo := func() error {
				if _, err := client.Write([]byte{'a'}); err != nil {
					return err
				}
				_, err := io.ReadFull(client, make([]byte, 1))
				return err
			}
			if err := echo(); err != nil {
				t.Fatal(err)
			}
			s.changing.Lock()
			err = s.reloads.apply(with(fmt.Sprintf(", {name: further, address: %q, protocol: tcp, service: app}", further),
				fmt.Sprintf(", cancel: close, check: {tcp: true, port: %s, on_down: close}", closed)))
			s.changing.Unlock()
			var refused *refusal
			if errors.As(err, &refused); refused == nil && c.code != "" || refused != nil && refused.code != c.code {
				t.Fatalf("%v, want %q", err, c.code)
			}
			if err := echo(); (err == nil) != c.taken {
				t.Errorf("the stream after the reload: %v", err)
			}
		})
	}
}

// TestDownEndpointsOfSource: which endpoints get no stream, as snapshots come and the source is put into use. As long as no
// snapshot has come, those of the previous source stay.
func TestDownEndpointsOfSource(t *testing.T) {
	for _, c := range []struct{ events, want string }{
		{"use", ""},
		{"use use", ""},
		{"a", ""},
		{"a use", "[a]"},
		{"a b use", "[b]"},
		{"a none use", "[]"},
		{"none use", "[]"},
		{"use a", "[a]"},
		{"use a none", "[a] []"},
		{"use a use b", "[a] [b]"},
		{"use stop a", ""},
		{"use a stop b", "[a]"},
	} {
		var calls []string
		src := &source{cfg: &config.Service{Name: "app"}, cut: func(service string, down []string) {
			if calls = append(calls, fmt.Sprint(down)); service != "app" {
				t.Errorf("%s: the endpoints of %q are down", c.events, service)
			}
		}}
		for _, event := range strings.Fields(c.events) {
			switch event {
			case "use":
				src.use()
			case "stop":
				src.stop()
			default:
				s := registry.NewSnapshot("app", registry.SourceLive, time.Now(), []registry.Endpoint{{Addr: event, Down: event != "none"}, {Addr: "up"}})
				src.notify(s, func(s *registry.Snapshot) { src.setDown(downIn(s)) })
			}
		}
		if got := strings.Join(calls, " "); got != c.want {
			t.Errorf("%s: %s, want %s", c.events, got, c.want)
		}
	}
}
