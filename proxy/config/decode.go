package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
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
	if strings.ContainsAny(name, ".[] ") || name == "" {
		return path(fmt.Sprintf("%s[%q]", p, name))
	}
	return p.key(name)
}

func (d *decoder) errorAt(at position, p path, format string, args ...any) {
	d.failed[p] = true
	d.add(at, p, fmt.Sprintf(format, args...))
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
		if d.is(kindMapping, "a mapping", n, f, p) {
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
		if d.is(kindSequence, "a list", n, f, p) {
			d.decodeSlice(n, v, f, p)
		}
	case reflect.Map:
		if d.is(kindMapping, "a mapping", n, f, p) {
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
		d.errorAt(n.at, p, "expected %s, got %s", expected, f.describe(n))
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
			d.errorAt(e.at, p.key(key), "%s; %s", what, expectedKeys(names, key))
		}
	}
}

// fieldFor returns the destination of the value of key f: its field, or Split for
// a route with a list of services.
func fieldFor(value *node, v reflect.Value, f field) reflect.Value {
	if r, ok := v.Addr().Interface().(*Route); ok && f.name == "service" && value.kind == kindSequence {
		return reflect.ValueOf(&r.Split).Elem()
	}
	return v.FieldByIndex(f.index)
}

func (d *decoder) decodeSlice(n *node, v reflect.Value, f field, p path) {
	// A new slice, because the default's may be shared.
	list := reflect.MakeSlice(v.Type(), len(n.items), len(n.items))
	for i, item := range n.items {
		d.setDefaults(list.Index(i), item)
		d.decode(item, list.Index(i), f, p.item(i))
	}
	v.Set(list)
}

// setDefaults sets the defaults of a list item before it is decoded.
func (d *decoder) setDefaults(v reflect.Value, n *node) {
	switch item := v.Addr().Interface().(type) {
	case *Listener:
		item.Path, item.Forwarded, item.Allow, item.TLS = DefaultPath(), defaultForwarded(), defaultAllow(), defaultListenerTLS()
		item.Unrouted, item.Expect = UnroutedRefuse, ExpectAnswer
	case *Endpoint:
		item.Weight = 1
	case *Register:
		item.Weight, item.Check = 1, defaultCheck()
	case *Route:
		d.route, item.Allow, item.Fault, item.Mirror = n, defaultAllow(), defaultFault(), defaultMirror()
		item.Fallback = defaultFallback()
		item.Policy = d.policyOf(firstService(n))
		if c := n.value("cache"); c != nil && c.kind == kindMapping {
			item.Cache = defaultCache()
		}
	case *Share:
		item.Weight = 1
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
	silent := decoder{positions: map[path]position{}, failed: map[path]bool{}}
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

// scalar returns the text of the scalar at key in a mapping, or "".
func (n *node) scalar(key string) string {
	if value := n.value(key); value != nil {
		return value.text
	}
	return ""
}

// value returns the value at key in a mapping, or nil.
func (n *node) value(key string) *node {
	for _, e := range n.entries {
		if e.key == key {
			return e.value
		}
	}
	return nil
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
			s.Protocol = defaultProtocol(e.value.scalar("discover"))
			value.Set(reflect.ValueOf(s))
			into = value.Elem()
		}
		d.decode(e.value, into, f, f.entry(p, e.key))
		v.SetMapIndex(reflect.ValueOf(e.key), value)
	}
}

// field describes one key of a struct by the tags of its field.
type field struct {
	name    string
	index   []int
	oneof   []string // the values of an enum
	auto    string   // the number that "auto" means
	size    bool     // reports whether it is a number of bytes
	secret  bool
	single  bool   // a list of one may be given as its item
	filled  bool   // an empty list is an error
	without string // the key of the struct that has no meaning here
	min     string // inclusive; empty means 0 for numbers and durations
	max     string
	in      string // the interval of a float
}

// fieldsOf returns the keys of a struct type, including those of embedded structs. Nobody changes them.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields[t]; ok {
		return known
	}
	return findFields(t)
}

// knownFields has the keys of all types in a Config: a file may have many values of one type.
var knownFields = func() map[reflect.Type][]field {
	known := map[reflect.Type][]field{}
	addFields(known, reflect.TypeFor[Config]())
	addFields(known, reflect.TypeFor[Policy]())
	return known
}()

func addFields(known map[reflect.Type][]field, t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		addFields(known, t.Elem())
	case reflect.Struct:
		if _, found := known[t]; found {
			return
		}
		known[t] = findFields(t)
		for _, f := range known[t] {
			addFields(known, t.FieldByIndex(f.index).Type)
		}
	}
}

func findFields(t reflect.Type) []field {
	var out []field
	for _, sf := range reflect.VisibleFields(t) {
		name := sf.Tag.Get("yaml")
		if name == "-" || sf.Anonymous {
			continue
		}
		out = append(out, field{
			name: name, index: sf.Index,
			oneof: namesOf(sf.Tag),
			auto:  sf.Tag.Get("auto"),
			size:  sf.Tag.Get("unit") == "size", secret: sf.Tag.Get("secret") == "true",
			single: sf.Tag.Get("single") == "true", filled: sf.Tag.Get("filled") == "true", without: sf.Tag.Get("without"),
			min: sf.Tag.Get("min"), max: sf.Tag.Get("max"), in: sf.Tag.Get("in"),
		})
	}
	return out
}

// namesOf returns the values of an enum: those in the tag oneof, or the list that the
// tag list names. A field without these tags is no enum.
func namesOf(tag reflect.StructTag) []string {
	if name, ok := tag.Lookup("list"); ok {
		return lists[name]
	}
	return strings.Fields(tag.Get("oneof"))
}

// expected describes the values of a scalar field.
func (f field) expected(t reflect.Type) string {
	var s string
	switch {
	case len(f.oneof) > 0:
		return "one of " + strings.Join(f.oneof, ", ")
	case t == reflect.TypeFor[time.Duration]():
		s = "a duration such as 500ms"
	case f.size:
		s = "a size such as 64KiB"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Float64:
		return "a number"
	default:
		s = "a whole number"
	}
	if f.auto != "" {
		s += " or auto"
	}
	return s
}
