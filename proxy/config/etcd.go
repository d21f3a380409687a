package config

import (
	"slices"
	"strings"
	"time"
)

// Etcd is the etcd cluster of the registry.
type Etcd struct {
	// `host:port`, `http://…` or `https://…`. `discover: etcd` and `register` require it.
	// A proxy that the environment names is not used.
	Endpoints []string `yaml:"endpoints" reload:"restart"`
	// Start of every key, `<prefix>/<service>/<node.id>@<address>`. Begins with `/`, does not end with it.
	Prefix string `yaml:"prefix" reload:"restart"`
	// How long a registration outlives a killed sidecar, in whole seconds.
	LeaseTTL time.Duration `yaml:"lease_ttl" min:"1s" reload:"restart"`
	// Requires `password`.
	Username string `yaml:"username" reload:"restart"`
	// Requires `username`. `/config` does not show it.
	Password string `yaml:"password" secret:"true" reload:"restart"`
	TLS      TLS    `yaml:"tls"`
}

// DiscoverEtcd is the value of Service.Discover for endpoints in etcd.
const DiscoverEtcd = "etcd"

func init() { declareRegistry(DiscoverEtcd, new(Etcd)) }

// Etcd returns the settings of etcd.
func (r *Registry) Etcd() *Etcd { return block[Etcd](r.Blocks) }

func (e *Etcd) setDefaults() { e.Prefix, e.LeaseTTL = "/remora/services", 10*time.Second }

// Secured reports whether the connections to etcd use TLS: tls is set, or an endpoint
// is an https URL.
func (e *Etcd) Secured() bool {
	return e.TLS.Enabled() || slices.ContainsFunc(e.Endpoints, func(endpoint string) bool {
		return strings.HasPrefix(endpoint, "https://")
	})
}

// Local reports whether all endpoints of etcd are on loopback.
func (e *Etcd) Local() bool { return allLocal(e.Endpoints) }

func (e *Etcd) servers() (key string, n int) { return "endpoints", len(e.Endpoints) }

func (e *Etcd) registers() bool { return true }

func (e *Etcd) tls() *TLS {
	if e.Secured() {
		return &e.TLS
	}
	return nil
}

// check reports endpoints that are none, and keys that contradict each other.
func (e *Etcd) check(in scope, at path) {
	for i, endpoint := range e.Endpoints {
		shown := at.key("endpoints").item(i)
		scheme, addr, ok := strings.Cut(endpoint, "://")
		if !ok {
			scheme, addr = "http", endpoint
		}
		switch scheme {
		case "http", "https":
			checkAddress(in, shown, addr, dialable)
		default:
			in.report(shown, "expected host:port, http://host:port or https://host:port, got %q", public(endpoint))
		}
	}
	e.checkTLS(in, at)
	in.refuseIf(!strings.HasPrefix(e.Prefix, "/") || strings.HasSuffix(e.Prefix, "/"),
		at.key("prefix"), "expected a path such as /remora/services, got %q", e.Prefix)
	in.refuseIf(e.LeaseTTL%time.Second != 0,
		at.key("lease_ttl"), "expected whole seconds, got %s", e.LeaseTTL)
	in.refuseIf((e.Username == "") != (e.Password == ""),
		at, "username and password must be set together")
}

// checkTLS checks that the schemes of etcd's endpoints agree with its tls block.
func (e *Etcd) checkTLS(in scope, at path) {
	e.TLS.check(in, at.key("tls"))
	for i, endpoint := range e.Endpoints {
		shown := at.key("endpoints").item(i)
		isHTTPS := strings.HasPrefix(endpoint, "https://")
		switch {
		case strings.HasPrefix(endpoint, "http://") && e.Secured():
			in.report(shown, "plain text, but other settings of etcd use TLS; expected https://host:port")
		case !isHTTPS && !e.TLS.Enabled() && e.Secured():
			in.report(shown, "expected https://, like the other endpoints")
		}
	}
}
