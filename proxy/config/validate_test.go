package config

import (
	"strings"
	"testing"
)

// rule is a configuration, and a part of its error; empty means that it is valid.
type rule struct{ text, want string }

func checkRules(t *testing.T, rules []rule) {
	t.Helper()
	for _, r := range rules {
		got := ""
		if _, err := Parse("test", []byte(r.text), environment); err != nil {
			got = err.Error()
		}
		if (got == "") != (r.want == "") || !strings.Contains(got, r.want) {
			t.Errorf("%.100q: got %.200q, want %q", r.text, got, r.want)
		}
		if r.want == "" {
			if err := conforms(t, r.text); err != nil {
				t.Errorf("%.100q does not conform to the schema: %v", r.text, err)
			}
		}
	}
}

// mutual is a complete tls block of a link.
const mutual = `{cert: c, key: k, ca: a, peers: ["spiffe://d/x"]}`

// withListener returns a configuration with a service s, and a listener with these keys.
func withListener(keys string) string {
	return `{services: {s: {discover: static, endpoints: ["b:1"]}}, listeners: [{name: l, ` + keys + `}]}`
}

// withService returns a configuration with a static service with these keys.
func withService(keys string) string {
	return `services: {s: {discover: static, endpoints: ["b:1"], ` + keys + `}}`
}

// withRoute returns a configuration with two services, and a route to the first with these keys.
func withRoute(keys string) string {
	return `{services: {s: {discover: static, endpoints: ["a:1"], protocol: http, timeout: 2s}, mirrored: {discover: static, endpoints: ["b:1"], protocol: http}},
listeners: [{name: l, address: "c:1", protocol: http}], routes: [{service: s, ` + keys + `}]}`
}

// withEtcd returns a configuration of etcd with these endpoints, and further keys.
func withEtcd(endpoints string) string { return `registry: {etcd: {endpoints: ` + endpoints + `}}` }

// TestNumberBounds checks values at the bounds of numbers, sizes and durations.
func TestNumberBounds(t *testing.T) {
	checkRules(t, []rule{
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
		{"timeouts: {write: 999us}", "at least 1ms"},
		{"limits: {message: 1MiB, buffered: 1MiB}", ""},
		{"limits: {message: 2MiB, buffered: 1MiB}", "limits.message: "},
		{"loops: 01", "whole number"},
		{"loops: -1", "at least"},
		{"limits: {header: 9223372036854775807GiB}", "expected a size"},
	})
}

// TestAccessLogRules checks which settings make an access log.
func TestAccessLogRules(t *testing.T) {
	checkRules(t, []rule{
		{"access_log: {path: stdout}", ""},
		{"access_log: {}", ""},
		{"access_log: {path: /a, sample: 0, slow: 1ms}", ""},
		{"access_log: {path: /a, sample: 0, failed: true}", ""},
		{"access_log: {path: /a, sample: 0}", "no request would be logged"},
		{"access_log: {path: /a, sample: 1.5}", "[0,1]"},
		{"access_log: {path: /a, buffer: 1KiB}", "at least 64KiB"},
		{"access_log: {failed: true}", "expected a file, stdout or stderr"},
	})
}

// TestNodeRules checks names of nodes, which are part of keys.
func TestNodeRules(t *testing.T) {
	checkRules(t, []rule{
		{"node: {id: az-09._}", ""},
		{"node: {id: a/b}", "node.id: expected a name without spaces, / and @"},
		{"node: {id: a@b}", "node.id: expected a name without spaces, / and @"},
		{"node: {id: a b}", "node.id: expected a name without spaces, / and @"},
		{`node: {id: ""}`, "node.id: expected a name without spaces, / and @"},
	})
}

// TestTracingRules checks where exports can go.
func TestTracingRules(t *testing.T) {
	of := func(endpoint string) string { return `tracing: {endpoint: "` + endpoint + `"}` }
	checkRules(t, []rule{
		{of("http://127.0.0.1:4318"), ""},
		{of("https://a/b"), ""},
		{of("ftp://a"), "expected the URL of an OTLP/HTTP receiver"},
		{of("http://"), "expected the URL of an OTLP/HTTP receiver"},
		{of("http://u@a"), "expected the URL of an OTLP/HTTP receiver"},
		{of("http://a?b"), "expected the URL of an OTLP/HTTP receiver"},
		{of("http://a#b"), "expected the URL of an OTLP/HTTP receiver"},
		{`tracing: {endpoint: "http://a", headers: {Host: b}}`, "other than Content-Type and Host"},
		{`tracing: {endpoint: "http://a", headers: {host-b: b}}`, ""},
	})
}

