package config

import (
	"reflect"
	"slices"
	"strings"
)

// Overlay is a text that changes settings of a file. It is YAML with the keys of the file, laid on
// the file as RFC 7396 merges: mappings key by key; every other value, lists included, replaces
// the file's. An entry for a service that the file does not have has no effect there. There are no
// variables in it, and no value is empty.
type Overlay struct {
	Name string // of the text, as errors have it
	Text []byte
}

// fixed has the keys that an overlay may not set, with all below them: who this sidecar is, who may
// call it, where it listens, where a service's endpoints are and how they prove their names, what it
// registers, which files and addresses it writes to, and what only a restart changes. * stands for any
// name or index. What follows from this list is in SECURITY.md.
var fixed = []string{
	"node", "loops", "engine", "log", "admin", "registry", "config", "listeners", "register", "access_log", "tracing",
	"services.*.discover", "services.*.combine", "services.*.endpoints", "services.*.opaque", "services.*.protocol", "services.*.proxy_protocol",
	"services.*.check.host", "services.*.check.port", "services.*.allow", "services.*.tls",
	"routes.*.allow",
	"limits.connections", "limits.per_source", "limits.admin_connections", "timeouts.detect",
}

// CheckOverlay returns the errors of an overlay that any file has with it. The error is nil, or Errors. What
// depends on the file, such as a reference to a service, is checked when the overlay is laid on the file.
func CheckOverlay(over *Overlay) error {
	if _, errs := over.read(); len(errs) > 0 {
		return errs
	}
	return nil
}

// read returns the tree of an overlay, whose positions have its name, or its errors.
func (o *Overlay) read() (*node, Errors) {
	d := newDecoder(o.Name)
	root := d.readTree(o.Text, nil)
	if root != nil {
		d.refuseFixed(root, "", nil)
		d.decode(root, reflect.ValueOf(d.config).Elem(), field{}, "")
		root.nameSource(o.Name)
	}
	return root, d.errs.first(maxErrors)
}

// refuseFixed reports the fixed keys below n, and values that are empty: a value that is removed from a file would be
// the default, which no text would show. above are the keys above n.
func (d *decoder) refuseFixed(n *node, at path, above []string) {
	switch n.kind {
	case kindNull:
		d.errorAt(n.at, at, "empty; an overlay sets values, and an empty list is []")
	case kindSequence:
		for i, item := range n.items {
			d.refuseFixed(item, at.item(i), append(above, "*"))
		}
	case kindMapping:
		for _, e := range n.entries {
			p, keys := at.entry(e.key), append(above, e.key)
			if !slices.ContainsFunc(fixed, func(pattern string) bool { return matchesKeys(pattern, keys) }) {
				d.refuseFixed(e.value, p, keys)
				continue
			}
			d.errorAt(e.at, p, "an overlay may not change it; expected it in the file of each sidecar")
			d.errs[len(d.errs)-1].Fixed = true
		}
	}
}

// matchesKeys reports whether a pattern of fixed names a value by the keys that lead to it.
func matchesKeys(pattern string, keys []string) bool {
	steps := strings.Split(pattern, ".")
	return slices.EqualFunc(steps, keys, func(step, key string) bool { return step == "*" || step == key })
}

// lay lays an overlay on the tree of a valid file. It returns nil after it has reported errors of the overlay.
func (d *decoder) lay(over *Overlay, file *node) *node {
	changes, errs := over.read()
	if len(errs) > 0 {
		d.errs = errs
		return nil
	}
	if at, ok := changes.keyOf("routes"); ok && file.hasRouteRules() {
		d.errorAt(at, "routes", "routes of the file have allow rules, which other routes would drop; expected no routes in an overlay")
		d.errs[len(d.errs)-1].Fixed = true
		return nil
	}
	changes.dropOthers(file)
	return merge(file, changes)
}

// hasRouteRules reports whether a route of the file has allow rules.
func (n *node) hasRouteRules() bool {
	routes := n.value("routes")
	return routes != nil && slices.ContainsFunc(routes.items, func(route *node) bool { return route.value("allow") != nil })
}

// dropOthers drops the services of the overlay n that the file does not have. The mapping itself stays as it is: an alias may use it,
// too.
func (n *node) dropOthers(file *node) {
	for i, e := range n.entries {
		if e.key != "services" {
			continue
		}
		known, own := file.value("services"), *e.value
		own.entries = slices.DeleteFunc(slices.Clone(own.entries), func(s entry) bool { return known == nil || known.value(s.key) == nil })
		n.entries[i].value = &own
	}
}

// merge returns the tree of file with the values of over. It changes neither. Errors of what over sets are at its
// position.
func merge(file, over *node) *node {
	if file.kind != kindMapping || over.kind != kindMapping {
		return over
	}
	out := *over
	out.entries = slices.Clone(file.entries)
	at := make(map[string]int, len(out.entries))
	for i, e := range out.entries {
		at[e.key] = i
	}
	for _, e := range over.entries {
		i, known := at[e.key]
		if !known {
			out.entries = append(out.entries, e)
			continue
		}
		out.entries[i] = entry{key: e.key, at: e.at, value: merge(out.entries[i].value, e.value)}
	}
	return &out
}

// keyOf returns the position of a key in a mapping.
func (n *node) keyOf(key string) (at position, ok bool) {
	for _, e := range n.entries {
		if e.key == key {
			return e.at, true
		}
	}
	return position{}, false
}

// nameSource makes the positions of n and of all below it say of which text they are.
func (n *node) nameSource(name string) {
	n.at.of = name
	for _, item := range n.items {
		item.nameSource(name)
	}
	for i := range n.entries {
		n.entries[i].at.of = name
		n.entries[i].value.nameSource(name)
	}
}
