package sidecar

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/several"
	"github.com/remora-proxy/remora/registry/static"
)

// registryEntry is what the sidecar needs to know of a registry. It has either connect
// or list.
type registryEntry struct {
	name string // as in discover

	// connect makes the client that serves all services. It does not wait for a
	// connection. A nil connection means that the registry is not configured.
	// source is that of its tls block, nil for plain text.
	connect func(cfg *config.Config, source *certs.Source, o dns.Options) (*connection, error)

	// list makes a client for the endpoints that the configuration has of one service.
	list func(c *config.Service, o dns.Options) (registryClient, error)

	listed bool                          // what it has is from this host, as reach.Options.Listed says
	local  func(cfg *config.Config) bool // reports whether it is on a loopback address; nil means that it is not
}

// registries is the list of all registries. Registrations go to the first one that is
// configured and has a Registrar.
var registries = []registryEntry{
	{name: config.DiscoverEtcd, connect: connectEtcd, local: func(cfg *config.Config) bool { return cfg.Registry.Etcd().Local() }},
	{name: config.DiscoverFile, connect: connectFile, listed: true},
	{name: config.DiscoverKubernetes, connect: connectKubernetes},
	{name: config.DiscoverStatic, list: listStatic, listed: true},
	{name: config.DiscoverZooKeeper, connect: connectZooKeeper, local: func(cfg *config.Config) bool { return cfg.Registry.ZooKeeper().Local() }},
}

// registryClient finds endpoints. Known is what it knows of their host names.
type registryClient interface {
	registry.Watcher
	Known() dns.Known
	Close() error
}

// connectedClient is the client of a registry that may fail.
type connectedClient interface {
	registryClient
	Condition() registry.Condition // without the services
}

// connection is the client of one registry that serves all services.
type connection struct {
	client    connectedClient
	registrar registry.Registrar      // nil if the registry can't register
	shared    *registry.SharedWatcher // watches client
}

// condition returns how the registry does.
func (c *connection) condition() registry.Condition {
	now := c.client.Condition()
	services, endpoints := c.shared.Held()
	if now.Services = services; !now.Up {
		now.Kept = endpoints
	}
	return now
}

// connectEtcd makes the client of etcd.
func connectEtcd(cfg *config.Config, source *certs.Source, o dns.Options) (*connection, error) {
	c := cfg.Registry.Etcd()
	if len(c.Endpoints) == 0 {
		return nil, nil
	}
	opt := etcd.Options{
		Endpoints: c.Endpoints, Prefix: c.Prefix, LeaseTTL: c.LeaseTTL,
		Username: c.Username, Password: c.Password,
		CacheDir: cfg.Registry.CacheDir, Protocols: proxy.Protocols(), DNS: o, Logger: o.Logger,
	}
	if source != nil {
		opt.TLS = source.Client
	}
	r, err := etcd.New(opt)
	if err != nil {
		return nil, err
	}
	return &connection{client: r, registrar: r}, nil
}

// cacheDir returns the folder for what a source has delivered, or "". A service may have several sources, so each has a folder
// of its own. That of etcd is cache_dir itself, as before there were others.
func cacheDir(cfg *config.Config, source string) string {
	if cfg.Registry.CacheDir == "" {
		return ""
	}
	return filepath.Join(cfg.Registry.CacheDir, source)
}

// listStatic makes the client of the endpoints in the configuration.
func listStatic(c *config.Service, o dns.Options) (registryClient, error) {
	list := make([]registry.Endpoint, len(c.Endpoints))
	for i, e := range c.Endpoints {
		list[i] = registry.Endpoint{Addr: e.Address, Weight: e.Weight, Zone: e.Zone}
	}
	return static.New(map[string][]registry.Endpoint{c.Name: list}, o)
}

// discovery finds endpoints and resolves host names.
type discovery struct {
	dns       dns.Options
	reach     reaches
	kept      registry.Tally     // of the endpoints that stay as no host name of their service has a usable address
	registrar registry.Registrar // of this sidecar's own endpoints: the first that a connection has, or nil

	mu          sync.Mutex             // held to change connections, and to read them for the admin API
	connections map[string]*connection // by the registry's name; only of those that are configured
}

// newDiscovery returns the discovery of a sidecar, which has no clients yet.
func newDiscovery(log *slog.Logger) discovery {
	return discovery{
		dns: dns.Options{Turns: dns.NewTurns(), Others: new(dns.Others), Failing: dns.NewFailing(), Logger: log}, connections: make(map[string]*connection),
	}
}

