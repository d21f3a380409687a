package sidecar

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

// TestChangedChecks: a reload that changes the name that the application must prove changes the check of
// the registration, too.
func TestChangedChecks(t *testing.T) {
	const before = `
node: {id: n1}
registry: {etcd: {endpoints: ["127.0.0.1:1"]}}
listeners: [{name: in, address: "127.0.0.1:0", protocol: http, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http, tls: {sni: a.test}}}
register: [{service: s, listener: in, advertise: "127.0.0.1:80", check: {http: /}}]`
	of := func(yaml string) *registration {
		cfg, err := config.Parse("test.yaml", []byte(yaml), func(string) (string, bool) { return "", false })
		if err != nil {
			t.Fatal(err)
		}
		return new(registrations).of(cfg, &cfg.Register[0], nil)
	}
	if !of(before).equal(of(before)) {
		t.Error("a registration differs from itself")
	}
	if of(before).equal(of(strings.Replace(before, "a.test", "b.test", 1))) {
		t.Error("the check does not change with tls.sni")
	}
}
