package config

import (
	"reflect"
	"strings"
	"testing"
)

// TestWarnings compares the warnings of valid files.
func TestWarnings(t *testing.T) {
	const listener = "listeners: [{name: l, address: \"127.0.0.1:1\", protocol: http, service: a}]\n"
	const routed = "listeners: [{name: l, address: \"127.0.0.1:1\", protocol: http}]\n"
	service := func(name string) string {
		return "  " + name + ": {discover: static, endpoints: [\"" + name + ":1\"]}\n"
	}
	foreign := func(at, key string) string {
		return "f:" + at + ": warning: routes[2]." + key + ": has a variable of another proxy, which is sent as it stands; expected a placeholder such as {peer}"
	}
	for _, c := range []struct{ text, want string }{
		{listener + "services:\n" + service("a"), ""},
		{"loops: 1\n", "f:1:1: warning: listeners: missing; without a listener no request reaches the sidecar"},
		{"loops: 1\nlisteners: []\nservices:\n" + service("a"), "f:2:12: warning: listeners: missing; without a listener no request reaches the sidecar"},
		{listener + "services:\n" + service("a") + service("b.c"), `f:4:8: warning: services["b.c"]: not used: no listener and no route leads to it`},
		{routed + "routes: [{service: [{name: a, weight: 0}, {name: b}]}]\nservices:\n" + service("a") + service("b"), ""},
		{listener + "routes: [{service: b}]\nservices:\n" + service("a") + service("b"),
			"f:2:9: warning: routes: not used: each listener has a service of its own"},
		{"listeners: [{name: l, address: \"127.0.0.1:1\", protocol: tcp}]\nroutes: [{match: {sni: a.test}, service: a}, {service: b}]\nservices:\n  a: {discover: static, endpoints: [\"a:1\"], protocol: tcp}\n" + service("b"),
			"f:2:46: warning: routes[1]: not used: each listener has a service of its own"},
		{listener + "services:\n" + service("a") + "routes:\nlog:\nlimits: {}\nregister: []\n",
			"f:4:1: warning: routes: empty, as if it were left out\nf:5:1: warning: log: empty, as if it were left out"},
		{"listeners: [{name: l, address: \"127.0.0.1:1\", protocol: http, service: a, allow: {}, forwarded: {strip: []}}]\nservices:\n" + service("a"), ""},
		{listener + "services:\n  a: {discover: static, endpoints: [\"a:1\"], retry: {on: }}\n",
			"f:3:53: warning: services.a.retry.on: empty, as if it were left out"},
		{routed + "services:\n" + service("a") + "routes:\n- {service: a, match: {path: /a*}}\n- {service: a, match: {prefix_text: /b*}}\n" +
			"- {service: a, request_headers: {set: {a: $host}, add: {b: \"%REQ(:path)%\"}}, response_headers: {set: {c: \"%[src]\"}, add: {d: \"%AB%\"}}}\n",
			"f:5:30: warning: routes[0].match.path: * stands for itself; the paths below a prefix match without it\n" +
				"f:6:37: warning: routes[1].match.prefix_text: * stands for itself; the paths below a prefix match without it\n" +
				foreign("7:43", "request_headers.set.a") + "\n" + foreign("7:60", "request_headers.add.b") + "\n" +
				foreign("7:106", "response_headers.set.c") + "\n" + foreign("7:126", "response_headers.add.d")},
		{routed + "services:\n" + service("a") + "routes: [{service: a, match: {path: /a}, request_headers: {set: {a: $h, b: 5% x%, c: \"%A%\", d: $1x}}}]\n", ""},
	} {
		cfg, err := Parse("f", []byte(c.text), environment)
		if err != nil {
			t.Errorf("%s%v", c.text, err)
			continue
		}
		if got := cfg.Warnings.Error(); got != c.want {
			t.Errorf("%sgot  %s\nwant %s", c.text, got, c.want)
		}
	}
}

// TestLoops: an endpoint that is the listener of its own requests is an error.
func TestLoops(t *testing.T) {
	with := func(listener, endpoint string) string {
		return `{listeners: [{name: l, address: "` + listener + `", protocol: tcp, service: s}],
			services: {s: {discover: static, protocol: tcp, endpoints: ["` + endpoint + `"]}}}`
	}
	const loop = "services.s.endpoints[0]: a loop: this is listener l, whose requests come here"
	const routes = `{listeners: [{name: l, address: "127.0.0.1:1", protocol: http}],
		services: {s: {discover: static, protocol: http, endpoints: ["127.0.0.1:1"]}}, routes: [{service: s`
	const chain = `{listeners: [{name: l, address: "127.0.0.1:1", protocol: http, service: a},
			{name: m, address: "127.0.0.1:2", protocol: http, service: b}],
		services: {a: {discover: static, protocol: http, endpoints: ["127.0.0.1:2"]}, `
	checkRules(t, []rule{
		{with("127.0.0.1:1", "127.0.0.1:1"), loop},
		{with("127.0.0.1:1", "127.0.0.1:2"), ""},
		{with("127.0.0.1:1", "127.0.0.2:1"), ""},
		{with("127.0.0.1:1", "localhost:1"), loop},
		{with("localhost:1", "127.0.0.1:1"), loop},
		{with("127.0.0.1:1", "[::ffff:127.0.0.1]:1"), loop},
		{with("0.0.0.0:1", "127.0.0.9:1"), loop},
		{with("0.0.0.0:1", "[::1]:1"), ""},
		{with("0.0.0.0:1", "10.0.0.1:1"), ""}, // may be another machine
		{with("[::]:1", "[::1]:1"), loop},
		{with(":1", "127.0.0.1:1"), loop},
		{with("10.0.0.1:1", "10.0.0.1:1"), loop},
		{with("a:1", "a:1"), loop},
		{with("127.0.0.1:0", "127.0.0.1:1"), ""},
		{routes + "}]}", loop},
		{routes + ", match: {path: /a}, rewrite: {path: /b}}]}", ""},
		{chain + `b: {discover: static, protocol: http, endpoints: ["127.0.0.1:3"]}}}`, ""},
		{chain + `b: {discover: static, protocol: http, endpoints: ["127.0.0.1:3", "127.0.0.1:1"]}}}`,
			"services.b.endpoints[1]: a loop: this is listener l, whose requests come here"},
	})
}

// TestKnownNames: a reference to nothing suggests a similar name, or lists some.
func TestKnownNames(t *testing.T) {
	for _, c := range []struct{ given, names, want string }{
		{"comptue", "compute,local", "; did you mean compute?"},
		{"other", "compute,local", "; expected one of compute, local"},
		{"other", "", "; there are none"},
		{"other", ",", "; there are none"}, // names that are missing
		{"other", "a,,b,a", "; expected one of a, b"},
		{"other", "a,b,c,d,e,f,g,h,i", "; expected one of a, b, c, d, e, f, g, h and 1 more"},
	} {
		if got := knownNames(c.given, strings.Split(c.names, ",")); got != c.want {
			t.Errorf("%q among %q: got %q, want %q", c.given, c.names, got, c.want)
		}
	}
}

// TestEqual: a comment changes nothing, a setting does.
func TestEqual(t *testing.T) {
	a, b, c := mustParse(t, "loops: 1\nlog:"), mustParse(t, "# two\n\nloops: 1\nlog:"), mustParse(t, "loops: 2\nlog:")
	if !a.Equal(b) || reflect.DeepEqual(a, b) || a.Equal(c) {
		t.Errorf("%v %v %v", a.Equal(b), reflect.DeepEqual(a, b), a.Equal(c))
	}
}