// connect makes the clients of the configured registries, without waiting for
// connections.
func (d *discovery) connect(cfg *config.Config, ids identities, known dns.Known) error {
	d.reach.start(cfg, d.dns.Logger)
	for _, r := range registries {
		if r.connect == nil {
			continue
		}
		c, err := d.open(&r, cfg, ids, known)
		if err != nil {
			return err
		}
		if c == nil {
			continue
		}
		if d.registrar == nil {
			d.registrar = c.registrar
		}
	}
	return nil
}

// open makes the client of a registry, or returns nil if the registry is not configured.
func (d *discovery) open(r *registryEntry, cfg *config.Config, ids identities, known dns.Known) (*connection, error) {
	o := d.dns
	o.Known, o.Reach = known, d.reach.rules[r.name]
	c, err := r.connect(cfg, ids[config.TLSName("registry", r.name)], o)
	if err != nil {
		return nil, fmt.Errorf("registry: %w", err)
	}
	if c != nil {
		c.shared = registry.Share(c.client)
		d.mu.Lock()
		d.connections[r.name] = c
		d.mu.Unlock()
	}
	return c, nil
}

// connectMissing makes the clients that a changed configuration needs for the first time.
func (d *discovery) connectMissing(cfg *config.Config, ids identities) error {
	d.reach.next.Store(cfg)
	for _, r := range registries {
		if r.connect == nil || d.connections[r.name] != nil || !cfg.Finds(r.name) {
			continue
		}
		if _, err := d.open(&r, cfg, ids, nil); err != nil {
			return err
		}
	}
	return nil
}

// stats returns how the sources do, in the order of the list, and after them DNS if an endpoint has a host name.
func (d *discovery) stats() (all []admin.SourceStats) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range registries {
		if c := d.connections[r.name]; c != nil {
			all = append(all, sourceStats(r.name, c.condition()))
		}
	}
	if now := d.dns.Failing.Condition(); now.Services > 0 {
		d.kept.Add(&now)
		all = append(all, sourceStats(admin.SourceDNS, now))
	}
	return all
}

// sourceStats converts a condition for the admin API.
func sourceStats(name string, now registry.Condition) admin.SourceStats {
	st := admin.SourceStats{
		Name: name, Up: now.Up, Since: now.Since, Code: now.Code, Services: now.Services, Kept: now.Kept, Doubted: now.Doubted,
		Unusable: now.Unusable,
	}
	if now.Err != nil {
		st.Error = now.Err.Error()
	}
	return st
}

// disconnect closes the clients.
func (d *discovery) disconnect() {
	for name, c := range d.connections {
		if err := c.client.Close(); err != nil {
			d.dns.Logger.Warn("registry not closed", "registry", name, "error", err)
		}
	}
}

// watcher returns the Watcher of a service. own is its client if that serves only this
// service: the caller must close it. known are addresses of host names from before.
func (d *discovery) watcher(c *config.Service, known dns.Known) (w registry.Watcher, own registryClient, err error) {
	var all []registry.Watcher
	for _, name := range c.Discover {
		if on := d.connections[name]; on != nil {
			all = append(all, on.shared)
			continue
		}
		listed, err := d.list(name, c, known)
		if err != nil {
			if own != nil {
				_ = own.Close()
			}
			return nil, nil, err
		}
		own, all = listed, append(all, listed)
	}
	if len(all) == 1 {
		return all[0], own, nil
	}
	if c.Combine == config.CombineMerge {
		return several.Merge(d.dns.Logger, all...), own, nil
	}
	return several.First(d.dns.Logger, all...), own, nil
}

// list makes the client of the endpoints that the configuration has for a registry.
func (d *discovery) list(name string, c *config.Service, known dns.Known) (registryClient, error) {
	for _, r := range registries {
		if r.name == name && r.list != nil {
			o := d.dns
			o.Known, o.Reach = known, d.reach.rules[name]
			return r.list(c, o)
		}
	}
	return nil, fmt.Errorf("service %s: registry %s is not configured", c.Name, name)
}

// hold keeps what the registries know of the service c until release, although no source
// watches it meanwhile.
func (d *discovery) hold(c *config.Service) (release func()) {
	var stops []func()
	for _, name := range c.Discover {
		if on := d.connections[name]; on != nil {
			stops = append(stops, on.shared.Watch(c.Name, func(*registry.Snapshot) {}))
		}
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}