// TestAdminRules checks the address and the token of the admin API.
func TestAdminRules(t *testing.T) {
	checkRules(t, []rule{
		{"admin: {address: \"[::1]:9901\"}", ""},
		{"admin: {address: \"[::]:9901\"}", "loopback"},
		{"admin: {address: \"[::]:9901\", token: x}", ""},
		{"admin: {token: \"a b\"}", "without spaces"},
		{"admin: {token: \"a\\x7f\"}", "without spaces"},
		{"admin: {token: \"!~\"}", ""},
		{"admin: {address: \"\"}", ""},
	})
}

// TestListenerAddresses checks which link listeners need tls or insecure, and that port 0 may
// be used twice.
func TestListenerAddresses(t *testing.T) {
	checkRules(t, []rule{
		{withListener(`address: "127.0.0.1:1", protocol: link, service: s`), ""},
		{withListener(`address: "[::ffff:127.0.0.1]:1", protocol: link, service: s`), ""},
		{withListener(`address: "localhost:1", protocol: link, service: s`), ""},
		{withListener(`address: ":1", protocol: link, service: s`), "insecure: true"},
		{withListener(`address: "a:1", protocol: link, service: s`), "insecure: true"},
		{withListener(`address: "a:1", protocol: link, service: s, insecure: true`), ""},
		{withListener(`address: "a:0", protocol: http, service: s}, {name: m, address: "a:0", protocol: http, service: s`), ""},
	})
}

// TestListenerTLS checks the tls block of listeners.
func TestListenerTLS(t *testing.T) {
	checkRules(t, []rule{
		{withListener(`address: "a:1", protocol: link, service: s, tls: ` + mutual), ""},
		{withListener(`address: "a:1", protocol: link, service: s, insecure: true, tls: ` + mutual), "contradicts"},
		{withListener(`address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, ca: a}`), "tls.peers: missing"},
		{withListener(`address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, peers: [x]}`), "tls.ca: missing"},
		{withListener(`address: "a:1", protocol: link, service: s, tls: {ca: a, peers: [x]}`), "tls.cert: missing"},
		{withListener(`address: "a:1", protocol: tcp, service: s, tls: ` + mutual), "not supported"},
		{withListener(`address: "a:1", protocol: dubbo, service: s, tls: {min_version: 1.3}`), "not supported"},
		{withListener(`address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, ca: a, peers: [x], certificates: [{cert: c, key: k}]}`), "tls.certificates: only an http listener"},
		{withListener(`address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, ca: a, peers: [x], client_certificate: optional}`), "tls.client_certificate: only an http listener"},
		{withListener(`address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, ca: a, peers: [x], min_version: 1.3}`), "tls.min_version: only an http listener"},
	})
}

// TestHTTPListenerTLS checks the tls block of HTTP listeners.
func TestHTTPListenerTLS(t *testing.T) {
	secure := func(keys string) string {
		return withListener(`address: "a:1", protocol: http, service: s, tls: {` + keys + `}`)
	}
	checkRules(t, []rule{
		{secure(`cert: c, key: k`), ""},
		{secure(``), "listeners[0].tls: empty, which would be plain text"},
		{secure(`cert: c`), "set together"},
		{secure(`min_version: 1.3`), "tls.cert: missing"},
		{secure(`certificates: [{cert: c, key: k}]`), "tls.cert: missing"},
		{secure(`cert: c, key: k, certificates: [{cert: d, key: l}]`), ""},
		{secure(`cert: c, key: k, certificates: [{cert: d}]`), "tls.certificates[0]: cert and key"},
		{secure(`cert: c, key: k, certificates: [` + strings.Repeat(`{cert: d, key: l}, `, 257) + `]`), "tls.certificates: 257 of them; at most 256"},
		{secure(`cert: c, key: k, min_version: 1.3`), ""},
		{secure(`cert: c, key: k, min_version: "1.2"`), ""},
		{secure(`cert: c, key: k, min_version: 1.1`), "min_version: expected one of 1.2, 1.3"},
		{secure(`cert: c, key: k, ca: a`), "tls.ca: set, but client_certificate is none"},
		{secure(`cert: c, key: k, ca: a, peers: [x]`), "tls.peers: set, but client_certificate is none"},
		{secure(`cert: c, key: k, client_certificate: required`), "tls.ca: missing"},
		{secure(`cert: c, key: k, client_certificate: required, ca: system`), "tls.peers: missing"},
		{secure(`cert: c, key: k, client_certificate: required, ca: system, peers: [x]`), ""},
		{secure(`cert: c, key: k, client_certificate: required, ca: system, peers: [x], crl: r`), "tls.crl: needs the file ca"},
		{secure(`cert: c, key: k, client_certificate: optional, ca: a, peers: ["*"]`), "tls.peers[0]: expected"},
		{secure(`cert: c, key: k, client_certificate: require, ca: a`), "did you mean required"},
		{withListener(`address: "a:1", protocol: http, transparent: true, tls: {cert: c, key: k}}], routes: [{service: s`), "contradicts tls"},
	})
}

