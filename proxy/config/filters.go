package config

import (
	"iter"
	"maps"
	"reflect"
)

// filterSetting is the setting of a route for a filter (proxy/filter). Every other section knows it
// by this interface alone.
type filterSetting interface {
	Enabled() bool // reports whether the filter does anything
	given() bool   // reports whether a file sets a key to another value than its default

	// sendsTo returns the service that gets requests from the filter; empty means none.
	sendsTo() string
}

// declareFilter gives routes a block for a filter. The setting of a filter is a field of Route instead if other code
// reads it, or if it is one value.
func declareFilter(key string, s filterSetting) { declareBlock[Route](key, s) }

// filters yields the settings of a route for filters, by their keys.
func (r *Route) filters() iter.Seq2[string, filterSetting] {
	return each[filterSetting](reflect.ValueOf(r).Elem())
}

// SameFilters reports whether two routes have the same settings for filters.
func (r *Route) SameFilters(other *Route) bool {
	theirs := maps.Collect(other.filters())
	for key, s := range r.filters() {
		if !reflect.DeepEqual(s, theirs[key]) {
			return false
		}
	}
	return true
}

// FilterServices returns the names of the services that get requests from filters of a route.
func (r *Route) FilterServices() (names []string) {
	for _, s := range r.filters() {
		if to := s.sendsTo(); to != "" && s.Enabled() {
			names = append(names, to)
		}
	}
	return names
}
