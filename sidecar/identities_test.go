package sidecar

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/proxy"
	"github.com/remora-proxy/remora/proxy/config"
)

// TestFormerServices: the services of earlier configurations stay known while requests are in flight, up to a
// bound. Nothing is sent to one that is not known.
func TestFormerServices(t *testing.T) {
	parse := func(subset int) *config.Config { // another subset makes another service
		cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, "services: {app: {discover: static, endpoints: [\"127.0.0.1:1\"], lb: {subset: %d}}}", subset),
			func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	proc := proxy.NewProcess(parse(1), 1)
	var c clientCerts
	c.set(proc.Generation(), proc.Generation(), nil, false)
	var keys []string
	reload := func(busy bool) {
		before := proc.Generation()
		keys = append(keys, slices.Collect(maps.Keys(before.Keys()))...)
		next := proc.Prepare(parse(len(keys)+1), func() {})
		c.set(before, next, nil, busy)
		proc.Switch(next, func() {})
	}
	plain := func(key string) bool { return c.client(key, "", "") == nil }
	for range maxFormer {
		reload(true)
	}
	if !plain(keys[0]) || !plain(keys[maxFormer-1]) {
		t.Errorf("services are forgotten after %d reloads", maxFormer)
	}
	reload(true)
	if plain(keys[0]) || !plain(keys[1]) {
		t.Errorf("after one reload more: the first is known %t, the second %t", plain(keys[0]), plain(keys[1]))
	}
	reload(false)
	if last := len(keys) - 1; plain(keys[last-1]) || !plain(keys[last]) {
		t.Error("of the former services only the last must be known once no request was in flight")
	}
	if !plain("") || len(c.former) != 1 {
		t.Errorf("%d former services", len(c.former))
	}
}
