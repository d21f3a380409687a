package config

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// testHost is a host with two addresses, and with sockets at host names.
type testHost struct{}

func (testHost) IsOwn(addr netip.Addr) bool {
	return addr == netip.MustParseAddr("10.0.0.1") || addr == netip.MustParseAddr("fd00::1")
}

func (testHost) Bound(address string) (at netip.AddrPort, ok bool) {
	at, err := netip.ParseAddrPort(map[string]string{
		"localhost:9902": "127.0.0.1:9902", "localhost:15010": "127.0.0.1:15010", "node.test:15011": "10.0.0.1:15011", "any.test:15012": "[::]:15012",
	}[address])
	return at, err == nil
}

// TestComesBack: which endpoints of a service lead back to it, by a listener of the same sidecar.
func TestComesBack(t *testing.T) {
	c, err := Parse("remora.yaml", []byte(`
admin: {address: "10.0.0.1:9901", token: "0123456789abcdef0123456789abcdef"}
listeners:
  - {name: egress, address: "127.0.0.1:15001", protocol: http}
  - {name: ingress, address: "0.0.0.0:15006", protocol: link, service: local, insecure: true}
  - {name: six, address: "[::]:15007", protocol: http, service: b}
  - {name: chain, address: "10.0.0.1:15008", protocol: http, service: chain}
  - {name: loopback name, address: "localhost:15010", protocol: http, service: named}
  - {name: name, address: "node.test:15011", protocol: http, service: named}
  - {name: name of all, address: "any.test:15012", protocol: http, service: named}
  - {name: not bound, address: "other.test:15013", protocol: http, service: named}
routes:
  - {match: {host: a}, service: a}
  - {match: {host: rewritten}, service: rewritten, rewrite: {host: other}}
services:
  a: {discover: static, endpoints: ["10.0.0.2:80"]}
  b: {discover: static, endpoints: ["10.0.0.2:80"]}
  chain: {discover: static, endpoints: ["127.0.0.1:15001"]}
  rewritten: {discover: static, endpoints: ["10.0.0.2:80"]}
  local: {discover: static, endpoints: ["127.0.0.1:8080"]}
  named: {discover: static, endpoints: ["10.0.0.2:80"]}
`), nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range []struct {
		service, at string
		want        bool
	}{
		{"a", "127.0.0.1:15001", true},
		{"a", "127.0.0.2:15001", false},
		{"a", "10.0.0.1:15001", false},
		{"b", "127.0.0.1:15001", false},
		{"rewritten", "127.0.0.1:15001", false}, // it may match another route when it comes back
		{"a", "10.0.0.1:15008", true},           // by way of the service chain
		{"local", "10.0.0.1:15006", true},
		{"local", "127.0.0.1:15006", true},
		{"local", "10.0.0.2:15006", false}, // another sidecar
		{"local", "[fd00::1]:15006", false},
		{"a", "10.0.0.1:15006", false}, // a provider that is its own consumer
		{"b", "10.0.0.1:15007", true},
		{"b", "[fd00::1]:15007", true},
		{"b", "[fd00::2]:15007", false},
		{"b", "10.0.0.1:15009", false},
		{"named", "127.0.0.1:15010", true},
		{"named", "10.0.0.1:15010", false},
		{"a", "127.0.0.1:15010", false},
		{"named", "10.0.0.1:15011", true},
		{"named", "127.0.0.1:15011", false},
		{"named", "10.0.0.2:15011", false},
		{"named", "127.0.0.1:15012", true},
		{"named", "10.0.0.1:15012", true},
		{"named", "10.0.0.2:15012", false},
		{"named", "10.0.0.1:15013", false},
	} {
		if got := c.ComesBack(of.service, netip.MustParseAddrPort(of.at), testHost{}); got != of.want {
			t.Errorf("%s at %s: %t", of.service, of.at, got)
		}
	}
}

// TestIsAdmin: which endpoints are the admin API of the same sidecar.
func TestIsAdmin(t *testing.T) {
	for _, c := range []struct {
		address, at string
		want        bool
	}{
		{"10.0.0.1:9901", "10.0.0.1:9901", true},
		{"10.0.0.1:9901", "127.0.0.1:9901", false},
		{"10.0.0.1:9901", "10.0.0.2:9901", false},
		{"10.0.0.1:9901", "10.0.0.1:80", false},
		{"localhost:9902", "127.0.0.1:9902", true},
		{"localhost:9902", "127.0.0.1:9901", false},
		{"localhost:9902", "10.0.0.1:9902", false},
		{"other.test:9902", "127.0.0.1:9902", false},
		{"unix:/run/admin", "127.0.0.1:9901", false},
		{"", "127.0.0.1:9901", false},
	} {
		cfg := Config{Admin: Admin{Address: c.address}}
		if got := cfg.IsAdmin(netip.MustParseAddrPort(c.at), testHost{}); got != c.want {
			t.Errorf("the admin API at %q, the endpoint %s: %t", c.address, c.at, got)
		}
	}
}

// TestAllowAddresses: special networks that endpoints may be in are CIDRs.
func TestAllowAddresses(t *testing.T) {
	c, err := Parse("r.yaml", []byte(`registry: {allow_addresses: ["127.0.0.0/8", "fe80::1"]}`), nil)
	if err != nil || fmt.Sprint(c.Registry.Opened()) != "[127.0.0.0/8 fe80::1/128]" {
		t.Errorf("%v", err)
	}
	_, err = Parse("r.yaml", []byte(`registry: {allow_addresses: ["127.0.0.0/8", "10.0.0"]}`), nil)
	if err == nil || !strings.Contains(err.Error(), `r.yaml:1:45: registry.allow_addresses[1]: expected a CIDR such as 127.0.0.0/8, got "10.0.0"`) {
		t.Errorf("%v", err)
	}
}

// TestLocal: a registry is local if none of its servers can be elsewhere.
func TestLocal(t *testing.T) {
	for _, c := range []struct {
		endpoints []string
		want      bool
	}{
		{nil, false},
		{[]string{"127.0.0.1:2379"}, true},
		{[]string{"http://127.0.0.2:2379", "https://[::1]:2379"}, true},
		{[]string{"http://localhost:2379"}, true},
		{[]string{"http://LOCALHOST:2379", "etcd.localhost.:2379"}, true},
		{[]string{"127.0.0.1:2379", "10.0.0.1:2379"}, false},
		{[]string{"localhost.example.org:2379"}, false},
		{[]string{"etcd:2379"}, false},
	} {
		if got := (&Etcd{Endpoints: c.endpoints}).Local(); got != c.want {
			t.Errorf("etcd %v: %t", c.endpoints, got)
		}
		var servers []string // ZooKeeper's have no scheme
		for _, endpoint := range c.endpoints {
			servers = append(servers, endpoint[strings.LastIndexByte(endpoint, '/')+1:])
		}
		if got := (&ZooKeeper{Servers: servers}).Local(); got != c.want {
			t.Errorf("ZooKeeper %v: %t", servers, got)
		}
	}
}
