package sidecar

import (
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/zookeeper"
)

// connectZooKeeper makes the client of ZooKeeper.
func connectZooKeeper(cfg *config.Config, source *certs.Source, o dns.Options) (*connection, error) {
	c := cfg.Registry.ZooKeeper()
	if len(c.Servers) == 0 {
		return nil, nil
	}
	opt := zookeeper.Options{
		Servers: c.Servers, Chroot: c.Chroot, Group: c.Group, SessionTimeout: c.SessionTimeout,
		Username: c.Username, Password: c.Password,
		Service: func(name string) zookeeper.Service {
			s := c.Of(name)
			return zookeeper.Service{Interface: s.Interface, Group: s.Group, Version: s.Version, Applications: s.Applications, Scheme: s.Protocol, Protocol: s.Speaks()}
		},
		Registers: make(map[string]zookeeper.Scheme),
		CacheDir:  cacheDir(cfg, config.DiscoverZooKeeper), Protocols: proxy.Protocols(), DNS: o, Logger: o.Logger,
	}
	for _, s := range config.ZooKeeperSchemes {
		opt.Registers[s.Listener] = zookeeper.Scheme{Name: s.Name, Serialization: s.Serialization}
	}
	if source != nil {
		opt.TLS = source.Client
	}
	r, err := zookeeper.New(opt)
	if err != nil {
		return nil, err
	}
	return &connection{client: r, registrar: r}, nil
}
