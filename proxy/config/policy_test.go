package config

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestSplit: each service of a split has its own policy. The route's settings override
// it, and the share's settings override those. Printing and parsing keeps it.
func TestSplit(t *testing.T) {
	c := mustParse(t, `
routes:
- match: {path: /a}
  service: [{name: s, weight: 95}, {name: r, timeout: 1s}]
  retry: {on: [reset]}
services:
  s: {discover: static, endpoints: ["a:1"], timeout: 2s, hedge: {mode: on, min_delay: 3ms}, retry: {attempts: 2}}
  r: {discover: static, endpoints: ["a:1"], timeout: 4s, idempotent: true}
`)
	first, second := c.Services["s"].Policy.clone(), c.Services["r"].Policy.clone()
	first.Retry.On = []string{RetryReset}
	second.Retry.On = []string{RetryReset}
	second.Timeout = time.Second
	want := withDefaults[Route]()
	want.Match.Path, want.Service, want.Policy = "/a", "s", first
	want.Split = []Share{{Name: "s", Weight: 95, Policy: first}, {Name: "r", Weight: 1, Policy: second}}
	if got := c.Routes[0]; !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	if on := c.Services["r"].Retry.On; len(on) != 3 {
		t.Errorf("the service's own policy changed: %v", on)
	}
	data, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again := mustParse(t, string(data)).Routes[0]
	if !reflect.DeepEqual(again.Split, want.Split) || !reflect.DeepEqual(again.Policy, want.Policy) {
		t.Errorf("printed and parsed %+v\nwant %+v\n%s", again, want, data)
	}
}

// TestRoutePolicy checks that a route overrides only the settings that it has, even if
// its service follows it in the file.
func TestRoutePolicy(t *testing.T) {
	c := mustParse(t, `
routes:
- {match: {path: /a}, service: s, hedge: {max_delay: 9ms}}
- {match: {path: /b}, service: s, retry: {on: []}}
services:
  s: {discover: static, endpoints: ["a:1"], timeout: 2s, hedge: {mode: on, min_delay: 3ms}, retry: {attempts: 2}}
`)
	s := c.Services["s"].Policy
	a, b := s.clone(), s.clone()
	a.Hedge.MaxDelay = 9 * time.Millisecond
	b.Retry.On = []string{}
	if !reflect.DeepEqual(c.Routes[0].Policy, a) || !reflect.DeepEqual(c.Routes[1].Policy, b) {
		t.Errorf("got %+v and %+v, want %+v and %+v", c.Routes[0].Policy, c.Routes[1].Policy, a, b)
	}
	if s.Timeout != 2*time.Second || s.Hedge.MaxDelay != 50*time.Millisecond || len(s.Retry.On) != 3 {
		t.Errorf("the service's own policy changed: %+v", s)
	}
}

// The forecast of shadow mode, the default, needs no budget that hedging could work with: one for
// retries may be small.
func TestHedgeDefaultAnyBudget(t *testing.T) {
	for mode, valid := range map[string]bool{"": true, "mode: shadow, delay: p97, ": true, "mode: off, delay: p97, ": true, "mode: on, delay: p97, ": false, "mode: on, ": true} {
		text := `services: {s: {discover: static, endpoints: ["a:1"], hedge: {` + mode + `budget: 0.01}}}`
		c, err := Parse("a.yaml", []byte(text), func(string) (string, bool) { return "", false })
		if (err == nil) != valid {
			t.Errorf("%sbudget 0.01: %v", mode, err)
		}
		if mode == "" && c.Services["s"].Hedge.Mode != HedgeShadow {
			t.Errorf("mode %s is the default", c.Services["s"].Hedge.Mode)
		}
	}
}

// TestInheritedErrors: what a route has inherited is wrong at the service alone, unless the route has another timeout.
func TestInheritedErrors(t *testing.T) {
	for _, c := range []struct{ service, route, want string }{
		{"timeout: 2s, retry: {per_try_timeout: 3s}", "", "service"},
		{"timeout: 2s, retry: {per_try_timeout: 1s}", "timeout: 500ms", "route"},
		{"timeout: 2s, retry: {per_try_timeout: 3s}", "timeout: 1s", "service route"},
		{"timeout: 2s, retry: {per_try_timeout: 1s}", "retry: {per_try_timeout: 2s}", "route"},
		{"timeout: 2s, hedge: {mode: on, delay: 3s}", "", "service"},
		{"timeout: 2s, hedge: {mode: on, delay: 1s}", "timeout: 500ms", "route"},
		{"timeout: 2s, hedge: {mode: on, delay: 3s}", "timeout: 1s", "service route"},
		{"timeout: 2s, hedge: {mode: on, delay: 1s}", "hedge: {delay: 2s}", "route"},
		{"retry: {on: [x]}", "", "service"},
		{"", "retry: {on: [x]}", "route"},
		{"idempotent: [key, key]", "", "service"},
		{"", "idempotent: [key, key]", "route"},
	} {
		text := withService(c.service) + "\nlisteners: [{name: l, address: \"c:1\", protocol: http}]\nroutes: [{service: s, " + c.route + "}]"
		_, err := Parse("f", []byte(text), environment)
		var errs Errors
		errors.As(err, &errs)
		var at []string
		for _, e := range errs {
			switch {
			case strings.HasPrefix(e.Path, "services.s."):
				at = append(at, "service")
			case strings.HasPrefix(e.Path, "routes[0]."):
				at = append(at, "route")
			default:
				t.Errorf("%s\nan error of %s", text, e.Path)
			}
		}
		if got := strings.Join(at, " "); got != c.want {
			t.Errorf("%s\nerrors of %s, want of %s: %v", text, got, c.want, err)
		}
	}
}

