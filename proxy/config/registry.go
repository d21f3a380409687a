package config

import "reflect"

// Registry configures where services are found and registered. A registry whose clients serve
// all services has a block, which is a registryBlock; its key is the name of the registry.
type Registry struct {
	Etcd Etcd `yaml:"etcd"`
	// Directory for the last known endpoints: lets the sidecar start while etcd is down. Empty means none.
	CacheDir string `yaml:"cache_dir" reload:"restart"`
}

// registryBlock is what other sections need to know of the block of a registry.
type registryBlock interface {
	servers() (key string, list []string) // without one, the registry is not configured
	tls() *TLS                            // nil means plain text
}

// Registries are the sources of endpoints.
var Registries = append(blockNames(), DiscoverStatic)

func blockNames() (names []string) {
	for name := range (&Registry{}).blocks() {
		names = append(names, name)
	}
	return names
}

// blocks yields the blocks of all registries, by the names of these.
func (r *Registry) blocks() func(yield func(string, registryBlock) bool) {
	return func(yield func(string, registryBlock) bool) {
		v := reflect.ValueOf(r).Elem()
		for i := range v.NumField() {
			b, ok := v.Field(i).Addr().Interface().(registryBlock)
			if ok && !yield(v.Type().Field(i).Tag.Get("yaml"), b) {
				return
			}
		}
	}
}

// Servers returns the number of servers of all registries.
func (r *Registry) Servers() (n int) {
	for _, b := range r.blocks() {
		_, list := b.servers()
		n += len(list)
	}
	return n
}

// checkConfigured reports a service of a registry without servers.
func (r *Registry) checkConfigured(in scope, at path, discover string) {
	for name, b := range r.blocks() {
		key, list := b.servers()
		in.refuseIf(name == discover && len(list) == 0, at,
			"is %s, but registry.%s.%s is empty; expected addresses there, or discover: %s", name, name, key, DiscoverStatic)
	}
}

// checkRegistrar reports a registration if no registry has servers.
func (r *Registry) checkRegistrar(in scope, at path) {
	if r.Servers() > 0 {
		return
	}
	empty := ""
	for name, b := range r.blocks() {
		key, _ := b.servers()
		if empty != "" {
			empty += ", "
		}
		empty += "registry." + name + "." + key + " is empty"
	}
	in.report(at, "there is nowhere to register: %s", empty)
}
