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

// lists are the lists by the name in the tag of a field, as in list:"protocols".
var lists = map[string][]string{
	"engines": Engines, "protocols": Protocols, "listener protocols": ListenerProtocols, "registries": Registries, "policies": lb.PolicyNames(),
}

// namesOf returns the values of an enum: those in the tag oneof, or the list that the
// tag list names. A field without these tags is no enum.
func namesOf(tag reflect.StructTag) []string {
	if name, ok := tag.Lookup("list"); ok {
		return lists[name]
	}
	return strings.Fields(tag.Get("oneof"))
}

// boolean reports whether values of an enum are true and false, which YAML has without quotes.
func (f field) boolean() bool { return slices.Contains(f.oneof, "true") }

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
		return "a number in " + f.in
	default:
		s = "a whole number"
	}
	if f.auto != "" {
		s += " or auto"
	}
	return s
}
