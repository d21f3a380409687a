package route

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/proxy/config"
)

func tableOf(routes []*conditions) *Table {
	t := &Table{hosts: map[string]pathTable{}}
	t.add(routes)
	return t
}

// For any routes, the table finds the first one that matches.
func TestTableFirstMatch(t *testing.T) {
	found, none := 0, 0
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		one := func(of ...string) []byte { return []byte(of[rnd.IntN(len(of))]) }
		path := func() []byte {
			return []byte(strings.Repeat("/", rnd.IntN(2)) + string(one("", "a", "b/", "a/b", "\xff")))
		}
		var routes []*conditions
		for i := range rnd.IntN(20) {
			r := &conditions{index: i}
			if rnd.IntN(3) > 0 {
				r.host = one("", "", "a.example", "b.example", ".example", "[::1]", strings.Repeat("h", 300))
				r.wild = len(r.host) > 0 && r.host[0] == '.'
				r.prefix = append(path(), path()...)
				r.call.httpOnly = len(r.host)+len(r.prefix) > 0
			} else {
				r.call.service, r.call.version = one("", "s", "t"), one("", "1")
				r.call.callOnly = len(r.call.service)+len(r.call.version) > 0
			}
			if rnd.IntN(4) == 0 {
				r.methods = [][]byte{one("GET", "POST")}
			}
			routes = append(routes, r)
		}
		table := tableOf(routes)
		for range 100 {
			var buf hostname.Buffer
			req := &protocol.Request{Method: one("GET", "POST"), Path: append(append(path(), path()...), path()...)}
			req.Authority = one("", "A.example", "b.example:80", "b.example.", "c.example", "example", "x.a.example", "[::1]:80", "[0::1]", strings.Repeat("h", 300))
			if rnd.IntN(3) == 0 {
				req.Codec, req.Path, req.Version = dubbo.CodecHessian2, one("s", "t", "u"), one("", "1")
			}
			want := firstMatch(routes, req, hostname.Of(&buf, req.Authority))
			if got := table.first(req); got != want {
				t.Fatalf("seed %d: %s %s%s: %+v, want %+v", seed, req.Method, req.Authority, req.Path, got, want)
			}
			if want == nil {
				none++
			} else {
				found++
			}
		}
	}
	if found < 1000 || none < 1000 {
		t.Errorf("%d requests found a route and %d none: too few for a test", found, none)
	}
}

// Of a thousand routes the table tries one. Each route is in the table once, and a search
// allocates nothing.
func TestTableTriesFewRoutes(t *testing.T) {
	var routes []*conditions
	add := func(r *conditions) {
		r.index = len(routes)
		routes = append(routes, r)
	}
	for i := range 1000 {
		add(&conditions{prefix: fmt.Appendf(nil, "/route-%d/", i), call: callMatch{httpOnly: true}})
		add(&conditions{host: fmt.Appendf(nil, "host-%d", i), call: callMatch{httpOnly: true}})
		add(&conditions{call: callMatch{service: fmt.Appendf(nil, "s%d", i), callOnly: true}})
	}
	table := tableOf(routes)
	entries := len(table.calls)
	for _, own := range table.services {
		entries += len(own)
	}
	for _, paths := range append(slices.Collect(maps.Values(table.hosts)), table.paths) {
		for _, e := range paths {
			entries += len(e.routes)
			if len(e.routes) != 1 || e.parent != -1 {
				t.Fatalf("%s: %d routes, parent %d", e.prefix, len(e.routes), e.parent)
			}
		}
	}
	if entries != len(routes) {
		t.Errorf("%d entries for %d routes", entries, len(routes))
	}
	for name, c := range map[string]struct {
		req  protocol.Request
		want int
	}{
		"path":    {protocol.Request{Authority: []byte("host"), Path: []byte("/route-777/x")}, 3 * 777},
		"host":    {protocol.Request{Authority: []byte("HOST-777.:80"), Path: []byte("/")}, 3*777 + 1},
		"service": {protocol.Request{Codec: dubbo.CodecHessian2, Path: []byte("s777")}, 3*777 + 2},
		"both":    {protocol.Request{Authority: []byte("host-9"), Path: []byte("/route-777/x")}, 3*9 + 1},
	} {
		if got := table.first(&c.req); got == nil || got.index != c.want {
			t.Errorf("by %s: %+v, want %d", name, got, c.want)
		}
		if n := testing.AllocsPerRun(100, func() { table.first(&c.req) }); n > 0 {
			t.Errorf("by %s: %v allocations", name, n)
		}
	}
}

