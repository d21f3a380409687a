package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// decoder fills a Config from a tree. It reports each wrong value and keeps its
// default, so that one pass finds all errors.
type decoder struct {
	file   string
	config *Config
	errs   Errors
	warned Errors

	route     *node             // the route being decoded
	positions map[path]position // positions of the values in the file
	failed    map[path]bool     // values that could not be decoded
	partly    map[path]bool     // these, and the values that contain them
}

// path names a value as errors show it, for example services.compute.protocol.
type path string

func (p path) key(name string) path {
	if p == "" {
		return path(name)
	}
	return p + "." + path(name)
}

func (p path) item(i int) path { return path(fmt.Sprintf("%s[%d]", p, i)) }

func (p path) entry(name string) path {
	if strings.ContainsAny(name, ".[] :") || name == "" {
		return path(fmt.Sprintf("%s[%q]", p, name))
	}
	return p.key(name)
}

// parent returns p without its last step. Several calls may be needed to pass a quoted
// name with dots; the paths between match nothing.
func (p path) parent() path { return p[:max(strings.LastIndexAny(string(p), ".["), 0)] }

func (d *decoder) errorAt(at position, p path, format string, args ...any) {
	d.failed[p] = true
	for within := p; within != ""; within = within.parent() {
		d.partly[within] = true
	}
	d.add(at, p, sprintf(format, args...))
}

// decode fills v, which holds its default, from n.
func (d *decoder) decode(n *node, v reflect.Value, f field, p path) {
	d.positions[p] = n.at
	if n.kind == kindBroken {
		d.failed[p] = true
		if n.problem != "" {
			d.errorAt(n.at, p, "%s", n.problem)
		}
		return
	}
	switch into := v.Addr().Interface().(type) {
	case *Endpoint:
		if n.kind == kindScalar {
			into.Address = n.text
			return
		}
	case *Condition:
		d.decodeCondition(n, into, p)
		return
	}
	d.warnEmpty(n, v, p)
	switch v.Kind() {
	case reflect.Struct:
		f.secret = holdsSecret(v.Type())
		if d.is(kindMapping, "a mapping with keys such as "+firstKeys(v.Type()), n, f, p) {
			if s, ok := v.Addr().Interface().(interface{ setGiven() }); ok {
				s.setGiven()
			}
			d.decodeStruct(n, v, p, f.without)
			d.refuseEmptyTLS(n, v, p)
		}
	case reflect.Slice:
		if f.single && n.kind == kindScalar {
			n = &node{kind: kindSequence, at: n.at, items: []*node{n}}
		}
		if f.filled && len(n.items) == 0 && (n.kind == kindSequence || n.kind == kindNull) {
			d.errorAt(n.at, p, "empty; leave it out, or give it an item")
			return
		}
		if d.is(kindSequence, "a list, in brackets or with - before each item", n, f, p) {
			d.decodeSlice(n, v, f, p)
		}
	case reflect.Map:
		if d.is(kindMapping, "a mapping of names to values", n, f, p) {
			d.decodeMap(n, v, f, p)
		}
	default:
		if n.kind != kindScalar {
			d.errorAt(n.at, p, "expected %s, got %s", f.expected(v.Type()), f.describe(n))
		} else if err := decodeScalar(n, v, f); err != nil {
			d.errorAt(n.at, p, "%s", err)
		}
	}
}

// refuseEmptyTLS reports a tls block without a key: it would be plain text.
func (d *decoder) refuseEmptyTLS(n *node, v reflect.Value, p path) {
	switch v.Addr().Interface().(type) {
	case *ListenerTLS, *ServiceTLS:
		if len(n.entries) == 0 {
			d.errorAt(n.at, p, "empty, which would be plain text; expected at least one key, such as ca: %s", SystemCA)
		}
	}
}

// is reports whether n has the kind want. It reports an error if n has another one,
// except that nothing keeps the default.
func (d *decoder) is(want kind, expected string, n *node, f field, p path) bool {
	if n.kind != want && n.kind != kindNull {
		d.errorAt(n.at, p, "expected %s; got %s%s", expected, f.describe(n), colonHint(n))
	}
	return n.kind == want
}

