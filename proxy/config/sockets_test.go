package config

import (
	"strings"
	"testing"
)

// with returns a configuration in braces with more keys.
func with(text, more string) string { return strings.TrimSuffix(text, "}") + ", " + more + "}" }

// TestSRVRules checks names of SRV records. Only endpoints may have them.
func TestSRVRules(t *testing.T) {
	of := func(endpoint string) string {
		return `{services: {s: {discover: static, endpoints: [` + endpoint + `]}}}`
	}
	checkRules(t, []rule{
		{of(`"_http._tcp.compute.internal"`), ""},
		{of(`{address: "_http._tcp.compute.internal", weight: 3}, "10.0.0.1:80"`), ""},
		{of(`"_http._tcp"`), `expected _SERVICE._PROTOCOL.DOMAIN, the name of SRV records, or host:port; got "_http._tcp"`},
		{of(`"_http._tcp.a/b"`), "expected letters, digits and hyphens"},
		{of(`"_http._tcp.a", "_http._tcp.a"`), "listed twice"},
		{of(`"compute.internal"`), "expected host:port"},
		{withListener(`service: s, protocol: http, address: "_http._tcp.compute.internal"`), "expected host:port"},
	})
}

// TestSocketRules checks addresses and modes of Unix sockets.
func TestSocketRules(t *testing.T) {
	at := func(address string) string {
		return withListener(`service: s, protocol: http, address: "` + address + `"`)
	}
	checkRules(t, []rule{
		{at("unix:/run/a.sock"), ""},
		{at("unix:@a"), ""},
		{at("unix:a"), "expected unix:/path or unix:@name; got \"unix:a\""},
		{at("unix:/" + strings.Repeat("a", 107)), "at most 107 bytes behind unix:, got 108"},
		{at("unix:/a:0"), "colon"},
		{with(at("unix:/a"), `admin: {address: "unix:/a"}`), "unix:/a is already used by admin.address"},
		{at("0.0.0.0:9901"), "0.0.0.0:9901 overlaps 127.0.0.1:9901, the address of admin.address"},
		{`admin: {address: "unix:@admin"}`, ""},
		{withListener(`service: s, protocol: http, mode: "0660", address: "unix:/a"`), ""},
		{withListener(`service: s, protocol: http, mode: 660, address: "unix:/a"`), ""},
		{withListener(`service: s, protocol: http, mode: "0860", address: "unix:/a"`), "expected octal digits"},
		{withListener(`service: s, protocol: http, mode: "01777", address: "unix:/a"`), "expected octal digits"},
		{withListener(`service: s, protocol: http, mode: "0", address: "unix:/a"`), "expected octal digits"},
		{withListener(`service: s, protocol: http, mode: "0660", address: "unix:@a"`), "only unix:/path has a file"},
		{withListener(`service: s, protocol: http, mode: "0660", address: "127.0.0.1:1"`), "only unix:/path has a file"},
		{with(withListener(`protocol: http, transparent: true, address: "unix:/a"`), `routes: [{service: s}]`), "redirects no connections"},
		{withListener(`service: s, protocol: link, address: "unix:/a"`), ""},
		{`services: {s: {discover: static, endpoints: ["unix:/a", "unix:@b", "c:1"]}}`, ""},
		{`services: {s: {discover: static, endpoints: ["unix:/a", "unix:/a"]}}`, "listed twice"},
		{`services: {s: {discover: static, endpoints: ["unix:"]}}`, "services.s.endpoints[0]: expected unix:/path"},
		{withEtcd(`["unix:/a"]`), "expected"},
		{`services: {s: {discover: static, protocol: http, endpoints: ["unix:/a"], tls: {ca: system}}}`, "services.s.tls.sni: missing; a Unix socket has no name"},
		{`services: {s: {discover: static, protocol: http, endpoints: ["unix:/a"], tls: {ca: system, sni: a.test}}}`, ""},
		{`services: {s: {discover: static, protocol: http, endpoints: ["unix:/a"], tls: {ca: system, peers: [a.test]}}}`, ""},
		{withListener(`protocol: http, unrouted: direct, address: "unix:/a"`), ""},
		{withListener(`protocol: http, unrouted: direct, address: "unix:/a", direct: {allow: ["unix:/b"]}`), "expected a"},
		{`{listeners: [{name: l, address: "unix:/a", protocol: http, service: s}], services: {s: {discover: static, protocol: http, endpoints: ["unix:/a"]}}}`,
			"services.s.endpoints[0]: a loop"},
	})
}

// TestProxyProtocolRules checks who may be a proxy, and who is sent a header.
func TestProxyProtocolRules(t *testing.T) {
	checkRules(t, []rule{
		{withListener(`service: s, protocol: http, address: ":1", proxy_protocol: {trust: [10.0.0.0/8, "::1"]}`), ""},
		{withListener(`service: s, protocol: http, address: ":1", proxy_protocol: {trust: [lb.internal]}`), "proxy_protocol.trust[0]: expected a CIDR"},
		{withListener(`protocol: http, address: "127.0.0.1:1", unrouted: direct, proxy_protocol: {trust: [127.0.0.1]}`), "the clients of a proxy may be anywhere"},
		{withListener(`service: s, protocol: http, address: ":1", proxy_protocol: {trust: []}`), "proxy_protocol.trust: empty"},
		{withListener(`service: s, protocol: http, address: ":1", proxy_protocol: true`), "expected a mapping"},
		{with(withListener(`protocol: http, transparent: true, address: ":1", proxy_protocol: {trust: [10.0.0.1]}`), `routes: [{service: s}]`), "contradicts proxy_protocol"},
		{withService("protocol: tcp, proxy_protocol: v1"), ""},
		{withService("protocol: tcp, proxy_protocol: v2"), ""},
		{withService("protocol: tcp, proxy_protocol: v3"), "expected one of off, v1, v2"},
		{withService("protocol: http, proxy_protocol: v2"), "X-Forwarded-For"},
		{withService("protocol: link, proxy_protocol: off"), ""},
	})
}

