package main

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// testRoutes runs "remora routes test" on a configuration.
func testRoutes(t *testing.T, yaml string, args ...string) (output string, code int) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "remora.yaml")
	must.WriteFile(t, file, yaml)
	var out bytes.Buffer
	code = execute(append([]string{"routes", "test", "-c", file}, args...), &out, &out)
	return out.String(), code
}

const testedRoutes = `
listeners:
- {name: link, address: "127.0.0.1:1", protocol: link, service: a}
- {name: egress, address: "127.0.0.1:2", protocol: http}
- {name: raw, address: "127.0.0.1:3", protocol: http, path: {normalize: false, escaped_slashes: keep, merge_slashes: false}}
routes:
- {match: {service: com.example.A}, service: d}
- {match: {host: "*.svc", path: /v1/, header: {x-tier: {not: gold}}, query: {debug: "1"}}, service: a}
- {match: {method: [GET, PUT], regex: "/v[12]/.*", header: {x-tier: {prefix: g}}}, service: a}
- {match: {path: /v2}, rewrite: {path: /}, service: [{name: a, weight: 9}, {name: b}]}
- {match: {prefix_text: /x, query: {q: {present: true}}}, service: a}
- {match: {path: /old}, rewrite: {path: /new}, redirect: {scheme: https}, response_headers: {remove: [x-b]}}
- {match: {path: /sent}, service: a, rewrite: {host: b}, request_headers: {set: {x-a: "{host}"}, add: {x-b: s3cret, x-c: ""}}}
- {match: {path: /body}, respond: {body: text}}
services:
  a: {discover: static, endpoints: ["127.0.0.1:4"], protocol: http}
  b: {discover: static, endpoints: ["127.0.0.1:4"], protocol: http}
  d: {discover: static, endpoints: ["127.0.0.1:4"], protocol: dubbo}
`

// TestRoutesTest: "remora routes test" says condition by condition why routes don't take a request.
func TestRoutesTest(t *testing.T) {
	for _, c := range []struct {
		name string
		args []string
		want string
		code int
	}{
		{"first", []string{"GET http://u.svc:80/v1/u?debug=1"}, `GET /v1/u?debug=1 to u.svc:80, at listener egress
routes[0]: no
  not met  a Dubbo call, got HTTP
routes[1]: takes it
  met      host *.svc
  met      path /v1
  met      header x-tier: not "gold"
  met      query debug: "1"
  service: a
  sent as: GET /v1/u?debug=1 to u.svc:80
`, 0},
		{"by expression", []string{"PUT https://u.svc/v1/u?debug=2", "-H", "X-Tier: gold", "-H", "x-other: 1"}, `PUT /v1/u?debug=2 to u.svc, at listener egress
routes[0]: no
  not met  a Dubbo call, got HTTP
routes[1]: no
  met      host *.svc
  met      path /v1
  not met  header x-tier: not "gold", got "gold"
  not met  query debug: "1", got "2"
routes[2]: takes it
  met      header x-tier: prefix "g"
  met      method GET or PUT
  met      regex of the path "/v[12]/.*"
  service: a
  sent as: PUT /v1/u?debug=2 to u.svc
`, 0},
		{"normalized, rewritten and split", []string{"http://h/x/../v2/%75?a"}, `GET /x/../v2/%75?a to h, at listener egress
normalized: /v2/u?a
routes[0]: no
  not met  a Dubbo call, got HTTP
routes[1]: no
  not met  host *.svc, got h
  not met  path /v1, got /v2/u
  met      header x-tier: not "gold"
  not met  query debug: "1", got none
routes[2]: no
  not met  header x-tier: prefix "g", got none
  met      method GET or PUT
  met      regex of the path "/v[12]/.*"
routes[3]: takes it
  met      path /v2
  service: a (9 of 10), b (1 of 10)
  sent as: GET /u?a to h
`, 0},
		{"none", []string{"GET http://h//v2", "--listener", "raw"}, `GET //v2 to h, at listener raw
routes[0]: no
  not met  a Dubbo call, got HTTP
routes[1]: no
  not met  host *.svc, got h
  not met  path /v1, got //v2
  met      header x-tier: not "gold"
  not met  query debug: "1", got none
routes[2]: no
  not met  header x-tier: prefix "g", got none
  met      method GET or PUT
  not met  regex of the path "/v[12]/.*", got //v2
routes[3]: no
  not met  path /v2, got //v2
routes[4]: no
  not met  text of the path /x, got //v2
  not met  query q: present, got none
routes[5]: no
  not met  path /old, got //v2
routes[6]: no
  not met  path /sent, got //v2
routes[7]: no
  not met  path /body, got //v2
no route: 404 no-route
`, 1},
		{"redirected", []string{"POST http://u.svc:80/old/a?b"}, `POST /old/a?b to u.svc:80, at listener egress
routes[0]: no
  not met  a Dubbo call, got HTTP
routes[1]: no
  met      host *.svc
  not met  path /v1, got /old/a
  met      header x-tier: not "gold"
  not met  query debug: "1", got none
routes[2]: no
  not met  header x-tier: prefix "g", got none
  not met  method GET or PUT, got POST
  not met  regex of the path "/v[12]/.*", got /old/a
routes[3]: no
  not met  path /v2, got /old/a
routes[4]: no
  not met  text of the path /x, got /old/a
  not met  query q: present, got none
routes[5]: takes it
  met      path /old
  status: 302
  location: https://u.svc/new/a?b
  response headers removed: x-b
`, 0},
		{"ambiguous", []string{"GET http://h/a/..%2fv2"}, "GET /a/..%2fv2 to h, at listener egress\nrefused: 400 bad-path, the path is ambiguous\n", 1},
		{"no URL", []string{"GET /v2"}, `remora: expected "METHOD http://host/path", got "GET /v2"` + "\n", 1},
		{"no header", []string{"GET http://h/", "-H", "a b: c"}, "remora: the request would be refused: ", 1},
		{"no such listener", []string{"GET http://h/", "--listener", "link"}, `remora: there is no http listener "link" without a service` + "\n", 1},
	} {
		got, code := testRoutes(t, testedRoutes, c.args...)
		if code != c.code || got != c.want && c.name != "no header" || !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: exit code %d, output\n%s\nwant %d\n%s", c.name, code, got, c.code, c.want)
		}
	}
	for args, want := range map[string]string{
		"http://h/sent": "  service: a\n  sent as: GET /sent to b\n  request headers set: x-a\n  request headers added: x-b, x-c\n",
		"http://h/body": "  status: 200\n  body: 4 bytes\n",
	} {
		if out, code := testRoutes(t, testedRoutes, args); code != 0 || !strings.HasSuffix(out, want) {
			t.Errorf("%s: exit code %d, output\n%s", args, code, out)
		}
	}
	if out, code := testRoutes(t, "routes: [{match: {host: '*'}}]", "GET http://h/"); code != exitFailed || !strings.Contains(out, "match.host") {
		t.Errorf("a wrong file: exit code %d, output\n%s", code, out)
	}
	if out, code := testRoutes(t, testedRoutes); code != exitUsage {
		t.Errorf("no request: exit code %d, output\n%s", code, out)
	}
}