// TestRetryCodes: retry.on may name codes of gRPC, spelled as everywhere.
func TestRetryCodes(t *testing.T) {
	const expected = "expected one of connect, refused, reset, 5xx, a status such as 503 or a code of gRPC such as unavailable, got "
	for on, want := range map[string]string{
		`[unavailable, resource-exhausted, "503"]`: "",
		`[` + strings.Join(GRPCErrors, ", ") + `]`: "",
		`[UNAVAILABLE]`:              `f:1:83: services.s.retry.on[0]: ` + expected + `"UNAVAILABLE"; did you mean unavailable?`,
		`[reset, deadline_exceeded]`: `f:1:90: services.s.retry.on[1]: ` + expected + `"deadline_exceeded"; did you mean deadline-exceeded?`,
		`[ok]`:                       `f:1:83: services.s.retry.on[0]: ` + expected + `"ok"`,
		`[unavailable, unavailable]`: `f:1:96: services.s.retry.on[1]: "unavailable" is listed twice`,
	} {
		text := `services: {s: {discover: static, endpoints: ["a:1"], protocol: http, retry: {on: ` + on + `}}}` + "\n" +
			`listeners: [{name: a, address: "127.0.0.1:1", protocol: http}]` + "\nroutes: [{service: s}]\n"
		_, err := Parse("f", []byte(text), func(string) (string, bool) { return "", false })
		if got := fmt.Sprint(err); (err == nil) != (want == "") || err != nil && got != want {
			t.Errorf("%s: %v, want %s", on, got, want)
		}
	}
}

// TestIdempotent: which values of idempotent are valid, where errors are, and how they are printed again.
func TestIdempotent(t *testing.T) {
	for _, c := range []struct{ protocol, service, route, want, printed string }{
		{"http", "", "", "", " false"},
		{"http", "idempotent: true", "", "", " true"},
		{"http", "idempotent: true", "idempotent: false", "", " false"},
		{"http", "idempotent: methods", "", "", " methods"},
		{"http", "idempotent: [key]", "", "", " key"},
		{"http", "", "idempotent: [methods, key]", "", "\n      - methods\n      - key"},
		{"http", "idempotent: [methods, true]", "", `f:1:92: services.s.idempotent[1]: true stands alone; expected true, false, methods, key or [methods, key]`, ""},
		{"http", "", "idempotent: [key, key]", `f:3:41: routes[0].idempotent[1]: "key" is listed twice`, ""},
		{"http", "", "idempotent: [key, method]", `f:3:41: routes[0].idempotent[1]: expected one of true, false, methods, key, got "method"; did you mean methods?`, ""},
		{"http", "", "idempotent: []", `f:3:35: routes[0].idempotent: empty; leave it out, or give it an item`, ""},
		{"dubbo", "idempotent: true", "", "", " true"},
		{"dubbo", "idempotent: methods", "", "", " methods"}, // for callers by HTTP
		{"dubbo", "", "idempotent: key", `f:3:35: routes[0].idempotent[0]: the route is for Dubbo calls, which have no HTTP method and no Idempotency-Key; expected true or false`, ""},
	} {
		text := `services: {s: {discover: static, endpoints: ["a:1"], protocol: ` + c.protocol + `, ` + c.service + "}}\n" +
			`listeners: [{name: a, address: "127.0.0.1:1", protocol: ` + c.protocol + "}]\nroutes: [{service: s, " + c.route + "}]\n"
		got, err := Parse("f", []byte(text), func(string) (string, bool) { return "", false })
		if fmt.Sprint(err) != cmp.Or(c.want, "<nil>") {
			t.Errorf("%s: %v, want %s", text, err, c.want)
		}
		if err != nil {
			continue
		}
		printed, err := got.YAML()
		if err != nil {
			t.Fatal(err)
		}
		_, ofRoute, _ := strings.Cut(string(printed), "\nroutes:")
		if !strings.Contains(ofRoute, "\n    idempotent:"+c.printed+"\n") {
			t.Errorf("%s is printed as\n%s", text, ofRoute)
		}
		if again := mustParse(t, string(printed)); !slices.Equal(again.Routes[0].Idempotent, got.Routes[0].Idempotent) {
			t.Errorf("%s is read again as %v", text, again.Routes[0].Idempotent)
		}
	}
}

