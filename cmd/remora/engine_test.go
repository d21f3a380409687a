package main

import (
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/reactor/engine"
)

// TestEngineNames: the configuration takes the names of the engines.
func TestEngineNames(t *testing.T) {
	if names := engine.Names(); !slices.Equal(names, config.Engines) {
		t.Errorf("the engines are %q, the configuration takes %q", names, config.Engines)
	}
}
