package sidecar

import (
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/file"
)

// connectFile makes the client of a file of endpoints.
func connectFile(cfg *config.Config, _ *certs.Source, o dns.Options) (*connection, error) {
	path := cfg.Registry.EndpointFile().Path
	if path == "" {
		return nil, nil
	}
	r, err := file.New(file.Options{
		Path: path, CacheDir: cacheDir(cfg, config.DiscoverFile), Protocols: proxy.Protocols(), DNS: o, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &connection{client: r}, nil
}
