package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"maps"
	"reflect"
	"slices"

	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/certs"
	"github.com/remora-proxy/remora/proxy/config"
)

// identity is the certificate of one tls block in the configuration.
type identity struct {
	name   string // where in the configuration it stands
	tls    *config.TLS
	source *certs.Source
}

// identities are those of a configuration, by name.
type identities map[string]*identity

// etcdIdentity is the name of the one towards the registry.
const etcdIdentity = "registry.etcd.tls"

func listenerIdentity(listener string) string { return "listeners." + listener + ".tls" }
func serviceIdentity(service string) string   { return "services." + service + ".tls" }

// openIdentities opens the files of the tls blocks of cfg. A block that has not
// changed keeps its identity in old. On an error nothing new is open.
func openIdentities(cfg *config.Config, old identities, log *slog.Logger) (identities, error) {
	blocks := make(map[string]*config.TLS)
	if cfg.Registry.Etcd.Secured() {
		blocks[etcdIdentity] = &cfg.Registry.Etcd.TLS
	}
	for i := range cfg.Listeners {
		if l := &cfg.Listeners[i]; l.TLS.Enabled() {
			blocks[listenerIdentity(l.Name)] = &l.TLS
		}
	}
	for name, svc := range cfg.Services {
		if svc.TLS.Enabled() {
			blocks[serviceIdentity(name)] = &svc.TLS
		}
	}
	next := make(identities, len(blocks))
	for name, t := range blocks {
		if id := old[name]; id != nil && reflect.DeepEqual(id.tls, t) {
			next[name] = id
			continue
		}
		source, err := certs.Open(certs.Options{Cert: t.Cert, Key: t.Key, CA: t.CA, Peers: t.Peers, Logger: log})
		if err != nil {
			next.closeBut(old)
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		next[name] = &identity{name, t, source}
	}
	return next, nil
}

// closeBut ends the watch of the files of those that are not in kept too. What
// uses them goes on with the last certificate.
func (ids identities) closeBut(kept identities) {
	for name, id := range ids {
		if kept[name] != id {
			id.source.Close()
		}
	}
}

// source is the certificate with a name; nil: there is none.
func (ids identities) source(name string) *certs.Source {
	if id := ids[name]; id != nil {
		return id.source
	}
	return nil
}

// dialers are the certificates for connections to services, by service.
type dialers map[string]*certs.Source

// dialers are those of cfg, and those of services that earlier reloads have
// removed while something may still be in flight there: it is not to go on in the
// clear.
func (s *sidecar) dialersOf(cfg *config.Config, ids identities) dialers {
	next := make(dialers)
	if old := s.dialing.Load(); old != nil {
		for name, source := range *old {
			if cfg.Services[name] == nil && (s.cfg.Services[name] != nil || !s.proc.Generation().Drained()) {
				next[name] = source
			}
		}
	}
	for name := range cfg.Services {
		if source := ids.source(serviceIdentity(name)); source != nil {
			next[name] = source
		}
	}
	return next
}

// dialTLS is what the driver asks for each connection.
func (s *sidecar) dialTLS(service string) func() *tls.Config {
	if source := (*s.dialing.Load())[service]; source != nil {
		return source.Client
	}
	return nil
}

// identityStats lists them for the admin API.
func (s *sidecar) identityStats() []admin.Identity {
	if s.admin.Phase() == admin.Starting {
		return nil // listen is not through
	}
	s.mu.Lock()
	ids := s.identities
	s.mu.Unlock()
	out := make([]admin.Identity, 0, len(ids))
	for _, name := range slices.Sorted(maps.Keys(ids)) {
		st := ids[name].source.Stats()
		out = append(out, admin.Identity{Name: name, Loads: st.Loads, Failures: st.Failures, Expires: st.Expires})
	}
	return out
}
