package sidecar

import (
	"errors"
	"fmt"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/file"
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
}

// registries is the list of all registries. Registrations go to the first one that is
// configured and has a Registrar.
var registries = []registryEntry{
	{name: config.DiscoverEtcd, connect: connectEtcd},
	{name: config.DiscoverFile, connect: connectFile},
	{name: config.DiscoverStatic, list: listStatic},
}

// registryClient finds endpoints. Known is what it knows of their host names.
type registryClient interface {
	registry.Watcher
	Known() dns.Known
	Close() error
}

// connection is the client of one registry that serves all services.
type connection struct {
	client    registryClient
	registrar registry.Registrar         // nil if the registry can't register
	stats     func() admin.RegistryStats // nil if it has none
	shared    *registry.Shared           // watches client
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
	stats := func() admin.RegistryStats {
		st := r.Stats()
		return admin.RegistryStats{Connected: st.Connected, LastError: st.LastError}
	}
	return &connection{client: r, registrar: r, stats: stats}, nil
}

// connectFile makes the client of a file of endpoints.
func connectFile(cfg *config.Config, _ *certs.Source, o dns.Options) (*connection, error) {
	path := cfg.Registry.EndpointFile().Path
	if path == "" {
		return nil, nil
	}
	r, err := file.New(file.Options{
		Path: path, CacheDir: cfg.Registry.CacheDir, Protocols: proxy.Protocols(), DNS: o, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	stats := func() admin.RegistryStats {
		err := r.Err()
		if err == nil {
			return admin.RegistryStats{Connected: true}
		}
		return admin.RegistryStats{LastError: err.Error()}
	}
	return &connection{client: r, stats: stats}, nil
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
	connections map[string]*connection // by the registry's name; only of those that are configured
	dns         dns.Options

	// The first that a connection has, nil without one.
	registrar     registry.Registrar // of this sidecar's own endpoints
	registryStats func() admin.RegistryStats
}

// connect makes the clients of the configured registries, without waiting for
// connections.
func (d *discovery) connect(cfg *config.Config, ids identities, known dns.Known) error {
	d.connections = make(map[string]*connection)
	for _, r := range registries {
		if r.connect == nil {
			continue
		}
		o := d.dns
		o.Known = known
		c, err := r.connect(cfg, ids[config.TLSName("registry", r.name)], o)
		if err != nil {
			return fmt.Errorf("registry: %w", err)
		}
		if c == nil {
			continue
		}
		c.shared = registry.Share(c.client)
		d.connections[r.name] = c
		if d.registrar == nil {
			d.registrar = c.registrar
		}
		if d.registryStats == nil {
			d.registryStats = c.stats
		}
	}
	return nil
}

// disconnect closes the clients.
func (d *discovery) disconnect() (err error) {
	for _, c := range d.connections {
		err = errors.Join(err, c.client.Close())
	}
	return err
}

// watcher returns the Watcher of a service. own is its client if it serves only this
// service: the caller must close it. known are addresses of host names from before.
func (d *discovery) watcher(c *config.Service, known dns.Known) (w registry.Watcher, own registryClient, err error) {
	for _, r := range registries {
		if r.name != c.Discover || r.list == nil {
			continue
		}
		o := d.dns
		o.Known = known
		if own, err = r.list(c, o); err != nil {
			return nil, nil, err
		}
		return own, own, nil
	}
	if on := d.connections[c.Discover]; on != nil {
		return on.shared, nil, nil
	}
	return nil, nil, fmt.Errorf("service %s: registry %s is not configured", c.Name, c.Discover)
}

// hold keeps what the registry knows of the service c until release, although no source
// watches it meanwhile.
func (d *discovery) hold(c *config.Service) (release func()) {
	on := d.connections[c.Discover]
	if on == nil {
		return func() {}
	}
	return on.shared.Watch(c.Name, func(*registry.Snapshot) {})
}
