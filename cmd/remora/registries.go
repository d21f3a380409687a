package main

import (
	"errors"
	"fmt"
	"log/slog"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/etcd"
	"github.com/remora-proxy/remora/registry/static"
)

// registryEntry is what the sidecar needs to know of a registry. It has either connect
// or list.
type registryEntry struct {
	name string // as in discover

	// connect makes the client that serves all services. It does not wait for a
	// connection. A nil connection means that the registry is not configured.
	connect func(o registryOptions) (*connection, error)
	tls     func(c *config.Config) *config.TLS // of connect's client; nil, or a nil result, means plain text

	// list makes a client for the endpoints that the configuration has of one service.
	list func(c *config.Service, o dns.Options) (registryClient, error)
}

// registries is the list of all registries. Registrations go to the first one that is
// configured and has a Registrar.
var registries = []registryEntry{
	{name: config.DiscoverEtcd, connect: connectEtcd, tls: etcdTLS},
	{name: config.DiscoverStatic, list: listStatic},
}

// registryClient finds endpoints. Known is what it knows of their host names.
type registryClient interface {
	registry.Watcher
	Known() dns.Known
	Close() error
}

// registryOptions is what a registry may use besides its own settings.
type registryOptions struct {
	cfg      *config.Config
	identity *identity // of tls; nil without
	dns      dns.Options
	log      *slog.Logger
}

// connection is the client of one registry that serves all services.
type connection struct {
	client    registryClient
	registrar registry.Registrar         // nil if the registry can't register
	stats     func() admin.RegistryStats // nil if it has none
	shared    *registry.Shared           // watches client
}

// connectEtcd makes the client of etcd.
func connectEtcd(o registryOptions) (*connection, error) {
	c := &o.cfg.Registry.Etcd
	if len(c.Endpoints) == 0 {
		return nil, nil
	}
	opt := etcd.Options{
		Endpoints: c.Endpoints, Prefix: c.Prefix, LeaseTTL: c.LeaseTTL,
		Username: c.Username, Password: c.Password,
		CacheDir: o.cfg.Registry.CacheDir, Protocols: proxy.Protocols(), DNS: o.dns, Logger: o.log,
	}
	if o.identity != nil {
		opt.TLS = o.identity.source.Client
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

// etcdTLS returns the tls block of connections to etcd, nil for plain text.
func etcdTLS(c *config.Config) *config.TLS {
	if !c.Registry.Etcd.Secured() {
		return nil
	}
	return &c.Registry.Etcd.TLS
}

// listStatic makes the client of the endpoints in the configuration.
func listStatic(c *config.Service, o dns.Options) (registryClient, error) {
	list := make([]registry.Endpoint, len(c.Endpoints))
	for i, e := range c.Endpoints {
		list[i] = registry.Endpoint{Addr: e.Address, Weight: e.Weight, Zone: e.Zone}
	}
	return static.New(map[string][]registry.Endpoint{c.Name: list}, o)
}

// registryNamed returns the entry of a name, or the zero value.
func registryNamed(name string) registryEntry {
	for _, r := range registries {
		if r.name == name {
			return r
		}
	}
	return registryEntry{}
}

// registryIdentity returns the name of the identity for connections to a registry.
func registryIdentity(name string) string { return "registry." + name + ".tls" }

// discovery finds endpoints and resolves host names.
type discovery struct {
	connections map[string]*connection // by the registry's name; only of those that are configured
	dns         dns.Options
}

// connect makes the clients of the configured registries, without waiting for
// connections.
func (d *discovery) connect(cfg *config.Config, ids identities, known dns.Known, log *slog.Logger) error {
	d.connections = make(map[string]*connection)
	for _, r := range registries {
		if r.connect == nil {
			continue
		}
		o := registryOptions{cfg: cfg, identity: ids[registryIdentity(r.name)], dns: d.dns, log: log}
		o.dns.Known = known
		c, err := r.connect(o)
		if err != nil {
			return fmt.Errorf("registry: %w", err)
		}
		if c != nil {
			c.shared = registry.Share(c.client)
			d.connections[r.name] = c
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

// registrar returns the Registrar of this sidecar's own endpoints, nil without one.
func (d *discovery) registrar() registry.Registrar {
	for _, r := range registries {
		if c := d.connections[r.name]; c != nil && c.registrar != nil {
			return c.registrar
		}
	}
	return nil
}

// registryStats returns the stats of the first registry that has any, nil without one.
func (d *discovery) registryStats() func() admin.RegistryStats {
	for _, r := range registries {
		if c := d.connections[r.name]; c != nil && c.stats != nil {
			return c.stats
		}
	}
	return nil
}

// watcher returns the Watcher of a service. own is its client if it serves only this
// service: the caller must close it. known are addresses of host names from before.
func (d *discovery) watcher(c *config.Service, known dns.Known) (w registry.Watcher, own registryClient, err error) {
	if list := registryNamed(c.Discover).list; list != nil {
		o := d.dns
		o.Known = known
		if own, err = list(c, o); err != nil {
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