// TestStickyRules checks sticky cookies.
func TestStickyRules(t *testing.T) {
	const secret = `secret: "0123456789abcdef"`
	sticky := func(s string) string { return withService("lb: {sticky: " + s + "}") }
	listener := func(protocol, service string) string {
		return fmt.Sprintf(`{services: {s: {discover: static, endpoints: ["a:1"], protocol: %s, lb: {sticky: {cookie: a, %s}}}},
			listeners: [{name: l, address: "b:1", service: s, protocol: %s}]}`, service, secret, protocol)
	}
	checkRules(t, []rule{
		{sticky("{}"), ""},
		{sticky("{cookie: srv, " + secret + "}"), ""},
		{sticky("{cookie: srv, ttl: 1s, " + secret + "}"), ""},
		{sticky("{" + secret + "}"), "services.s.lb.sticky.cookie: missing; expected the name of a cookie"},
		{sticky("{ttl: 1h}"), "services.s.lb.sticky.cookie: missing"},
		{sticky("{cookie: srv}"), "services.s.lb.sticky.secret: expected at least 16 bytes, the same in all sidecars"},
		{sticky(`{cookie: srv, secret: "0123456789abcde"}`), "expected at least 16 bytes"},
		{sticky(`{cookie: "a=b", ` + secret + "}"), "services.s.lb.sticky.cookie: expected the name of a cookie, got \"a=b\""},
		{sticky("{cookie: srv, ttl: 10ms, " + secret + "}"), "services.s.lb.sticky.ttl: expected at least 1s, got 10ms"},
		{withService("lb: {policy: consistent_hash, hash: {path: true}, sticky: {cookie: a, " + secret + "}}"), ""},
		{withService("lb: {policy: consistent_hash, hash: {cookie: b}, sticky: {cookie: a, " + secret + "}}"), "lb.hash.cookie makes sessions, too"},
		{listener("http", "http"), ""},
		{listener("http", "link"), ""},
		{listener("http", "dubbo"), ""},
		{listener("tcp", "http"), "service s has lb.sticky, and only HTTP has cookies"},
		{listener("dubbo", "link"), "only HTTP has cookies"},
		{listener("link", "http"), "requests on links come from sidecars that have picked; expected it there"},
	})
}

// TestHashRules checks the keys of consistent_hash.
func TestHashRules(t *testing.T) {
	hash := func(h string) string { return withService("lb: {policy: consistent_hash, hash: " + h + "}") }
	file := func(service, listener string) string {
		return fmt.Sprintf(`{services: {s: {discover: static, endpoints: ["a:1"], %s}}, listeners: [{name: l, address: "b:1", service: s, %s}]}`, service, listener)
	}
	const byHeader, bySource = "lb: {policy: consistent_hash, hash: {header: a}}", "lb: {policy: consistent_hash, hash: {source: true}}"
	checkRules(t, []rule{
		{hash(`{header: x-key}`), ""},
		{hash(`{path: true, balance: 1.01}`), ""},
		{hash(`{source: true, balance: 0}`), ""},
		{hash(`{query: user}`), ""},
		{hash(`{cookie: sid}`), ""},
		{hash(`{cookie: sid, ttl: 1h}`), ""},
		{hash(`{balance: 2}`), "services.s.lb.hash: missing; expected exactly one of header, cookie, query, path and source"},
		{hash(`{path: false}`), "missing"},
		{hash(`{path: true, header: a}`), "got 2"},
		{hash(`{header: "a:b"}`), "services.s.lb.hash.header: expected the name of a header"},
		{hash(`{header: Host}`), "the host is no key"},
		{hash(`{header: X-Remora-Class}`), "removes its own headers"},
		{hash(`{cookie: "a=b"}`), "services.s.lb.hash.cookie: expected the name of a cookie"},
		{hash(`{header: a, ttl: 1h}`), "services.s.lb.hash.ttl: needs cookie"},
		{hash(`{cookie: a, ttl: 10ms}`), "expected at least 1s"},
		{hash(`{path: true, balance: 1}`), "services.s.lb.hash.balance: expected more than 1, got 1"},
		{hash(`{path: true, balance: 101}`), "expected a number in [0,100], got"},
		{withService(`lb: {hash: {path: true}}`), "services.s.lb.hash: not used by lb.policy: least_pending; expected consistent_hash"},
		{file("protocol: dubbo, "+byHeader, "protocol: http"), ""},
		{file("protocol: dubbo, "+byHeader, "protocol: dubbo"), "Dubbo calls have no headers and no query; expected lb.hash with path or source"},
		{file("protocol: dubbo, "+bySource, "protocol: dubbo"), ""},
		{file("protocol: tcp, "+byHeader, "protocol: tcp"), "opaque tcp has none; expected lb.hash: {source: true}"},
		{file("protocol: tcp, "+bySource, "protocol: tcp"), ""},
	})
}
