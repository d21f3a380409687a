package config

import "strings"

// Overlays says where overlays on the file come from: texts that change its settings, for a whole
// fleet at once.
type Overlays struct {
	// Start of the keys of overlays in etcd, at the endpoints of `registry.etcd`. Begins with `/`, does not end with it. Empty means no overlays.
	Etcd string `yaml:"etcd" reload:"restart"`
}

// Enabled reports whether there may be overlays.
func (o *Overlays) Enabled() bool { return o.Etcd != "" }

// check checks the start of the keys, which must not be among those of the registry.
func (o *Overlays) check(in scope, at path) {
	if !o.Enabled() {
		return
	}
	e, key := in.config.Registry.Etcd(), at.key("etcd")
	in.refuseIf(!strings.HasPrefix(o.Etcd, "/") || strings.HasSuffix(o.Etcd, "/"),
		key, "expected a path such as /remora/config, got %q", o.Etcd)
	in.refuseIf(isBelow(o.Etcd, e.Prefix) || isBelow(e.Prefix, o.Etcd),
		key, "expected another path than registry.etcd.prefix, and none above or below it, got %q", o.Etcd)
	in.refuseIf(len(e.Endpoints) == 0, key, "set, but registry.etcd.endpoints is empty; expected the addresses of etcd there")
}

// isBelow reports whether the keys that start with a path are among those that start with another one.
func isBelow(below, above string) bool { return strings.HasPrefix(below+"/", above+"/") }
