package sidecar

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// TestRegistries checks that the configuration and the list know the same registries,
// and that each has one way to make its client.
func TestRegistries(t *testing.T) {
	var known []string
	for _, r := range registries {
		known = append(known, r.name)
		if (r.connect == nil) == (r.list == nil) {
			t.Errorf("%s has both or neither of connect and list", r.name)
		}
	}
	slices.Sort(known)
	if named := slices.Sorted(slices.Values(config.Registries())); !slices.Equal(known, named) {
		t.Errorf("registries.go has %q, config.Registries returns %q", known, named)
	}
}
