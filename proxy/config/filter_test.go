package config

import (
	"strings"
	"testing"
	"time"
)

func TestFaultRules(t *testing.T) {
	checkRules(t, []rule{
		{withRoute(`fault: {}`), ""},
		{withRoute(`fault: {delay: 1s, abort: 503}`), ""},
		{withRoute(`fault: {delay: 1s, delay_share: 0.1, abort: 599, abort_share: 1}`), ""},
		{withRoute(`fault: {delay: 1s, delay_share: 10}`), "expected a number in [0,1]"},
		{withRoute(`fault: {delay: 2s}`), "routes[0].fault.delay: 2s is not less than the timeout of 2s"},
		{withRoute(`timeout: 3s, fault: {delay: 2s}`), ""},
		{withRoute(`fault: {delay: 1999ms}`), ""},
		{withRoute(`fault: {abort: 200}`), "routes[0].fault.abort: expected a status from 400 to 599, got 200"},
		{withRoute(`fault: {abort: 1}`), "routes[0].fault.abort: expected a status from 400 to 599, got 1"},
		{withRoute(`fault: {abort: 399}`), "routes[0].fault.abort: expected a status from 400 to 599, got 399"},
		{withRoute(`fault: {abort: 400}`), ""},
		{withRoute(`fault: {abort: 0, delay: 0}`), ""},
		{withRoute(`fault: {abort: 600}`), "at most 599"},
		{withRoute(`fault: {abort_share: 0.1}`), "routes[0].fault.abort: missing"},
		{withRoute(`fault: {delay_share: 0}`), "routes[0].fault.delay: missing"},
		{withRoute(`fault: {aborts: 503}`), "did you mean abort?"},
		{`{services: {s: {discover: static, endpoints: ["a:1"]}, r: {discover: static, endpoints: ["a:1"]}},
routes: [{service: [{name: s}, {name: r, timeout: 1s}], fault: {delay: 2s}}]}`, "the timeout of 1s"},
	})
	f := mustParse(t, withRoute(`fault: {delay: 1s, abort: 503, abort_share: 0}`)).Routes[0].Fault()
	if f.DelayShare != 1 || f.AbortShare != 0 || !f.Enabled() {
		t.Errorf("got %+v", f)
	}
	for keys, want := range map[string]bool{
		"": false, "delay: 1ns": true, "abort: 400": true, "delay: 1ns, delay_share: 0": false, "abort: 400, abort_share: 0": false,
		"delay: 1ns, delay_share: 0.01": true, "abort: 400, abort_share: 0.01": true, "delay: 1ns, delay_share: 0, abort: 400, abort_share: 0.01": true,
	} {
		if got := mustParse(t, withRoute("fault: {"+keys+"}")).Routes[0].Fault().Enabled(); got != want {
			t.Errorf("{%s} injects faults: %t", keys, got)
		}
	}
}

func TestMirrorRules(t *testing.T) {
	checkRules(t, []rule{
		{withRoute(`mirror: {service: mirrored}`), ""},
		{withRoute(`mirror: {service: mirrored, share: 0.1}`), ""},
		{withRoute(`mirror: {}`), ""},
		{withRoute(`mirror: {service: mirored}`), `routes[0].mirror.service: there is no service "mirored"; did you mean mirrored?`},
		{withRoute(`mirror: {share: 0.1}`), "routes[0].mirror.service: missing"},
		{withRoute(`mirror: {service: mirrored, share: 2}`), "expected a number in [0,1]"},
		{withRoute(`mirror: mirrored`), "expected a mapping"},
		{strings.Replace(withRoute(`mirror: {service: mirrored}`), `"b:1"], protocol: http`, `"b:1"], protocol: dubbo`, 1), "mirrored speaks dubbo"},
		{strings.Replace(withRoute(`mirror: {service: mirrored}`), `"b:1"], protocol: http`, `"b:1"], protocol: http2`, 1), ""},
		{strings.Replace(withRoute(`mirror: {service: mirrored}`), `"b:1"], protocol: http`, `"b:1"], protocol: link`, 1), ""},
		{strings.Replace(withRoute(`mirror: {service: mirrored}`), `"b:1"], protocol: http`, `"b:1"], protocol: tcp`, 1), "mirrored speaks tcp"},
		{strings.Replace(withRoute(`mirror: {service: mirrored}`), `"b:1"],`, `"b:1"], allow: {rules: [{method: [GET]}]},`, 1), "has allow rules"},
		{strings.Replace(withRoute(`match: {service: a}, mirror: {service: mirrored}`), `timeout: 2s`, ``, 1), "calls of Dubbo are not copied"},
	})
}