// TestPlansOfHTTP: which plans take HTTP requests by a route.
func TestPlansOfHTTP(t *testing.T) {
	for _, c := range []struct {
		plan Plan
		want bool
	}{
		{Plan{Match: &config.Match{}}, true},
		{Plan{Index: 2, Match: &config.Match{Host: "a", Path: "/"}}, true},
		{Plan{Index: -1, Match: &config.Match{}}, false}, // of a listener
		{Plan{Match: &config.Match{SNI: "a"}}, false},
		{Plan{Match: &config.Match{Service: "a"}}, false},
	} {
		if got := c.plan.TakesHTTP(); got != c.want {
			t.Errorf("%d %+v: %t", c.plan.Index, *c.plan.Match, got)
		}
	}
}

// TestPlans: each route to each of its services has a plan, in the order of the configuration, and so has each service of
// listeners.
func TestPlans(t *testing.T) {
	cfg, err := config.Parse("test", []byte(`
listeners:
- {name: in, address: "127.0.0.1:1", protocol: http}
- {name: fixed, address: "127.0.0.1:2", protocol: http, service: c}
- {name: again, address: "127.0.0.1:3", protocol: http, service: c}
- {name: other, address: "127.0.0.1:4", protocol: http, service: d}
routes:
- {match: {path: /a}, service: a, timeout: 1s, cache: {}, mirror: {service: d}}
- {match: {path: /b}, service: [{name: b, weight: 3}, {name: c, weight: 0, timeout: 2s}, {name: a}], fallback: {service: d}}
- {match: {path: /c}, redirect: {path: /a}}
- {service: c}
services:
  a: {discover: static, endpoints: ["127.0.0.1:5"]}
  b: {discover: static, endpoints: ["127.0.0.1:5"], timeout: 3s}
  c: {discover: static, endpoints: ["127.0.0.1:5"]}
  d: {discover: static, endpoints: ["127.0.0.1:5"], timeout: 4s}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	plans := Plans(cfg)
	for i := range plans {
		p := &plans[i]
		others := ""
		for name, policy := range p.Others {
			others += fmt.Sprint(" ", name, " ", policy.Timeout)
		}
		got = append(got, fmt.Sprint(p.Index, " ", p.Service, " ", p.Match.Path, " ", p.Policy != nil && p.Policy.Timeout == 2e9, " ", p.Targets, " ", p.weight, " ", p.Invalidates, others))
	}
	want := []string{
		"0 a /a false 0 0 false d 4s", "1 b /b false 3 3 false d 4s", "1 c /b true 0 0 false d 4s", "1 a /b false 0 1 true d 4s",
		"2  /c false 0 0 false", "3 c  false 0 0 false", "-1 c  false 0 0 false", "-1 d  false 0 0 false",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if d := plans[0].Policy.Timeout; d != 1e9 {
		t.Errorf("routes[0] has a timeout of %s", d)
	}
	table := NewTable(plans)
	for target, want := range map[string]int{"h/a": 0, "h/b": 1, "h/c": 4, "h/d": 5} {
		plan, targets := table.Find(request(target))
		if plan != want || (targets != nil) != (want == 1) {
			t.Errorf("%s has the plan %d, want %d; a split: %t", target, plan, want, targets != nil)
		}
		if targets == nil {
			continue
		}
		for x, want := range []int{1, 1, 1, 3, 1, 1, 1, 3} { // weights of 3, 0 and 1
			if got := targets.Pick(uint64(x)); got != want {
				t.Errorf("%d picks the plan %d, want %d", x, got, want)
			}
		}
	}
	cfg.Services["a"], cfg.Listeners[1].Service = cfg.Services["c"], "a" // whose responses a route caches
	if plans = Plans(cfg); !plans[6].Invalidates || plans[6].Service != "a" {
		t.Errorf("a listener with a fixed service: %+v", plans[6])
	}
}

// BenchmarkRoutes measures a search for the last of so many routes.
func BenchmarkRoutes(b *testing.B) {
	for _, n := range []int{1, 10, 100, 1000} {
		var routes []*conditions
		for i := range n {
			routes = append(routes, &conditions{index: i, prefix: fmt.Appendf(nil, "/route-%04d/", i)})
		}
		req := &protocol.Request{Method: []byte("POST"), Path: fmt.Appendf(nil, "/route-%04d/x", n-1)}
		table := tableOf(routes)
		b.Run(fmt.Sprintf("table/%d", n), func(b *testing.B) {
			for b.Loop() {
				table.first(req)
			}
		})
		b.Run(fmt.Sprintf("one by one/%d", n), func(b *testing.B) {
			for b.Loop() {
				firstMatch(routes, req, nil)
			}
		})
	}
}
