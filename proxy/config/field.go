package config

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lb"
)

// field describes one key of a struct by the tags of its field.
type field struct {
	name    string
	of      reflect.Type // of the value
	index   []int
	block   bool     // reports whether the field at index is a Blocks that has the value
	oneof   []string // the values of an enum, or
	list    string   // the name of the list that has them
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

// value returns the value of the key in a struct.
func (f field) value(v reflect.Value) reflect.Value {
	if v = v.FieldByIndex(f.index); !f.block {
		return v
	}
	if b := v.MapIndex(reflect.ValueOf(f.name)); b.IsValid() {
		return b.Elem().Elem()
	}
	return reflect.New(f.of).Elem()
}

// fieldsOf returns the keys of a struct type, including those of embedded structs and of blocks. Nobody changes them.
func fieldsOf(t reflect.Type) []field {
	if known, ok := knownFields[t]; ok {
		return known
	}
	return findFields(t)
}

// knownFields has the keys of all types in a Config: a file may have many values of one type. declareBlock adds
// those of blocks.
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
			addFields(known, f.of)
		}
	}
}

func findFields(t reflect.Type) []field {
	var out []field
	for _, sf := range reflect.VisibleFields(t) {
		if sf.Type == reflect.TypeFor[Blocks]() {
			for _, b := range declared[t] {
				out = append(out, field{name: b.key, of: b.of, index: sf.Index, block: true})
			}
		}
		name := sf.Tag.Get("yaml")
		if name == "-" || sf.Anonymous {
			continue
		}
		out = append(out, field{
			name: name, of: sf.Type, index: sf.Index,
			oneof: strings.Fields(sf.Tag.Get("oneof")), list: sf.Tag.Get("list"),
			auto: sf.Tag.Get("auto"),
			size: sf.Tag.Get("unit") == "size", secret: sf.Tag.Get("secret") == "true",
			single: sf.Tag.Get("single") == "true", filled: sf.Tag.Get("filled") == "true", without: sf.Tag.Get("without"),
			min: sf.Tag.Get("min"), max: sf.Tag.Get("max"), in: sf.Tag.Get("in"),
		})
	}
	return out
}

// lists returns the lists by the name in the tag of a field, as in list:"protocols".
func lists() map[string][]string {
	return map[string][]string{
		"engines": Engines, "protocols": Protocols, "listener protocols": ListenerProtocols, "registries": Registries(), "policies": lb.PolicyNames(),
	}
}

// names returns the values of an enum. A field that is no enum has none.
func (f field) names() []string {
	if f.list != "" {
		return lists()[f.list]
	}
	return f.oneof
}

// boolean reports whether values of an enum are true and false, which YAML has without quotes.
func (f field) boolean() bool { return slices.Contains(f.oneof, "true") }

// expected describes the values of a scalar field.
func (f field) expected(t reflect.Type) string {
	var s string
	switch names := f.names(); {
	case len(names) > 0:
		return "one of " + strings.Join(names, ", ")
	case t == reflect.TypeFor[time.Duration]():
		s = "a duration such as 500ms"
	case f.size:
		s = "a size such as 64KiB"
	case t.Kind() == reflect.Bool:
		return "true or false"
	case t.Kind() == reflect.String:
		return "a string"
	case t.Kind() == reflect.Float64:
		return "a number in " + f.in
	default:
		s = "a whole number"
	}
	if f.auto != "" {
		s += " or auto"
	}
	return s
}
