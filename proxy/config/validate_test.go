package config

import (
	"strings"
	"testing"
)

// TestBoundaryValues checks values just within and just outside of the rules.
func TestBoundaryValues(t *testing.T) {
	const listeners = "services: {s: {discover: static, endpoints: [\"a:1\"]}}\nlisteners: "
	const mutual = `{cert: c, key: k, ca: a, peers: ["spiffe://d/x"]}`
	const etcd = `registry: {etcd: {endpoints: `
	deep := strings.Repeat("[", maxDepth-2) + strings.Repeat("]", maxDepth-2)
	for _, c := range []struct {
		text string
		want string // part of the error; empty means none
	}{
		{"loops: 256", ""},
		{"loops: 257", "at most 256"},
		{"loops: -0", ""},
		{"loops: +1", "whole number"},
		{"limits: {header: 1KiB}", ""},
		{"limits: {header: 1024}", ""},
		{"limits: {header: 1023}", "at least 1KiB"},
		{"limits: {buffered: 1024GiB}", ""},
		{"limits: {buffered: 1025GiB}", "at most 1024GiB"},
		{"limits: {buffered: 8589934592GiB}", "expected a size"},
		{"timeouts: {idle: 8760h}", ""},
		{"timeouts: {idle: 8760h1ns}", "at most 8760h"},
		{"timeouts: {drain: 0}", ""},
		{`timeouts: {drain: "1s"}`, ""},
		{"access_log: {path: stdout}", ""},
		{"access_log: {}", ""},
		{"access_log: {path: /a, sample: 0, slow: 1ms}", ""},
		{"access_log: {path: /a, sample: 0, failed: true}", ""},
		{"access_log: {path: /a, sample: 0}", "no request would be logged"},
		{"access_log: {path: /a, sample: 1.5}", "[0,1]"},
		{"access_log: {path: /a, buffer: 1KiB}", "at least 64KiB"},
		{"access_log: {failed: true}", "expected a file, stdout or stderr"},
		{"timeouts: {write: 999us}", "at least 1ms"},
		{"admin: {address: \"[::1]:9901\"}", ""},
		{"admin: {address: \"[::]:9901\"}", "loopback"},
		{"admin: {address: \"[::]:9901\", token: x}", ""},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: ` + mutual + `}]`, ""},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, insecure: true, tls: ` + mutual + `}]`, "contradicts"},
		{listeners + `[{name: l, address: "a:1", protocol: http, service: s, tls: ` + mutual + `}]`, "not supported"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, ca: a}}]`, "tls.peers: missing"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, peers: [x]}}]`, "tls.ca: missing"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: {ca: a, peers: [x]}}]`, "tls.cert: missing"},
		{`services: {s: {discover: static, endpoints: ["a:1"], tls: ` + mutual + `}}` + "\nlisteners: [{name: l, address: \"a:1\", protocol: tcp, service: s}]", ""},
		{`services: {s: {discover: static, endpoints: ["a:1"], protocol: tcp, tls: {peers: [x]}}}` + "\nlisteners: [{name: l, address: \"a:1\", protocol: tcp, service: s}]", ""},
		{`services: {s: {discover: static, endpoints: ["a:1"], protocol: tcp, tls: {ca: a}}}`, "tls.peers: missing"},
		{`services: {s: {discover: static, endpoints: ["a:1"], tls: {ca: a, peers: [x]}}}`, "tls.cert: missing"},
		{listeners + `[{name: l, address: "a:1", protocol: tcp, service: s, tls: ` + mutual + `}]`, "not supported"},
		{`services: {s: {discover: static, endpoints: ["a:1"], tls: ` + mutual + `}}`, ""},
		{`services: {s: {discover: static, endpoints: ["a:1"], protocol: http, tls: ` + mutual + `}}`, "not supported"},
		{etcd + `["https://a:1"]}}`, ""},
		{etcd + `["a:1"], tls: {ca: x}}}`, ""},
		{etcd + `["https://a:1"], tls: {cert: x, key: y, peers: ["spiffe://d/*", "dns:a.b", "*.b"]}}}`, ""},
		{etcd + `["http://a:1"], tls: {ca: x}}}`, "expected https"},
		{etcd + `["https://a:1", "b:1"]}}`, "expected https"},
		{etcd + `["https://a:1"], tls: {cert: x}}}`, "together"},
		{etcd + `["https://a:1"], tls: {peers: ["*"]}}}`, "got \"*\""},
		{"admin: {token: \"a b\"}", "without spaces"},
		{"admin: {address: \"\"}", ""},
		{listeners + `[{name: l, address: "127.0.0.1:1", protocol: link, service: s}]`, ""},
		{listeners + `[{name: l, address: "[::ffff:127.0.0.1]:1", protocol: link, service: s}]`, ""},
		{listeners + `[{name: l, address: "localhost:1", protocol: link, service: s}]`, ""},
		{listeners + `[{name: l, address: ":1", protocol: link, service: s}]`, "insecure: true"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s}]`, "insecure: true"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, insecure: true}]`, ""},
		{listeners + `[{name: l, address: "a:0", protocol: http, service: s}, {name: m, address: "a:0", protocol: http, service: s}]`, ""},
		{"#" + strings.Repeat("x", maxFile-1), "empty"},
		{"#" + strings.Repeat("x", maxFile), "larger than"},
		{"x: " + deep, "unknown key"},
		{"x: [[" + deep + "]]", "nested more than 32 deep"},
		{strings.Repeat("- ", 1000), "nested more than 32 deep"},
		{strings.Repeat("[", 1000), "not valid YAML"},
		{strings.Repeat("{", 1000), "not valid YAML"},
		{"node: &a {id: &b [*a, *b]}", "inside its own anchor"},
		{"loops: 1\nloops: 2", "already set in line 1"},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], rate_limit: {burst: 5}}}", "a burst alone limits nothing"},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], rate_limit: {rate: 5}, breaker: {consecutive: 3}}}", ""},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], breaker: {half_open: 0}}}", "half_open"},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], max_concurrency: auto}}", ""},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], max_concurrency: automatic}}", "number or auto"},
	} {
		got := ""
		if _, err := Parse("test", []byte(c.text), environment); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%.100q: got %.200q, want %q", c.text, got, c.want)
		}
	}
}
