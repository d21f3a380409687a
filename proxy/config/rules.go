package config

import (
	"maps"
	"reflect"
	"slices"
)

// section is a part of a file with rules for several of its values, or for others of the file:
// references to nothing, contradictions.
type section interface {
	check(in scope, at path)
}

// scope is where a section stands, and takes what is wrong there.
type scope struct {
	config *Config
	report func(at path, format string, args ...any)
	warn   func(at path, format string, args ...any) // of a valid configuration
	partly map[path]bool                             // values that could not be decoded, or not all of them

	// What the section is a part of; at most one is set.
	listener *Listener
	service  *Service
	route    *Route
}

// sections checks the fields of a struct that are sections, and those of other fields.
func (in scope) sections(of reflect.Value, at path) {
	for _, f := range fieldsOf(of.Type()) {
		v := f.value(of)
		if s, ok := v.Addr().Interface().(section); ok {
			s.check(in, at.key(f.name))
		} else if v.Kind() == reflect.Struct {
			in.sections(v, at.key(f.name))
		}
	}
}

// refuseIf reports an error if wrong is true.
func (in scope) refuseIf(wrong bool, at path, format string, args ...any) {
	if wrong {
		in.report(at, format, args...)
	}
}

// reference reports the name of a service that does not exist.
func (in scope) reference(at path, name string) {
	if _, ok := in.config.Services[name]; ok || len(in.config.Services) == 0 && in.partly["services"] {
		return
	}
	names := slices.Sorted(maps.Keys(in.config.Services))
	in.report(at, "there is no service %q%s", name, knownNames(name, names))
}