// TestServiceTLS checks the tls block of services.
func TestServiceTLS(t *testing.T) {
	checkRules(t, []rule{
		{withService(`protocol: link, tls: `+mutual) + "\nlisteners: [{name: l, address: \"a:1\", protocol: tcp, service: s}]", ""},
		{withService(`protocol: tcp, tls: {peers: [x]}`) + "\nlisteners: [{name: l, address: \"a:1\", protocol: tcp, service: s}]", ""},
		{withService(`protocol: tcp, tls: {ca: a}`), "tls.peers: missing"},
		{withService(`protocol: link, tls: {ca: a, peers: [x]}`), "tls.cert: missing"},
		{withService(`protocol: link, tls: ` + mutual), ""},
		{withService(`tls: ` + mutual), ""},
		{withService(`protocol: dubbo, tls: ` + mutual), "not supported"},
		{withService(`protocol: http, tls: ` + mutual), ""},
		{withService(`protocol: http2, tls: {ca: system, sni: host}`), ""},
		{withService(`protocol: grpc, tls: {cert: c}`), "set together"},
		{withService(`protocol: http, tls: {}`), "services.s.tls: empty, which would be plain text"},
		{withService(`protocol: http, tls: {ca: system}`), ""},
		{withService(`protocol: http, tls: {sni: api.example.com}`), ""},
		{withService(`protocol: http, tls: {sni: "::1"}`), ""},
		{withService(`protocol: http, tls: {sni: host}`), ""},
		{withService(`protocol: http, tls: {sni: host}, check: {tcp: true}`), ""},
		{withService(`protocol: http, tls: {sni: host}, check: {http: /}`), "tls.sni: host contradicts check: a check"},
		{withService(`protocol: http, tls: {sni: host}, check: {grpc: /}`), "tls.sni: host contradicts check: a check"},
		{withService(`protocol: http, check: {grpc: a/b}`), `check.grpc: expected the name of a service such as shop.Cart, or / for the server as a whole, got "a/b"`},
		{withService(`protocol: http, check: {grpc: a.B, http: /}`), "check: expected http, tcp or grpc, got grpc and another one"},
		{withService(`protocol: tcp, check: {grpc: a.B}`), "check.grpc: the endpoints speak tcp, not gRPC; expected tcp: true"},
		{withService(`protocol: http, tls: {sni: "*.a"}`), "tls.sni: expected a host name"},
		{withService(`protocol: http, tls: {sni: "a:443"}`), "tls.sni: expected a host name"},
		{withService(`protocol: http, tls: {sni: a..b}`), "tls.sni: expected a host name"},
		{withService(`protocol: http, tls: {cert: c}`), "set together"},
		{withService(`protocol: http, tls: {crl: r}`), "tls.crl: needs the file ca"},
		{withService(`protocol: link, tls: {cert: c, key: k, ca: a, peers: [x], sni: a}`), "tls.sni: only a service that speaks HTTP"},
	})
}

// TestEtcdTLS checks that the tls block of etcd agrees with the endpoints.
func TestEtcdTLS(t *testing.T) {
	checkRules(t, []rule{
		{withEtcd(`["https://a:1"]`), ""},
		{withEtcd(`["a:1"], tls: {ca: x}`), ""},
		{withEtcd(`["https://a:1"], tls: {cert: x, key: y, peers: ["spiffe://d/*", "dns:a.b", "*.b"]}`), ""},
		{withEtcd(`["http://a:1"], tls: {ca: x}`), "expected https"},
		{withEtcd(`["https://a:1", "b:1"]`), "expected https"},
		{withEtcd(`["https://a:1"], tls: {cert: x}`), "together"},
		{withEtcd(`["https://a:1"], tls: {ca: a, crl: r}`), ""},
		{withEtcd(`["https://a:1"], tls: {crl: r}`), "tls.crl: needs the file ca"},
		{withEtcd(`["https://a:1"], tls: {peers: ["*"]}`), "got \"*\""},
		{withEtcd(`["a:1"], prefix: /a/b`), ""},
		{withEtcd(`["a:1"], prefix: a`), "prefix: expected a path"},
		{withEtcd(`["a:1"], prefix: /a/`), "prefix: expected a path"},
		{withEtcd(`["a:1"], lease_ttl: 2s`), ""},
		{withEtcd(`["a:1"], lease_ttl: 1500ms`), "lease_ttl: expected whole seconds"},
		{withEtcd(`["a:1"], username: u`), "username and password must be set together"},
		{withEtcd(`["a:1"], password: p`), "username and password must be set together"},
	})
}

