package config

import (
	"maps"
	"slices"
)

// validator finds errors that involve several values: references to nothing,
// duplicate names and addresses, contradictions.
type validator struct {
	config *Config
	report func(at path, format string, args ...any)
	warn   func(at path, format string, args ...any) // of a valid configuration

	matches map[string]int // routes by the text of their matches
}

// refuseIf reports an error if wrong is true.
func (v *validator) refuseIf(wrong bool, at path, format string, args ...any) {
	if wrong {
		v.report(at, format, args...)
	}
}

// reference reports the name of a service that does not exist.
func (v *validator) reference(at path, name string) {
	if _, ok := v.config.Services[name]; ok {
		return
	}
	names := slices.Sorted(maps.Keys(v.config.Services))
	v.report(at, "there is no service %q%s", name, knownNames(name, names))
}
