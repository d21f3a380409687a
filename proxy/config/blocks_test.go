package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestBlocks: each route has blocks of its own, with the defaults of the keys that its file does not set. A route
// that comes from no file has empty ones.
func TestBlocks(t *testing.T) {
	c := mustParse(t, `{services: {s: {discover: static, endpoints: ["a:1"]}}, routes: [
{service: s, match: {path: /a}, fault: {abort: 503}, mirror: {share: 1}}, {service: s}]}`)
	a, b := &c.Routes[0], &c.Routes[1]
	for _, got := range []struct{ is, want Fault }{
		{*a.Fault(), Fault{Abort: 503, AbortShare: 1, DelayShare: 1}},
		{*b.Fault(), Fault{AbortShare: 1, DelayShare: 1}},
		{*new(Route).Fault(), Fault{}},
	} {
		if got.is != got.want {
			t.Errorf("got %+v, want %+v", got.is, got.want)
		}
	}
	if a.SameFilters(b) || !a.SameFilters(a) || !new(Route).SameFilters(&Route{}) {
		t.Error("routes are the same if their blocks are")
	}
	roundTrip(t, c)
	if text, err := c.YAML(); err != nil || !strings.Contains(string(text), "abort: 503") {
		t.Errorf("%v; the block is missing in\n%s", err, text)
	}
}

// TestKeysUnique: no key of a section is declared twice.
func TestKeysUnique(t *testing.T) {
	for of, fields := range knownFields {
		seen := map[string]bool{}
		for _, f := range fields {
			if seen[f.name] {
				t.Errorf("%s has two keys %s", of, f.name)
			}
			seen[f.name] = true
		}
	}
}

// catalog is the block of a registry that can't register.
type catalog struct {
	Servers []string `yaml:"servers"`
}

func (l *catalog) servers() (key string, n int) { return "servers", len(l.Servers) }

func (*catalog) registers() bool { return false }

func (*catalog) tls() *TLS { return nil }

// TestDeclareRegistry: services may be found in a registry that a block declares. Without servers, or for a
// registration that it can't take, the error names what is missing.
func TestDeclareRegistry(t *testing.T) {
	part := reflect.TypeFor[Registry]()
	blocks, fields := slices.Clone(declared[part]), knownFields[part]
	t.Cleanup(func() { declared[part], knownFields[part] = blocks, fields })
	declareRegistry("catalog", new(catalog))
	const found = `services: {s: {discover: catalog}}
listeners: [{name: l, address: "127.0.0.1:1", protocol: http, service: s}]
registry: {catalog: {servers: ["a:1"]}}`
	const registered = found + `
register: [{service: s, listener: l, advertise: "a:1"}]`
	for _, c := range []struct{ text, want string }{
		{found, ""},
		{strings.Replace(found, `["a:1"]`, "[]", 1), "is catalog, but registry.catalog.servers is empty"},
		{strings.Replace(found, "discover: catalog", "discover: catalogue", 1), "expected one of catalog, "},
		{registered, "there is nowhere to register"},
		{strings.Replace(registered, "registry: {", `registry: {etcd: {endpoints: ["e:1"]}, `, 1), ""},
	} {
		_, err := Parse("test", []byte(c.text), environment)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s\ngives %s, want %q", c.text, got, c.want)
		}
	}
}
