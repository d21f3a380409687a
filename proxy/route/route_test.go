package route_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/proxy/proxytest"
	"github.com/remora-proxy/remora/proxy/telemetry/stats"
	"github.com/remora-proxy/remora/registry"
)

// newRoutedMesh returns a mesh with the given routes to the services a, b and c. Each has
// one application. more is further YAML of the services, in this order.
func newRoutedMesh(t *testing.T, direct bool, routes string, more ...string) *proxytest.Mesh {
	m := proxytest.NewMesh(t, proxytest.MeshOptions{OneHop: direct})
	proto := map[bool]string{false: "link", true: "http"}[direct]
	more = append(more, "", "", "")
	m.Consumer.Stop[0]()
	n := m.Node("10.0.0.1/routed", fmt.Sprintf(`
listeners: [{name: egress, address: "127.0.0.1:15001", protocol: http}]
routes: [%s]
services:
  a: {discover: static, endpoints: ["10.0.9.9:1"], protocol: %[2]s, %[3]s}
  b: {discover: static, endpoints: ["10.0.9.9:1"], protocol: %[2]s, %[4]s}
  c: {discover: static, endpoints: ["10.0.9.9:1"], protocol: %[2]s, %[5]s}`, routes, proto, more[0], more[1], more[2]))
	n.Host = "10.0.0.1"
	n.Listen(15001)
	for i, name := range []string{"a", "b", "c"} {
		n.Update(name, []registry.Endpoint{m.Endpoint(i)}...)
	}
	return m
}

// TestRouteByHeader: each header that a route names must have its value. All lines of a
// name together are the value.
func TestRouteByHeader(t *testing.T) {
	m := newRoutedMesh(t, false, `
{match: {header: {X-Tier: gold, x-beta: "1"}}, service: a},
{match: {path: /v1/, header: {x-tier: gold}}, service: b},
{match: {header: {x-tier: ""}}, service: c},
{match: {header: {x-tier: "silver, gold"}}, service: c}`)
	for _, c := range []struct {
		path    string
		headers string
		want    string
	}{
		{"/", "x-tier: gold|X-BETA: 1", "a /"},
		{"/v1/", "x-tier: gold|X-BETA: 1", "a /v1/"},
		{"/v1/", "x-tier: silver|x-tier: gold|x-beta: 1", "c /v1/"},
		{"/v1/", "x-tier: gold|x-tier: silver", "no-route"},
		{"/v1/", "x-tier: gold|x-beta: 1|X-Tier: gold", "no-route"},
		{"/v1/", "x-tier: gold|x-tier:", "no-route"},
		{"/v1/", "x-tier: silver, gold", "c /v1/"},
		{"/v1/", "x-tier: silver,gold", "no-route"},
		{"/v1/", "x-tier: silver, |x-tier: gold", "no-route"},
		{"/v1/", "X-TIER: gold", "b /v1/"},
		{"/v1/", "x-tier: gold|x-beta: 11", "b /v1/"},
		{"/", "x-tier: gold", "no-route"},
		{"/v1/", "x-tier: Gold", "no-route"},
		{"/v1/", "x-tier: gold, silver", "no-route"},
		{"/v1/", "x-tie: gold", "no-route"},
		{"/", "x-tier:", "c /"},
		{"/", "x-tier:|x-tier:", "no-route"},
		{"/", "x-other: 1", "no-route"},
	} {
		if got := m.ServedBy(m.Get(c.path, strings.Split(c.headers, "|")...)); got != c.want {
			t.Errorf("%s with %s: %s, want %s", c.path, c.headers, got, c.want)
		}
	}
}

// TestRewritePath: only the prefix that matched is replaced.
func TestRewritePath(t *testing.T) {
	for _, direct := range []bool{true, false} {
		m := newRoutedMesh(t, direct, `
{match: {path: /v1/}, service: a, rewrite: {path: /}},
{match: {path: /v2}, service: a, rewrite: {path: /new/}},
{match: {prefix_text: /old}, service: b, rewrite: {path: /a/much/longer/one}},
{match: {prefix_text: /t/}, service: b, rewrite: {path: /}},
{service: c}`)
		for _, c := range []struct{ path, want string }{
			{"/v1/users?x=/v1/", "a /users?x=/v1/"},
			{"/v1/", "a /"},
			{"/v1/v1/", "a /v1/"},
			{"/old?q", "b /a/much/longer/one?q"},
			{"/older/" + strings.Repeat("p", 5000), "b /a/much/longer/oneer/" + strings.Repeat("p", 5000)},
			{"/v1", "a /"},
			{"/v1?x", "a /?x"},
			{"/v1/?x", "a /?x"},
			{"/v11/x", "c /v11/x"},
			{"/v2/users", "a /new/users"},
			{"/v2", "a /new"},
			{"/v2/", "a /new/"},
			{"/t/x", "b /x"},
			{"/t", "c /t"},
			{"/%76%31/a/../b//%7ec", "a /b/~c"}, // changed twice in the same memory
			{"/x/../v2/" + strings.Repeat("p", 5000), "a /new/" + strings.Repeat("p", 5000)},
		} {
			if got := m.ServedBy(m.Get(c.path)); got != c.want {
				t.Errorf("%s: %s, want %s", c.path, got, c.want)
			}
		}
	}
}