// TestSNIRules checks routes of connections.
func TestSNIRules(t *testing.T) {
	routes := func(routes string) string {
		return `{services: {s: {discover: static, endpoints: ["a:1"], protocol: tcp}, d: {discover: static, endpoints: ["a:1"], protocol: dubbo}},` +
			`listeners: [{name: l, address: ":1", protocol: tcp}], routes: [` + routes + `]}`
	}
	checkRules(t, []rule{
		{routes(`{match: {sni: a.test}, service: s}, {match: {sni: "*.a.test"}, service: s}, {match: {sni: "*"}, service: s}`), ""},
		{routes(``), "no route has match.sni"},
		{routes(`{match: {sni: "a..test"}, service: s}`), "expected a name such as example.com"},
		{routes(`{match: {sni: "a.*.test"}, service: s}`), "expected a name such as example.com"},
		{routes(`{match: {sni: "a.test:443"}, service: s}`), "expected a name such as example.com"},
		{routes(`{match: {sni: a.test, host: a.test}, service: s}`), "no other condition can hold"},
		{routes(`{match: {sni: a.test}, service: s, rewrite: {path: /a}}`), "routes[0].rewrite: is for requests"},
		{routes(`{match: {sni: a.test}, redirect: {host: b.test}}`), "routes[0].redirect: is for requests"},
		{routes(`{match: {sni: a.test}, service: s, fault: {abort: 503}}`), "routes[0].fault: is for requests"},
		{routes(`{match: {sni: a.test}, service: s, mirror: {service: d}}`), "routes[0].mirror: is for requests"},
		{routes(`{match: {sni: a.test}, service: s, rate_limit: {rate: 1}}`), "routes[0].rate_limit: is for requests"},
		{routes(`{match: {sni: a.test}, service: s, request_headers: {remove: [x]}}`), "routes[0].request_headers: is for requests"},
		{routes(`{match: {sni: a.test}, service: s, timeout: 1s}`), "set it at the service"},
		{routes(`{match: {sni: a.test}, service: s, allow: {rules: [{}]}}`), "set the rules at the listener"},
		{routes(`{match: {sni: a.test}, service: [{name: s, weight: 1}]}`), "connections can't be split"},
		{routes(`{match: {sni: a.test}}`), "a route needs a service"},
		{routes(`{match: {sni: a.test}, service: x}`), `there is no service "x"`},
		{routes(`{match: {sni: a.test}, service: d}`), "opaque tcp needs a service"},
		{routes(`{match: {sni: "*.test"}, service: s}, {match: {sni: a.TEST}, service: s}`), "never reached: routes[0]"},
		{routes(`{match: {sni: "*"}, service: s}, {match: {sni: "*.test"}, service: s}`), "never reached: routes[0]"},
		{`{services: {s: {discover: static, endpoints: ["a:1"]}}, routes: [{match: {sni: a.test}, service: s}]}`,
			"only a tcp listener without service looks at it"},
		{`{services: {s: {discover: static, endpoints: ["a:1"], protocol: http}}, listeners: [{name: l, address: ":1", protocol: tcp}, {name: m, address: ":2", protocol: http}], routes: [{match: {sni: a.test}, service: s}]}`,
			"listeners[1].service: missing, and there are no routes"},
		{`{services: {s: {discover: static, endpoints: ["127.0.0.1:1"], protocol: tcp}}, listeners: [{name: l, address: "127.0.0.1:1", protocol: tcp}], routes: [{match: {sni: a.test}, service: s}]}`,
			"services.s.endpoints[0]: a loop"},
		{`{services: {s: {discover: static, endpoints: ["127.0.0.1:2"], protocol: tcp}, h: {discover: static, endpoints: ["127.0.0.1:1"], protocol: http}}, listeners: [{name: l, address: "127.0.0.1:1", protocol: tcp}, {name: m, address: "127.0.0.1:3", protocol: http}], routes: [{match: {sni: a.test}, service: s}, {service: h}]}`, ""},
	})
}

// TestTakesServerName checks which names a route takes.
func TestTakesServerName(t *testing.T) {
	for _, c := range []struct {
		sni, name string
		want      bool
	}{
		{"a.test", "a.test", true},
		{"a.test", "A.Test", true},
		{"a.test", "b.a.test", false},
		{"a.test", "", false},
		{"*.a.test", "b.A.test", true},
		{"*.a.test", "a.test", false},
		{"*.a.test", "c.b.a.test", false},
		{"*.a.test", ".a.test", false},
		{"*.a.test", "", false},
		{"*", "a.test", true},
		{"*", "", true},
	} {
		if got := (&Match{SNI: c.sni}).TakesServerName(c.name); got != c.want {
			t.Errorf("%q takes %q: %t", c.sni, c.name, got)
		}
	}
}
