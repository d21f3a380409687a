package main

import (
	"crypto/tls"
	"fmt"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/reactor"
)

// identity is the certificate of one tls block in the configuration.
type identity struct {
	name   string // where in the configuration it stands
	source *certs.Source
}

// identity opens the files of a tls block; stop closes them.
func (s *sidecar) identity(name string, t *config.TLS) (*certs.Source, error) {
	source, err := certs.Open(certs.Options{Cert: t.Cert, Key: t.Key, CA: t.CA, Peers: t.Peers, Logger: s.log})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.identities = append(s.identities, identity{name, source})
	return source, nil
}

// dialTLS opens the identities of the services that have one, and returns what
// the driver asks for each connection; nil if there are none.
func (s *sidecar) dialTLS() (func(service string) func() *tls.Config, error) {
	byService := make(map[string]func() *tls.Config)
	for name, svc := range s.cfg.Services {
		if !svc.TLS.Enabled() {
			continue
		}
		source, err := s.identity("services."+name+".tls", &svc.TLS)
		if err != nil {
			return nil, err
		}
		byService[name] = source.Client
	}
	if len(byService) == 0 {
		return nil, nil
	}
	return func(service string) func() *tls.Config { return byService[service] }, nil
}

// listenOptions opens the identity of a listener, if it has one.
func (s *sidecar) listenOptions(c *config.Listener) (o reactor.ListenOptions, err error) {
	o.MaxConnections = c.Connections
	if c.Transparent {
		o.Transparent = &reactor.Transparent{Wait: s.cfg.Timeouts.Detect, Pass: s.streams.Pass}
	}
	if !c.TLS.Enabled() {
		return o, nil
	}
	source, err := s.identity("listeners."+c.Name+".tls", &c.TLS)
	if err != nil {
		return o, err
	}
	o.TLS = source.Server
	return o, nil
}

// identityStats lists them for the admin API.
func (s *sidecar) identityStats() []admin.Identity {
	if s.admin.Phase() == admin.Starting {
		return nil // listen is not through
	}
	out := make([]admin.Identity, len(s.identities))
	for i, id := range s.identities {
		st := id.source.Stats()
		out[i] = admin.Identity{Name: id.name, Loads: st.Loads, Failures: st.Failures, Expires: st.Expires}
	}
	return out
}