// TestServiceRules checks limits of services.
func TestServiceRules(t *testing.T) {
	checkRules(t, []rule{
		{withService(`rate_limit: {burst: 5}`), "a burst alone limits nothing"},
		{withService(`rate_limit: {rate: 5}, breaker: {consecutive: 3}`), ""},
		{withService(`breaker: {half_open: 0}`), "half_open"},
		{`services: {"a b": {discover: static, endpoints: ["b:1"]}}`, "expected a name without spaces and /"},
		{`services: {a/b: {discover: static, endpoints: ["b:1"]}}`, "expected a name without spaces and /"},
		{`services: {"": {discover: static, endpoints: ["b:1"]}}`, "expected a name without spaces and /"},
		{`services: {"${A}": {discover: static, endpoints: ["b:1"]}}`, "variables are expanded in values, not in keys"},
		{withService(`max_concurrency: auto`), ""},
		{withService(`max_concurrency: automatic`), "number or auto"},
	})
}

// TestCheckRules checks which settings make a health check, of a service and of a registration.
func TestCheckRules(t *testing.T) {
	application := func(endpoints, check string) string {
		return `{services: {s: {discover: static, endpoints: ` + endpoints + `, protocol: http}}, listeners: [{name: l, address: "a:1", protocol: http, service: s}],
registry: {etcd: {endpoints: ["http://e:1"]}}, register: [{service: r, listener: l, advertise: "a:1", check: ` + check + `}]}`
	}
	registered := func(check string) string { return application(`["b:1"]`, check) }
	const srv = `["_http._tcp.b.test"]`
	checkRules(t, []rule{
		{withService(`protocol: http, check: {http: /, tcp: true}`), "services.s.check: expected http or tcp, got both"},
		{withService(`protocol: http, check: {http: up}`), `services.s.check.http: expected a path that starts with "/", got "up"`},
		{withService(`protocol: http, check: {http: "http://a/up"}`), `expected a path that starts with "/"`},
		{withService(`protocol: tcp, check: {http: /}`), "services.s.check.http: the endpoints speak tcp, not http; expected tcp: true"},
		{withService(`protocol: tcp, check: {http: /, port: 8008}`), ""},
		{withService(`protocol: tcp, check: {http: /, host: agent.test}`), ""},
		{withService(`protocol: tcp, check: {grpc: /, host: "::1", port: 1}`), ""},
		{withService(`protocol: tcp, check: {port: 8008}`), "services.s.check: expected http, tcp or grpc; without one there is no check"},
		{withService(`protocol: tcp, check: {host: a}`), "services.s.check: expected http, tcp or grpc; without one there is no check"},
		{withService(`protocol: tcp, check: {on_down: close}`), "services.s.check: expected http, tcp or grpc; without one there is no check"},
		{withService(`protocol: tcp, check: {tcp: true, host: "a:1"}`), `services.s.check.host: expected a name or an IP address without a port, got "a:1"`},
		{withService(`protocol: tcp, check: {tcp: true, host: "http://a"}`), "services.s.check.host: expected a name or an IP address"},
		{withService(`protocol: tcp, check: {tcp: true, port: 65536}`), "services.s.check.port: expected"},
		{withService(`protocol: tcp, check: {tcp: true, on_down: cut}`), `services.s.check.on_down: expected one of keep, close, got "cut"`},
		{`services: {s: {discover: static, endpoints: ["unix:/a"], protocol: http, check: {http: /, port: 1}}}`, "expected host and port, since the endpoint unix:/a has neither"},
		{`services: {s: {discover: static, endpoints: ["unix:/a"], protocol: http, check: {http: /, port: 1, host: a}}}`, ""},
		{`services: {s: {discover: static, endpoints: ["unix:/a"], protocol: http, check: {http: /}}}`, ""},
		{registered(`{http: /, port: 1}`), ""},
		{registered(`{http: /, on_down: close}`), "register[0].check.on_down: has no meaning here"},
		{application(srv, `{}`), ""},
		{application(srv, `{http: /}`), "register[0].check: _http._tcp.b.test of service s has no host and port to ask; expected host and port here"},
		{application(srv, `{tcp: true, port: 1}`), "register[0].check: _http._tcp.b.test of service s has no host and port to ask"},
		{application(srv, `{tcp: true, host: b}`), "register[0].check: _http._tcp.b.test of service s has no host and port to ask"},
		{application(srv, `{tcp: true, host: b, port: 1}`), ""},
		{application(`["_http._tcp.b.test", "b:1"]`, `{http: /}`), ""},
		{application(`["unix:/b"]`, `{http: /}`), ""},
		{application(`["unix:/b"]`, `{http: /, port: 1}`), "register[0].check: unix:/b of service s has no host and port to ask"},
		{application(`["unix:/b"]`, `{http: /, host: b, port: 1}`), ""},
		{application(`["unix:/b", "b:1"]`, `{http: /, port: 1}`), ""},
	})
}

