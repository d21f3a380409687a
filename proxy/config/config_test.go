package config

import (
	"fmt"
	"slices"
	"testing"
)

// manyParts is a configuration with a bit of all that other packages ask for.
const manyParts = `
registry: {etcd: {endpoints: ["10.0.0.1:2379", "10.0.0.2:2379"], tls: {ca: system}}, zookeeper: {servers: ["10.0.0.3:2181"]}, file: {path: /e.json}}
listeners:
- {name: http, address: "127.0.0.1:1", protocol: http}
- {name: fixed, address: "127.0.0.1:2", protocol: http, service: a}
- {name: secure, address: "127.0.0.1:3", protocol: http, service: d, tls: {cert: /c, key: /k}}
routes:
- {match: {path: /a}, service: a, cache: {}, mirror: {service: b}}
- {match: {path: /b}, service: [{name: b}, {name: c}], mirror: {service: a, share: 0}, fallback: {service: d, on: [5xx]}}
- {match: {path: /c}, service: [{name: c}, {name: d}], cache: {bytes: 0}}
services:
  a: {discover: etcd, protocol: http, tls: {ca: system}}
  b: {discover: [static, file], protocol: http, endpoints: ["10.0.0.9:1"]}
  c: {discover: static, protocol: http, endpoints: ["10.0.0.9:1"]}
  d: {discover: static, protocol: http, endpoints: ["10.0.0.9:1"]}
  t: {discover: static, protocol: tcp, endpoints: ["10.0.0.9:1"], tls: {ca: /ca, peers: [t.test]}}
`

// TestQuestions: what other packages ask a configuration.
func TestQuestions(t *testing.T) {
	c, err := Parse("test", []byte(manyParts), environment)
	if err != nil {
		t.Fatal(err)
	}
	for source, want := range map[string]bool{"etcd": true, "file": true, "static": true, "zookeeper": false, "kubernetes": false} {
		if c.Finds(source) != want {
			t.Errorf("a service finds its endpoints by %s: %t", source, !want)
		}
	}
	for service, want := range map[string]bool{"a": true, "b": false, "c": false, "d": false, "x": false} {
		if c.Caches(service) != want {
			t.Errorf("a route to %s has a cache: %t", service, !want)
		}
	}
	if got := c.RoutedServices(); !slices.Equal(got, []string{"a", "b", "c", "d"}) {
		t.Errorf("a listener or a route leads to %q", got)
	}
	for i, want := range [][]string{{"b"}, {"d"}, nil} {
		if got := c.Routes[i].FilterServices(); !slices.Equal(got, want) {
			t.Errorf("routes[%d] sends to %q by filters, want %q", i, got, want)
		}
	}
	for name, want := range map[string]bool{"http": true, "fixed": false, "secure": false} {
		if l := c.Listener(name); l == nil || l.Name != name || l.HasRoutes() != want {
			t.Errorf("listener %s: %+v", name, l)
		}
	}
	if l := c.Listener("none"); l != nil {
		t.Errorf("a listener that is not there: %+v", l)
	}
	if n := c.Registry.Servers(); n != 5 { // two of etcd, and one of each other registry
		t.Errorf("%d servers of registries", n)
	}
	var blocks []string
	for _, b := range c.TLSBlocks() {
		blocks = append(blocks, fmt.Sprint(b.Path, " ", b.Name, " ", b.TLS.CA, " ", b.Listener != nil, " ", b.HTTP))
	}
	want := []string{
		"registry.etcd.tls registry.etcd.tls system false false", "listeners[2].tls listeners.secure.tls  true true",
		"services.a.tls services.a.tls system false true", "services.t.tls services.t.tls /ca false false",
	}
	if !slices.Equal(blocks, want) {
		t.Errorf("tls blocks\n%q, want\n%q", blocks, want)
	}
	for name, isHTTPS := range map[string]bool{"a": true, "b": false, "t": false} {
		if c.Services[name].HTTPS() != isHTTPS {
			t.Errorf("service %s speaks HTTPS: %t", name, !isHTTPS)
		}
	}
}

// TestListenerContinues: which changes make another listener.
func TestListenerContinues(t *testing.T) {
	was := Listener{Name: "n", Address: "a", Protocol: "http", Service: "s"}
	for name, c := range map[string]struct {
		change func(l *Listener)
		want   bool
	}{
		"nothing":        {func(*Listener) {}, true},
		"service":        {func(l *Listener) { l.Service = "t" }, true},
		"name":           {func(l *Listener) { l.Name = "m" }, false},
		"address":        {func(l *Listener) { l.Address = "b" }, false},
		"mode":           {func(l *Listener) { l.Mode = "0600" }, false},
		"protocol":       {func(l *Listener) { l.Protocol = "tcp" }, false},
		"transparent":    {func(l *Listener) { l.Transparent = true }, false},
		"connections":    {func(l *Listener) { l.Connections = 1 }, false},
		"proxy protocol": {func(l *Listener) { l.ProxyProtocol.Trust = []string{"10.0.0.1"} }, false},
		"tls":            {func(l *Listener) { l.TLS.Cert = "c" }, false},
	} {
		l := was
		c.change(&l)
		if got := l.Continues(&was); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	both := was
	both.ProxyProtocol.Trust = []string{"10.0.0.1"}
	other := both
	if other.ProxyProtocol.Trust = []string{"10.0.0.2"}; !other.Continues(&both) {
		t.Error("another list of proxies makes another listener")
	}
}

// TestFileModes: modes are octal.
func TestFileModes(t *testing.T) {
	for mode, want := range map[FileMode]int{"": 0, "0660": 0o660, "7": 7, "777": 0o777} {
		if got := mode.Bits(); int(got) != want {
			t.Errorf("%q is %o", mode, got)
		}
	}
}

// TestEnforced: rules are enforced unless the file says that they are not. Without a rule every request passes.
func TestEnforced(t *testing.T) {
	for allow, want := range map[string]bool{
		"{}": false, "{enforce: true}": false, "{rules: [{method: [GET]}]}": true, "{enforce: false, rules: [{method: [GET]}]}": false,
	} {
		if a := mustParse(t, withService("allow: "+allow)).Services["s"].Allow; a.Enforced() != want {
			t.Errorf("%s is enforced: %t", allow, !want)
		}
	}
}