func TestFallbackRules(t *testing.T) {
	checkRules(t, []rule{
		{withRoute(`fallback: {respond: {status: 503, body: later, headers: {retry-after: "5"}}}`), ""},
		{withRoute(`fallback: {service: mirrored}`), ""},
		{withRoute(`fallback: {on: [5xx, reset, overload], service: mirrored, timeout: 200ms}`), ""},
		{withRoute(`fallback: {}`), ""},
		{withRoute(`fallback: {on: [breaker]}`), "routes[0].fallback: expected respond or service"},
		{withRoute(`fallback: {timeout: 2s}`), "routes[0].fallback: expected respond or service"},
		{withRoute(`fallback: {respond: {body: x}}`), ""},
		{strings.Replace(withRoute(`fallback: {service: mirrored}`), `"b:1"], protocol: http`, `"b:1"], protocol: grpc`, 1), ""},
		{withRoute(`fallback: {on: [], respond: {status: 503}}`), "routes[0].fallback.on: empty"},
		{withRoute(`fallback: {on: [braker], respond: {status: 503}}`), `routes[0].fallback.on[0]: expected one of breaker, deadline, no_endpoint, overload, reset, 5xx, got "braker"; did you mean breaker?`},
		{withRoute(`fallback: {on: [breaker, breaker], respond: {status: 503}}`), `routes[0].fallback.on[1]: "breaker" is listed twice`},
		{withRoute(`fallback: {service: mirored}`), `routes[0].fallback.service: there is no service "mirored"; did you mean mirrored?`},
		{withRoute(`fallback: {service: s}`), "routes[0].fallback.service: the route leads to s itself"},
		{withRoute(`fallback: {service: mirrored, respond: {status: 503}}`), "routes[0].fallback.respond: contradicts service"},
		{withRoute(`fallback: {service: mirrored, timeout: 0s}`), "at least 1ms"},
		{withRoute(`fallback: {respond: {status: 503}, timeout: 2s}`), "routes[0].fallback.timeout: is for service"},
		{withRoute(`fallback: {respond: {status: 204, body: x}}`), "routes[0].fallback.respond.body: a response with the status 204 has no body"},
		{withRoute(`fallback: {respond: {headers: {x: "{path}"}}}`), "routes[0].fallback.respond.headers.x: placeholders are not filled in here"},
		{withRoute(`fallback: {respond: {headers: {x: "{{path}}"}}}`), ""},
		{withRoute(`rewrite: {host: a}, fallback: {respond: {status: 503}}`), ""},
		{strings.Replace(withRoute(`fallback: {service: mirrored}`), `"b:1"], protocol: http`, `"b:1"], protocol: dubbo`, 1), "mirrored speaks dubbo"},
		{strings.Replace(withRoute(`fallback: {service: mirrored}`), `"b:1"],`, `"b:1"], allow: {rules: [{method: [GET]}]},`, 1), "has allow rules"},
		{strings.Replace(withRoute(`match: {service: a}, fallback: {respond: {status: 503}}`), `timeout: 2s`, ``, 1), "only Dubbo calls come here"},
		{strings.Replace(withRoute(`match: {service: a}, fallback: {service: mirrored}`), `timeout: 2s`, ``, 1), "mirrored speaks http; expected one with protocol: link or dubbo"},
	})
}

func TestCacheRules(t *testing.T) {
	grpc := strings.Replace(withRoute(`collapse: true`), "services: {s: {", "services: {s: {protocol: grpc, ", 1)
	checkRules(t, []rule{
		{withRoute(`cache: {}`), ""},
		{withRoute(`cache: {ttl: 0s, stale: 0s, key: [X-Tier, cookie], bytes: 1MiB}, collapse: true`), ""},
		{withRoute(`cache: {bytes: 0}`), ""},
		{withRoute(`cache: {bytes: 1KiB}`), "at least 1MiB"},
		{strings.Replace(grpc, "collapse: true", "cache: {}", 1), "routes[0].cache: service s speaks grpc"},
		{withRoute(`cache: {key: [a], ignore: [A]}`), `routes[0].cache.ignore[0]: "A" is part of the key`},
		{withRoute(`cache: {key: [a b]}`), `routes[0].cache.key[0]: expected the name of a header, got "a b"`},
		{withRoute(`cache: {key: [a, A]}`), `routes[0].cache.key[1]: "A" is listed twice`},
		{withRoute(`cache: {key: [a, b, c, d, e, f, g, h, i]}`), "expected at most 8 headers, got 9"},
		{withRoute(`cache: true`), "expected a mapping"},
		{withRoute(`collapse: 1`), "expected true or false"},
		{strings.Replace(withRoute(`match: {service: a}, cache: {}`), `timeout: 2s`, ``, 1), "routes[0].cache: is for requests of HTTP"},
		{strings.Replace(withRoute(`match: {service: a}, collapse: true`), `timeout: 2s`, ``, 1), "routes[0].collapse: is for requests of HTTP"},
		{grpc, "routes[0].collapse: service s speaks grpc"},
		{`{routes: [{cache: {}, respond: {status: 204}}]}`, "routes[0].cache: contradicts respond"},
		{`{routes: [{collapse: true, respond: {status: 204}}]}`, "routes[0].collapse: contradicts respond"},
	})
	if c := mustParse(t, withRoute(`cache: {ttl: 2s}`)).Routes[0].Cache; c.TTL != 2*time.Second || c.Stale != 10*time.Second || c.Bytes != 64<<20 {
		t.Errorf("got %+v", c)
	}
	c := mustParse(t, withRoute(`match: {path: /a}`))
	if c.Routes[0].Cache.Enabled() || c.Caches("s") {
		t.Error("a route has a cache without asking for one")
	}
}