// TestRateKeyRules checks the keys of rate limits.
func TestRateKeyRules(t *testing.T) {
	dubbo := `{services: {s: {discover: static, endpoints: ["a:1"], protocol: dubbo}}, listeners: [{name: l, address: "b:1", protocol: dubbo, rate_limit: {rate: 1, key: %s}}],
routes: [{service: s}]}`
	checkRules(t, []rule{
		{withRoute(`rate_limit: {rate: 1, key: peer}`), ""},
		{withRoute(`rate_limit: {rate: 1, key: path}`), ""},
		{withRoute(`rate_limit: {rate: 1, key: header X-User}`), ""},
		{withRoute(`rate_limit: {rate: 1}`), ""},
		{withRoute(`rate_limit: {key: peer}`), "routes[0].rate_limit.rate: missing; a key alone limits nothing"},
		{withRoute(`rate_limit: {rate: 1, key: pear}`), `routes[0].rate_limit.key: expected peer, path or header NAME, got "pear"; did you mean peer?`},
		{withRoute(`rate_limit: {rate: 1, key: peer x}`), "expected peer, path or header NAME"},
		{withRoute(`rate_limit: {rate: 1, key: header}`), "such as header x-user"},
		{withRoute(`rate_limit: {rate: 1, key: "header a:b"}`), "such as header x-user"},
		{`{listeners: [{name: l, address: "b:1", protocol: http}], services: {s: {discover: static, endpoints: ["a:1"]}},
			routes: [{match: {host: a.test}, service: s}, {match: {host: A.test.}, service: s}]}`, "routes[1]: never reached: routes[0]"},
		{withRoute(`rate_limit: {rate: 1, key: header Host}`), "the host is no key"},
		{withRoute(`rate_limit: {rate: 1, key: header X-Remora-Class}`), "removes its own headers"},
		{withRoute(`match: {service: a}, rate_limit: {rate: 1, key: header x-user}`), "calls of Dubbo have no headers"},
		{withListener(`address: "a:1", protocol: http, service: s, rate_limit: {rate: 1, key: users}`), "listeners[0].rate_limit.key: expected"},
		{withListener(`address: "a:1", protocol: tcp, service: s, rate_limit: {rate: 1}`), "a tcp listener sees no requests"},
		{strings.Replace(dubbo, "%s", "path", 1), ""},
		{strings.Replace(dubbo, "%s", "header x", 1), "calls of Dubbo have no headers"},
		{withService(`rate_limit: {rate: 1, key: peer}`), "services.s.rate_limit.key: only the limits of listeners and routes"},
	})
}

// TestFileBounds checks the bounds of a file, its nesting, anchors and duplicate keys.
func TestFileBounds(t *testing.T) {
	deep := strings.Repeat("[", maxDepth-2) + strings.Repeat("]", maxDepth-2)
	checkRules(t, []rule{
		{"#" + strings.Repeat("x", maxFile-1), "empty"},
		{"#" + strings.Repeat("x", maxFile), "larger than"},
		{"x: " + deep, "unknown key"},
		{"x: [[" + deep + "]]", "nested more than 32 deep"},
		{strings.Repeat("- ", 1000), "nested more than 32 deep"},
		{"node: &a {id: &b [*a, *b]}", "inside its own anchor"},
		{"loops: 1\nloops: 2", "already set in line 1"},
	})
}