// TestWholeSegments: a path matches the segments of a prefix, whatever the last character of the
// prefix, and prefix_text as text.
func TestWholeSegments(t *testing.T) {
	m := newRoutedMesh(t, true, `
{match: {path: /api}, service: a}, {match: {path: /apis/v1/}, service: b}, {match: {prefix_text: /api}, service: c}`)
	for path, want := range map[string]string{
		"/api": "a /api", "/api/": "a /api/", "/api/x": "a /api/x", "/api?x": "a /api?x", "/api//x": "a /api/x",
		"/apis/v1": "b /apis/v1", "/apis/v1/x": "b /apis/v1/x", "/apis/v1?x/": "b /apis/v1?x/",
		"/apifoo": "c /apifoo", "/apis/v11": "c /apis/v11", "/api;x": "c /api;x", "/ap": "no-route", "/API/": "no-route",
	} {
		if got := m.ServedBy(m.Get(path)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestPathBeforeRoute: a route is found by the path that the service gets, and no path that a
// service might read as another one reaches any.
func TestPathBeforeRoute(t *testing.T) {
	for _, direct := range []bool{true, false} {
		m := newRoutedMesh(t, direct, `
{match: {path: /public/}, service: a}, {match: {path: /admin/}, service: b}, {match: {host: other}, service: c}`)
		for path, want := range map[string]string{
			"/public/x": "a /public/x", "/public/../admin/x": "b /admin/x", "/public/%2e%2E/admin/x": "b /admin/x",
			"/%61dmin/x": "b /admin/x", "/admin//x": "b /admin/x", "//admin/x": "b /admin/x", "/admin/..": "no-route",
			"/public/..%2fadmin/x": "bad-path", "/public/..;/admin/x": "bad-path", `/public/..\admin/x`: "bad-path",
			"/public/%": "bad-path", "/nothing/%2f": "bad-path", "/public/x?a=/../%2f//..;": "a /public/x?a=/../%2f//..;",
		} {
			if got := m.ServedBy(m.Get(path)); got != want {
				t.Errorf("%s: %s, want %s", path, got, want)
			}
		}
		c := m.Get("/public/%2f")
		if m.ServedBy(c); c.Status != 400 {
			t.Errorf("status %d, want 400", c.Status)
		}
		for _, condition := range []string{"path: /", "prefix_text: /", `regex: "/.*"`} {
			m = newRoutedMesh(t, direct, "{match: {"+condition+"}, service: a}")
			if got := m.ServedBy(m.Get("/x/../%61")); got != "a /a" {
				t.Errorf("%s: %s, want a /a", condition, got)
			}
		}
	}
}

// TestPathsPassUnchanged: without a condition on the path, with a fixed service, and with all
// settings off the service gets the path as it came.
func TestPathsPassUnchanged(t *testing.T) {
	const path = `/a/..//%2e%2E/%2f..;/%zz\`
	for name, o := range map[string]proxytest.MeshOptions{
		"no condition":  {Match: "match: {method: [GET]}"},
		"fixed service": {Match: "match: {path: /admin}", Listener: "service: compute"},
		"all off":       {Match: "match: {path: /a}", Listener: "path: {normalize: false, merge_slashes: false, escaped_slashes: keep}"},
	} {
		o.Apps, o.OneHop = 1, true
		m := proxytest.NewMesh(t, o)
		if got := m.ServedBy(m.Get(path)); got != "a "+path {
			t.Errorf("%s: %s, want a %s", name, got, path)
		}
	}
}

// TestSplit: requests are split among services by weight. The loop's random numbers decide, so
// that a run can be replayed. Each service has its own route.
func TestSplit(t *testing.T) {
	run := func() map[string]int {
		m := newRoutedMesh(t, true, `
{match: {path: /only/}, rewrite: {path: /}, service: [{name: a, weight: 0}, {name: b, weight: 1}]},
{match: {path: /x/}, rewrite: {path: /y/}, service: [{name: a, weight: 90}, {name: b, weight: 10}, {name: c, weight: 0}]}`)
		counts := map[string]int{}
		for range 1000 {
			counts[m.ServedBy(m.Get("/x/1"))]++
		}
		for range 20 {
			counts[m.ServedBy(m.Get("/only/1"))]++
		}
		n := m.Nodes[len(m.Nodes)-1]
		var report stats.WorkerReport
		n.Loop.Do(func() { report = n.Proc.Workers()[0].Report(stats.Forecasts) })
		for _, s := range report.Services {
			var routes []int
			for _, r := range s.Routes {
				routes = append(routes, r.Route)
			}
			if want := map[string]string{"a": "[0 1]", "b": "[0 1]", "c": "[1]"}[s.Name]; fmt.Sprint(routes) != want {
				t.Errorf("service %s has routes %v, want %s", s.Name, routes, want)
			}
		}
		return counts
	}
	first := run()
	if first["b /1"] != 20 || first["a /y/1"]+first["b /y/1"] != 1000 || first["b /y/1"] < 70 || first["b /y/1"] > 130 {
		t.Errorf("served %v, want 20 by b alone, and about 900 by a and 100 by b", first)
	}
	if second := run(); !maps.Equal(first, second) {
		t.Errorf("served %v in the first run and %v in the second", first, second)
	}
}

// TestSplitPolicies: a request has the policy of the service that it is split to. Service b
// responds too late for its own timeout, but not for that of service a.
func TestSplitPolicies(t *testing.T) {
	m := newRoutedMesh(t, true, `
{match: {path: /x/}, service: [{name: a, weight: 0}, {name: b}]},
{match: {path: /y/}, timeout: 2s, service: [{name: a, weight: 0}, {name: b}]}`,
		"timeout: 5s", "timeout: 20ms")
	m.Apps[1].Delay = func() time.Duration { return time.Second }
	for _, c := range []struct{ path, want string }{{"/x/", "deadline"}, {"/y/", "b /y/"}} {
		if got := m.ServedBy(m.Get(c.path)); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
}