// TestRoutesTestDirect: a request that no route takes leaves for its own host if the listener says
// so. A CONNECT has no path.
func TestRoutesTestDirect(t *testing.T) {
	const cfg = `
listeners: [{name: egress, address: "127.0.0.1:1", protocol: http, unrouted: direct}]
routes: [{match: {host: a, method: [CONNECT]}, service: s}]
services: {s: {discover: static, endpoints: ["127.0.0.1:2"]}}
`
	for request, want := range map[string]string{
		"GET http://b/c": "no route: on to b itself, as far as direct may reach it\n",
		"CONNECT a:443":  "  sent as: CONNECT to a:443\n",
	} {
		if got, code := testRoutes(t, cfg, request); code != 0 || !strings.HasSuffix(got, want) {
			t.Errorf("%s: exit code %d, output\n%s", request, code, got)
		}
	}
	ruled := strings.Replace(cfg, "routes: [", "routes: [{match: {host: R.test, path: /x}, service: s, allow: {rules: [{path: [/x]}]}}, ", 1)
	for _, host := range []string{"r.test", "R.TEST.:80", "%72.test"} {
		if got, code := testRoutes(t, ruled, "GET http://"+host+"/y"); code != 1 || !strings.HasSuffix(got, "no route: 404 no-route\n") {
			t.Errorf("%s, which has rules: exit code %d, output\n%s", host, code, got)
		}
	}
}

// TestRoutesTestFallback: "remora routes test" says what answers for failures.
func TestRoutesTestFallback(t *testing.T) {
	for fallback, want := range map[string]string{
		"respond: {body: text}":        "  fallback: status 200, on breaker, deadline, no_endpoint\n",
		"on: [reset, 5xx], service: b": "  fallback: service b within 1s, on reset, 5xx\n",
	} {
		yaml := strings.Replace(testedRoutes, "routes:", "routes:\n- {match: {path: /down}, service: a, fallback: {"+fallback+"}}", 1)
		if out, code := testRoutes(t, yaml, "GET http://h/down"); code != 0 || !strings.HasSuffix(out, want) {
			t.Errorf("exit code %d, got\n%s, want it to end with %q", code, out, want)
		}
	}
}