// TestForwardedRules checks whom a listener can trust, and which headers it can remove.
func TestForwardedRules(t *testing.T) {
	http := func(forwarded string) string {
		return withListener(`address: "a:1", protocol: http, service: s, forwarded: {` + forwarded + `}`)
	}
	checkRules(t, []rule{
		{http(``), ""},
		{http(`trust: 0`), ""},
		{http(`trust: 255`), ""},
		{http(`trust: 256`), "trust: expected at most 255 proxies"},
		{http(`trust: -1`), "trust[0]: expected a number of proxies, or a list of CIDRs"},
		{http(`trust: [1, 2]`), "trust[0]: expected a number of proxies, or a list of CIDRs"},
		{http(`trust: 10.0.0.0/8`), ""},
		{http(`trust: [10.0.0.0/8, "2001:db8::/32", 192.0.2.1, "fe80::1"]`), ""},
		{http(`trust: [10.0.0.0/33]`), "trust[0]: expected a number"},
		{http(`trust: edge.example`), "trust[0]: expected a number"},
		{http(`trust: {}`), "expected a list"},
		{http(`strip: []`), ""},
		{http(`strip: [X-User, Forwarded]`), ""},
		{http(`strip: [X-User, x-user]`), "strip[1]: \"x-user\" is listed twice"},
		{http(`strip: [X-Forwarded-For]`), "has its own rule"},
		{http(`strip: [x-remora-hedge]`), "has its own rule"},
		{http(`strip: ["a b"]`), "name of a header"},
		{http(`underscores: drop`), ""},
		{http(`underscores: no`), "one of keep, drop, reject"},
		{withListener(`address: "a:1", protocol: tcp, service: s, forwarded: {trust: 1}`), "only an http listener"},
		{withListener(`address: "127.0.0.1:1", protocol: link, service: s, forwarded: {strip: []}`), "only an http listener"},
	})
}

func TestHedgeClass(t *testing.T) {
	checkRules(t, []rule{
		{withService(`hedge: {class: size}`), ""},
		{withService(`hedge: {class: none}`), ""},
		{withService(`hedge: {class: X-Kind}`), ""},
		{withService(`hedge: {class: ""}`), "hedge.class: expected size, none or the name of a header"},
		{withService(`hedge: {class: "a b"}`), "hedge.class: expected"},
		{withService(`hedge: {class: X-Remora-Class}`), "hedge.class: expected"},
	})
}

// TestAllowRules checks that rules which can't match, and names of nothing, are reported.
func TestAllowRules(t *testing.T) {
	link := func(rules string) string {
		return withListener(`address: "a:1", protocol: link, service: s, tls: ` + mutual + `, allow: {rules: [` + rules + `]}`)
	}
	listener := func(protocol, rules string) string {
		return withListener(`address: "127.0.0.1:1", protocol: ` + protocol + `, service: s, allow: {rules: [` + rules + `]}`)
	}
	route := func(match, rules string) string {
		return `{services: {s: {discover: static, endpoints: ["b:1"]}}, listeners: [{name: l, address: "127.0.0.1:1", protocol: http}], ` +
			`routes: [{match: {` + match + `}, service: s, allow: {rules: [` + rules + `]}}]}`
	}
	service := func(listener, rules string) string {
		return `{services: {s: {discover: static, endpoints: ["a:1"], allow: {rules: [` + rules + `]}}}, listeners: [{name: l, address: "127.0.0.1:1", ` + listener + `}]}`
	}
	checkRules(t, []rule{
		{link(`{name: a, from: ["spiffe://d/*", "*.d"], method: [GET], path: [/a, /b/*, "/*"]}, {service: [i], method: [m]}`), ""},
		{link(`{from: [a b]}`), "rules[0].from[0]: expected spiffe://domain/path"},
		{link(`{path: [/a], service: [i]}`), "nothing can match both"},
		{link(`{path: [/a], from: []}`), "from: empty; leave it out"},
		{link(`{path: [/a], method: }`), "method: empty; leave it out"},
		{link(``), "allow.rules: empty; leave it out"},
		{link(`{path: [a]}`), "expected a path"},
		{link(`{path: [/a*]}`), "expected a path"},
		{link(`{path: ["/a?b"]}`), "expected a path"},
		{link(`{path: [/a/../b]}`), "never matches: a path that applications may shorten"},
		{link(`{path: [/a/..]}`), "never matches: a path that applications may shorten"},
		{link(`{path: [/a/./b]}`), "never matches: a path that applications may shorten"},
		{link(`{path: [/a/.]}`), "never matches: a path that applications may shorten"},
		{link(`{path: [/a/..b, /a./b, /.b]}`), ""},
		{link(`{path: ["/a#b"]}`), "expected a path"},
		{link(`{path: ["/é"]}`), "expected a path"},
		{link(`{method: ["a b"]}`), "expected a method"},
		{link(`{service: [""]}`), "name of an interface"},
		{link(`{service: [a b]}`), "name of an interface"},
		{link(`{path: [/a//*]}`), "never matches: a path that applications may shorten"},
		{link(`{method: [get], path: [/a]}`), "a method of HTTP such as GET"},
		{link(`{method: [""]}`), "expected a method"},
		{link(`{service: ["a*"]}`), "name of an interface"},
		{link(`{name: a}, {name: a, path: [/a]}`), "is already the name of another rule"},
		{link(`{name: "1", path: [/a]}`), "that are no number"},
		{link(`{name: none, path: [/a]}`), "not none"},
		{link(`{name: "a b", path: [/a]}`), "letters, digits"},
		{link(`{}, {path: [/a]}`), "rules[1]: never needed: rules[0]"},
		{link(`{method: [GET, PUT]}, {method: [PUT], path: [/a]}`), "rules[1]: never needed: rules[0]"},
		{link(`{method: [PUT], path: [/a]}, {method: [GET, PUT]}`), ""},
		{link(`{paths: [/a]}`), "did you mean path"},
		{listener(`link`, `{from: ["spiffe://d/a"]}`), "from: never matches: no listener with tls"},
		{listener(`http`, `{from: ["spiffe://d/a"]}`), "from: never matches: no listener with tls"},
		{listener(`http`, `{path: [/a]}`), ""},
		{listener(`http`, `{method: [GET]}, {}`), ""},
		{strings.Replace(listener(`dubbo`, `{service: [i]}, {method: [m]}, {}`), `"b:1"]`, `"b:1"], protocol: dubbo`, 1), ""},
		{strings.Replace(listener(`tcp`, `{}`), `"b:1"]`, `"b:1"], protocol: tcp`, 1), ""},
		{strings.Replace(listener(`tcp`, `{service: [i]}`), `"b:1"]`, `"b:1"], protocol: tcp`, 1), "service: never matches: no Dubbo call"},
		{strings.Replace(listener(`tcp`, `{path: [/a]}`), `"b:1"]`, `"b:1"], protocol: tcp`, 1), "path: never matches: no HTTP request"},
		{listener(`http`, `{service: [i]}`), "service: never matches: no Dubbo call"},
		{listener(`dubbo`, `{path: [/a]}`), "path: never matches: no HTTP request"},
		{listener(`tcp`, `{method: [GET]}`), "method: never matches: no request comes here"},
		{route(`path: /a/`, `{path: [/a/b, /a/*, /a/b/*, "/*"]}`), ""},
		{route(`path: /a/`, `{path: [/b]}`), "never matches: match.path is /a/"},
		{route(`path: /a/`, `{path: [/b/*]}`), "never matches: match.path is /a/"},
		{route(`method: [GET]`, `{method: [PUT]}`), "never matches: match.method lacks PUT"},
		{`{services: {s: {discover: static, endpoints: ["a:1"], allow: {rules: [{from: [a.d], path: [/a]}]}}}}`, ""},
		{service(`protocol: http, service: s`, `{from: [a.d]}`), "services.s.allow.rules[0].from: never matches"},
		{service(`protocol: link, service: s, tls: `+mutual, `{from: [a.d]}`), ""},
		{`{services: {s: {discover: static, endpoints: ["a:1"]}}, routes: [{service: s}], listeners: [{name: l, address: "a:1", protocol: http, transparent: true, allow: {rules: [{}]}}]}`, "contradicts transparent"},
	})
}

