package config

import (
	"iter"
	"net/netip"
	"reflect"
)

// Registry configures where services are found and registered. A registry whose clients serve
// all services brings a block. The key of the block is the name of the registry.
type Registry struct {
	Blocks `yaml:",inline"`
	// CIDRs of [special addresses](discovery.md#addresses-that-are-refused) that endpoints may have all the same, such as `127.0.0.0/8`.
	AllowAddresses []string `yaml:"allow_addresses" reload:"restart"`
	// Directory for the last known endpoints and the overlay in use: lets the sidecar start while their source is down. Empty means none.
	CacheDir string `yaml:"cache_dir" reload:"restart"`
}

func (r *Registry) setDefaults() { r.Blocks = defaultBlocks[Registry]() }

// Opened returns the networks of AllowAddresses.
func (r *Registry) Opened() []netip.Prefix { return prefixes(r.AllowAddresses) }

// check reports what is no CIDR, and what the blocks have wrong.
func (r *Registry) check(in scope, at path) {
	in.sections(reflect.ValueOf(r).Elem(), at)
	for i, text := range r.AllowAddresses {
		_, err := parsePrefix(text)
		in.refuseIf(err != nil, at.key("allow_addresses").item(i), "expected a CIDR such as 127.0.0.0/8, got %q", text)
	}
}

// registryBlock is what other sections need to know of the block of a registry.
type registryBlock interface {
	// servers returns how many servers the block names, and the key that names them. Without one, the registry is not
	// configured. "" means that it needs no key.
	servers() (key string, n int)
	registers() bool // reports whether its clients can register
	tls() *TLS       // nil means plain text
}

// registrationRule is the block of a registry that can't register each service or listener.
type registrationRule interface {
	checkRegistration(in scope, at path, r *Register, l *Listener)
}

// declareRegistry gives Registry the block of a registry.
func declareRegistry(name string, b registryBlock) { declareBlock[Registry](name, b) }

// Registries returns the names of the sources of endpoints.
func Registries() (names []string) {
	for _, b := range declared[reflect.TypeFor[Registry]()] {
		names = append(names, b.key)
	}
	return append(names, DiscoverStatic)
}

// blocks yields the blocks of all registries, by the names of these.
func (r *Registry) blocks() iter.Seq2[string, registryBlock] {
	return each[registryBlock](reflect.ValueOf(r).Elem())
}

// Servers returns the number of servers of all registries.
func (r *Registry) Servers() (n int) {
	for _, b := range r.blocks() {
		_, servers := b.servers()
		n += servers
	}
	return n
}

// checkConfigured reports a service of a registry without servers.
func (r *Registry) checkConfigured(in scope, at path, discover string) {
	for name, b := range r.blocks() {
		key, servers := b.servers()
		in.refuseIf(name == discover && servers == 0, at,
			"is %s, but registry.%s.%s is empty; expected addresses there, or discover: %s", name, name, key, DiscoverStatic)
	}
}

// checkRegistrar reports a registration that the first registry with servers can't take, or if there is no such registry.
// l is nil if there is no such listener.
func (r *Registry) checkRegistrar(in scope, at path, reg *Register, l *Listener) {
	empty := ""
	for name, b := range r.blocks() {
		key, servers := b.servers()
		switch {
		case !b.registers():
			continue
		case servers > 0:
			if rule, ok := b.(registrationRule); ok && l != nil {
				rule.checkRegistration(in, at, reg, l)
			}
			return
		case empty != "":
			empty += ", "
		}
		empty += "registry." + name + "." + key + " is empty"
	}
	in.report(at, "there is nowhere to register: %s", empty)
}
