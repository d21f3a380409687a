package config

import (
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestLists checks that each enum with the tag list names a list that exists.
func TestLists(t *testing.T) {
	used := map[string]bool{}
	for _, of := range []reflect.Type{reflect.TypeFor[Config](), reflect.TypeFor[Listener](), reflect.TypeFor[Service](), reflect.TypeFor[LB]()} {
		for i := range of.NumField() {
			if name, ok := of.Field(i).Tag.Lookup("list"); ok {
				used[name] = true
			}
		}
	}
	for name := range used {
		if len(lists()[name]) == 0 {
			t.Errorf("there is no list %q", name)
		}
	}
	for name, list := range lists() {
		sorted := slices.Sorted(slices.Values(list))
		if !used[name] || len(slices.Compact(sorted)) != len(list) {
			t.Errorf("list %q is unused, or has a name twice: %q", name, list)
		}
	}
}

// TestProtocolMissing checks that a listener without a protocol, or with an unknown one,
// is refused with the names of all.
func TestProtocolMissing(t *testing.T) {
	for given, want := range map[string]string{
		"":                 "a.yaml:1:13: listeners[0].protocol: missing; expected one of ",
		", protocol: smtp": "a.yaml:1:69: listeners[0].protocol: expected one of ",
	} {
		_, err := Parse("a.yaml", []byte(`listeners: [{name: a, address: "127.0.0.1:0", service: s`+given+`}]
services: {s: {discover: static, endpoints: ["127.0.0.1:1"]}}`), environment)
		if want += strings.Join(ListenerProtocols, ", "); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", given, err, want)
		}
	}
}

// TestUnknownProtocolRules checks that the rules treat a protocol that they do not
// mention as one of requests: it needs a service or routes, and has no tls.
func TestUnknownProtocolRules(t *testing.T) {
	var got []string
	in := scope{config: Default(), report: func(at path, _ string, _ ...any) { got = append(got, string(at)) }}
	s := DefaultService("s")
	s.Discover, s.Protocol, s.Endpoints = []string{DiscoverStatic}, "other", []Endpoint{{Address: "127.0.0.1:1"}}
	in.config.Services["s"] = s
	(&Listener{Address: "127.0.0.1:2", Protocol: "other", Service: "s", Path: DefaultPath()}).check(in, "l")
	s.check(in, "services.s")
	checkProtocol(in, "p", "s", ProtocolHTTP)
	checkProtocol(in, "p", "s", ProtocolTCP)
	checkProtocol(in, "p", "s", ProtocolDubbo)
	if len(got) > 0 {
		t.Errorf("valid, but reported: %q", got)
	}
	s.Check.HTTP, s.TLS.CA = "/", "ca.pem"
	s.check(in, "services.s")
	(&Listener{
		Address: "127.0.0.1:2", Protocol: "other", Insecure: true, Transparent: true, Path: DefaultPath(), TLS: ListenerTLS{TLS: s.TLS.TLS},
	}).check(in, "l")
	want := []string{"services.s.check.http", "services.s.tls", "l.insecure", "l.service", "l.transparent", "l.tls"}
	if !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}