func TestExpectRules(t *testing.T) {
	checkRules(t, []rule{
		{withListener(`address: "127.0.0.1:1", protocol: http, service: s, expect: forward`), ""},
		{withListener(`address: "127.0.0.1:1", protocol: http, service: s, expect: drop`), "one of answer, forward"},
		{withListener(`address: "127.0.0.1:1", protocol: link, service: s, expect: forward`), "listeners[0].expect: only an http listener"},
	})
}

// TestDirectRules checks where `unrouted: direct` has a meaning, and the entries of its list.
func TestDirectRules(t *testing.T) {
	direct := func(allow string) string {
		return withListener(`address: "127.0.0.1:1", protocol: http, unrouted: direct, direct: {allow: ` + allow + `}`)
	}
	checkRules(t, []rule{
		{withListener(`address: "127.0.0.1:1", protocol: http, unrouted: direct`), ""},
		{withListener(`address: "a:1", protocol: http, unrouted: direct`), "listeners[0].unrouted: this listener is not on loopback"},
		{withListener(`address: "a:1", protocol: http, unrouted: direct, direct: {allow: ["*"]}`), ""},
		{withListener(`address: "127.0.0.1:1", protocol: http, unrouted: drop`), "one of refuse, direct"},
		{withListener(`address: "127.0.0.1:1", protocol: http, service: s, unrouted: direct`), "contradicts service"},
		{withListener(`address: "127.0.0.1:1", protocol: dubbo, unrouted: direct`), "only an http listener"},
		{withListener(`address: "127.0.0.1:1", protocol: http, transparent: true, unrouted: direct`), "contradicts transparent"},
		{withListener(`address: "127.0.0.1:1", protocol: http, service: s, direct: {allow: [a]}`), "has no effect without unrouted: direct"},
		{direct(`[a, A.example.com, "*.b", "a:80", "*:443", 10.0.0.0/8, "10.0.0.0/8:80", "::1", "[::1]:80", "[fd00::/8]:80", 127.0.0.1]`), ""},
		{direct("[]"), "empty"},
		{direct(`["a:0"]`), "expected a port"},
		{direct(`["a:65536"]`), "expected a port"},
		{direct(`["[::1]80"]`), "expected a port"},
		{direct(`["http://a"]`), "expected a"},
		{direct(`["a.*"]`), "expected a name"},
		{direct(`["a b"]`), "expected a name"},
		{direct(`[""]`), "expected a name"},
		{direct(`["10.0.0.0/33"]`), "expected a name"},
		{direct(`["10.0.0.256"]`), "expected a name"},
		{direct(`["localhost:80"]`), "never matches"},
		{direct(`[a, a]`), `listeners[0].direct.allow[1]: "a" is listed twice`},
	})
}

