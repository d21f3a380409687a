package sidecar

import (
	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry/dns"
	"github.com/remora-proxy/remora/registry/kubernetes"
)

// connectKubernetes makes the client of a Kubernetes cluster, if a service is found there.
func connectKubernetes(cfg *config.Config, _ *certs.Source, o dns.Options) (*connection, error) {
	if !cfg.Finds(config.DiscoverKubernetes) {
		return nil, nil
	}
	c := cfg.Registry.Kubernetes()
	services := make(map[string]kubernetes.Service, len(c.Services))
	for _, s := range c.Services {
		services[s.Service] = kubernetes.Service{Name: s.Name, Namespace: s.Namespace, Port: s.Port}
	}
	r, err := kubernetes.New(kubernetes.Options{
		Kubeconfig: c.Kubeconfig, Namespace: c.Namespace, Services: services, Zone: cfg.Node.Zone,
		CacheDir: cacheDir(cfg, config.DiscoverKubernetes), Protocols: proxy.Protocols(), DNS: o, Logger: o.Logger,
	})
	if err != nil {
		return nil, err
	}
	return &connection{client: r}, nil
}