// decodeStruct decodes the fields in their order, but for the one that has no meaning here, and then reports
// unknown keys.
func (d *decoder) decodeStruct(n *node, v reflect.Value, p path, without string) {
	var names []string
	for _, f := range fieldsOf(v.Type()) {
		if f.name == without {
			continue
		}
		names = append(names, f.name)
		if value := n.value(f.name); value != nil {
			d.decode(value, fieldFor(value, v, f), f, p.key(f.name))
		}
	}
	if r, ok := v.Addr().Interface().(*Route); ok && len(r.Split) > 0 {
		r.Service = r.Split[0].Name
	}
	for _, e := range n.entries {
		if !slices.Contains(names, e.key) {
			key, what := keyAlone(e.key), "unknown key"
			if e.key == without {
				what = "has no meaning here"
			}
			d.errorAt(e.at, p.entry(key), "%s; %s", what, expectedKeys(names, key))
		}
	}
}

// fieldFor returns the destination of the value of key f: the key's in v, or Split for
// a route with a list of services.
func fieldFor(value *node, v reflect.Value, f field) reflect.Value {
	if r, ok := v.Addr().Interface().(*Route); ok && f.name == "service" && value.kind == kindSequence {
		return reflect.ValueOf(&r.Split).Elem()
	}
	return f.value(v)
}

func (d *decoder) decodeSlice(n *node, v reflect.Value, f field, p path) {
	// A new slice, because the default's may be shared.
	list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.prepare(list.Index(i), item)
		d.decode(item, list.Index(i), f, p.item(i))
	}
	v.Set(list)
}

// prepare sets the defaults of a list item before it is decoded. Policies are inherited.
func (d *decoder) prepare(v reflect.Value, n *node) {
	setDefaults(v)
	switch item := v.Addr().Interface().(type) {
	case *Route:
		d.route, item.Policy = n, d.policyOf(firstService(n))
	case *Share:
		item.Policy = d.policyOf(n.scalar("name"))
		d.override(&item.Policy)
	}
}

// policyOf returns a copy of the policy of a service, or the default policy if there
// is no such service.
func (d *decoder) policyOf(service string) Policy {
	if s := d.config.Services[service]; s != nil {
		return s.Policy.clone()
	}
	return DefaultPolicy()
}

// override applies to p the policy settings of the route being decoded. It reports no
// errors: those are reported when the route itself is decoded.
func (d *decoder) override(p *Policy) {
	silent := decoder{positions: map[path]position{}, failed: map[path]bool{}, partly: map[path]bool{}}
	silent.decodeStruct(d.route, reflect.ValueOf(p).Elem(), "", "")
}

// firstService returns the name of the service whose policy the route n inherits.
func firstService(n *node) string {
	target := n.value("service")
	if target != nil && target.kind == kindSequence && len(target.items) > 0 {
		return target.items[0].scalar("name")
	}
	return n.scalar("service")
}

// decodeMap decodes a map of services, of conditions or of strings.
func (d *decoder) decodeMap(n *node, v reflect.Value, f field, p path) {
	if v.IsNil() {
		v.Set(reflect.MakeMap(v.Type()))
	}
	for _, e := range n.entries {
		value := reflect.New(v.Type().Elem()).Elem()
		into := value
		if value.Kind() == reflect.Pointer {
			s := DefaultService(e.key)
			s.Protocol = defaultProtocol(onlyItem(e.value.value("discover")))
			value.Set(reflect.ValueOf(s))
			into = value.Elem()
		}
		d.decode(e.value, into, f, f.entry(p, e.key))
		v.SetMapIndex(reflect.ValueOf(e.key), value)
	}
}

// onlyItem returns a scalar, or that of a list of one.
func onlyItem(n *node) string {
	switch {
	case n == nil:
		return ""
	case n.kind == kindSequence && len(n.items) == 1:
		return n.items[0].text
	}
	return n.text
}

// warnEmpty warns of a section without content. [] and {} say that it is meant.
func (d *decoder) warnEmpty(n *node, v reflect.Value, p path) {
	isSection := v.Kind() == reflect.Struct || v.Kind() == reflect.Slice || v.Kind() == reflect.Map
	if isSection && n.kind == kindNull {
		d.warn(p, "empty, as if it were left out")
	}
}