// TestOverlayRules: the keys of overlays are in the same etcd as those of the registry, and beside them.
func TestOverlayRules(t *testing.T) {
	overlays := func(etcd, registry string) string {
		return `{config: {etcd: "` + etcd + `"}, registry: {etcd: {` + registry + `}}}`
	}
	const registry = `endpoints: ["a:1"], prefix: /remora/services`
	checkRules(t, []rule{
		{overlays("/remora/config", registry), ""},
		{overlays("/remora/services2", registry), ""},
		{overlays("", `prefix: /remora`), ""},
		{overlays("remora/config", registry), `config.etcd: expected a path such as /remora/config, got "remora/config"`},
		{overlays("/remora/config/", registry), "expected a path such as /remora/config"},
		{overlays("/remora/services", registry), "config.etcd: expected another path than registry.etcd.prefix"},
		{overlays("/remora/services/x", registry), "expected another path than registry.etcd.prefix"},
		{overlays("/remora", registry), "expected another path than registry.etcd.prefix"},
		{overlays("/remora/config", `prefix: /remora/services`), "config.etcd: set, but registry.etcd.endpoints is empty"},
	})
}

// TestRegistrationRules: what is registered is a listener of the file, with an address that others can dial, and its check
// asks what the listener leads to.
func TestRegistrationRules(t *testing.T) {
	of := func(register string) string {
		return `{services: {s: {discover: static, endpoints: ["a:1"], protocol: http, tls: {sni: host}}, e: {discover: etcd}, t: {discover: static, endpoints: ["a:1"]}},
routes: [{service: t}], registry: {etcd: {endpoints: ["a:1"]}},
listeners: [{name: l, address: "b:1", protocol: http, service: s}, {name: m, address: "b:2", protocol: http}, {name: e, address: "b:3", protocol: http, service: e}],
register: [` + register + `]}`
	}
	one := func(keys string) string { return of(`{service: r, advertise: "a:1", ` + keys + `}`) }
	checkRules(t, []rule{
		{one(`listener: l`), ""},
		{one(`listener: l, check: {tcp: true}`), ""},
		{one(`listener: l, check: {http: /, port: 1}`), ""},
		{one(`listener: l, check: {http: /}`), "register[0].check: contradicts tls.sni: host of service s: a check is no request"},
		{one(`listener: l, check: {grpc: /}`), "register[0].check: contradicts tls.sni: host of service s"},
		{one(`listener: m`), ""},
		{one(`listener: m, check: {tcp: true}`), `register[0].check: listener "m" has no service, so there is nothing to check`},
		{one(`listener: e`), ""},
		{one(`listener: e, check: {tcp: true}`), "register[0].check: service e has no static endpoints, so there is nothing to check"},
		{one(`listener: n, check: {tcp: true}`), `register[0].listener: there is no listener "n"; expected one of l, m, e`},
		{of(`{service: r, listener: l}`), `register[0].advertise: expected host:port, got ""`},
		{of(`{service: r, listener: l, advertise: "a:0"}`), "register[0].advertise: expected a port from 1 to 65535"},
		{of(`{listener: l, advertise: "a:1"}`), "register[0].service: expected the name under which others find the service"},
		{of(`{service: a/b, listener: l, advertise: "a:1"}`), "register[0].service: expected the name under which others find the service"},
		{of(`{service: r, listener: l, advertise: "a:1"}, {service: r, listener: m, advertise: "a:1"}`), "register[1]: register[0] registers the same"},
		{of(`{service: r, listener: l, advertise: "a:1"}, {service: r, listener: l, advertise: "a:2"}, {service: q, listener: l, advertise: "a:1"}`), ""},
	})
}
