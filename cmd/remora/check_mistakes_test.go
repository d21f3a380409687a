package main

import (
	"bytes"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"unicode"

	"github.com/remora-proxy/remora/internal/must"
	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
)

// Configurations that are valid but for the text in them.
const (
	appListener = `[{name: in, address: "127.0.0.1:8080", protocol: http, service: app}]`
	appService  = `services: {app: {discover: static, endpoints: ["127.0.0.1:9000"]}}` + "\n"
)

func withListeners(list string) string  { return "listeners: " + list + "\n" + appService }
func withSection(section string) string { return withListeners(appListener) + section + "\n" }

func withListener(key string) string {
	return withListeners(`[{name: in, address: "127.0.0.1:8080", protocol: http, service: app, ` + key + "}]")
}

func withAddress(address string) string {
	return withListeners("[{name: in, address: " + address + ", protocol: http, service: app}]")
}

func withService(key string) string {
	return "listeners: " + appListener + "\nservices: {app: {discover: static, endpoints: [\"127.0.0.1:9000\"], " + key + "}}\n"
}

func withEndpoints(list string) string {
	return "listeners: " + appListener + "\nservices: {app: {discover: static, endpoints: " + list + "}}\n"
}

func withRoute(route string) string {
	return withListeners(`[{name: in, address: "127.0.0.1:8080", protocol: http}]`) + "routes: [{" + route + "}]\n"
}

// checked returns what "remora check" prints about a configuration, without the name of the file.
func checked(t *testing.T, file, text string) (lines []string) {
	t.Helper()
	must.WriteFile(t, file, text)
	var out bytes.Buffer
	execute([]string{"check", file}, io.Discard, &out)
	for line := range strings.Lines(out.String()) {
		lines = append(lines, strings.TrimPrefix(strings.TrimSuffix(line, "\n"), file+":"))
	}
	return lines
}

// TestCheckMistakes: each mistake has a message with its line, its column, what is wrong, and what was expected.
// Many are made by those who know another proxy.
func TestCheckMistakes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "remora.yaml")
	names := func(list []string) string { return strings.Join(list, ", ") }
	protocols, sources, policies := names(config.ListenerProtocols), names(config.Registries()), names(lb.PolicyNames())
	for _, c := range []struct{ name, text, want string }{
		// YAML.
		{"tab as indentation", "services:\n  app:\n\tdiscover: static\n",
			`3:1: not valid YAML: found character '\t' that cannot start any token; expected spaces in place of the tab`},
		{"indentation", "listeners:\n  - name: in\n   address: 127.0.0.1:8080\n",
			`3:4: not valid YAML: value is not allowed in this context; expected the indentation of the lines around it`},
		{"no space behind a colon", "log:\n  level:debug\n  format: text\n",
			`2:3: not valid YAML: unexpected key name; expected key: value, with a space behind the colon`},
		{"no space behind the only colon", "services:\n  app:\n    discover:static\n",
			`3:5: services.app: expected a mapping with keys such as discover, endpoints, combine; got a plain value; expected a space behind the colon`},
		{"no colon", "services:\n  app\n    discover: static\n",
			`2:3: not valid YAML: unexpected key name; expected key: value, with a space behind the colon`},
		{"a key twice", withSection(`services: {}`),
			`3:1: key "services" is already set in line 2`},
		{"a key twice in a section", withSection(`log: {level: info, level: debug}`),
			`3:20: key "level" is already set in line 3`},
		{"backslash in double quotes", withRoute(`match: {regex: "/v\d+"}, service: app`),
			`3:30: not valid YAML: found unknown escape character 'd'; in single quotes a backslash stands for itself`},
		{"star without quotes", "listeners:\n  - name: in\n    address: *:8080\n",
			`2:5: listeners[0].protocol: missing; expected one of ` + protocols + "\n" +
				`3:14: no anchor of this name before the alias; a value that begins with * needs quotes`},
		{"bracket without quotes", "listeners:\n  - name: in\n    address: [::]:8080\n",
			`3:18: not valid YAML: value is not allowed in this context; a value that begins with one of [ { * & @ % needs quotes`},
		{"template without quotes", "listeners:\n  - name: in\n    address: {{ .Values.address }}\n",
			`3:15: not valid YAML: could not find flow map content; templates are not filled in, only ${NAME}`},
		{"variable without quotes", withAddress(`${REMORA_UNSET}:8080`),
			`1:48: not valid YAML: found an invalid key for this map; inside { } and [ ] a variable must be quoted: "${VAR}"`},
		{"alias before its anchor", "services: {app: *base}\n",
			`1:17: no anchor of this name before the alias; a value that begins with * needs quotes`},
		{"alias inside its anchor", "services: &all {app: *all}\n",
			`1:22: alias *all inside its own anchor; expected the alias of another value`},
		{"merge of a text", withSection(`log: {<<: base}`),
			`3:11: expected a mapping to merge, as in <<: *name`},
		{"tag", withSection(`log: !include log.yaml`),
			`3:6: a YAML tag is not supported; leave it out`},
		{"two documents", withSection("---\nlog: {level: info}"),
			`4:1: a second document; expected one document per file`},
		{"configuration of nginx", "server {\n  listen 80;\n}\n",
			`1:1: expected a mapping with keys such as node, loops, engine; got a plain value`},
		{"configuration of HAProxy", "frontend www\n  bind :80\n",
			`1:1: expected a mapping with keys such as node, loops, engine; got a plain value`},
		{"no content", "# nothing\n",
			`1:1: empty; expected a configuration`},

		// Keys.
		{"a letter missing", withSection(`limit: {message: 1MiB}`),
			`3:1: limit: unknown key; did you mean limits?`},
		{"camel case", withService(`maxQueue: 4`),
			`2:67: services.app.maxQueue: unknown key; did you mean max_queue?`},
		{"section of Envoy", withSection(`clusters: []`),
			`3:1: clusters: unknown key; did you mean services?`},
		{"section of nginx", withSection(`upstreams: []`),
			`3:1: upstreams: unknown key; did you mean services?`},
		{"section of HAProxy", withSection(`frontends: []`),
			`3:1: frontends: unknown key; did you mean listeners?`},
		{"section of Traefik", withSection(`entryPoints: {web: {address: ":80"}}`),
			`3:1: entryPoints: unknown key; did you mean listeners?`},
		{"port beside the address", withListener(`port: 8080`),
			`1:81: listeners[0].port: unknown key; did you mean address?`},
		{"health check of others", withService(`health_check: {http: /healthz}`),
			`2:67: services.app.health_check: unknown key; did you mean check?`},
		{"retries of Envoy", withService(`retry: {num_retries: 3}`),
			`2:75: services.app.retry.num_retries: unknown key; did you mean attempts?`},
		{"prefix of Envoy", withRoute(`match: {prefix: /api}, service: app`),
			`3:19: routes[0].match.prefix: unknown key; did you mean path?`},
		{"condition of Envoy", withRoute(`match: {header: {x-a: {exact_match: b}}}, service: app`),
			`3:34: routes[0].match.header.x-a.exact_match: unknown key; did you mean exact?`},
		{"far from all keys", withService(`keepalive: {attempts: 1}`),
			`2:67: services.app.keepalive: unknown key; expected one of discover, endpoints, combine, opaque, protocol, proxy_protocol, serialization, lb, probe, timeout_header, timeout, idempotent, priority, retry, hedge, connect_timeout, idle_timeout, cancel, max_pending, max_concurrency, max_queue, check, outlier, breaker, rate_limit, allow, tls`},

		// Kinds of values.
		{"text for a mapping", withService(`lb: random`),
			`2:71: services.app.lb: expected a mapping with keys such as policy, subset, slow_start; got a plain value`},
		{"number for a mapping", withListener(`rate_limit: 100`),
			`1:93: listeners[0].rate_limit: expected a mapping with keys such as rate, burst, key; got "100"`},
		{"switch for a mapping", withListener(`tls: true`),
			`1:86: listeners[0].tls: expected a mapping with keys such as cert, key, ca; got "true"`},
		{"text for a list", withEndpoints(`"127.0.0.1:9000"`),
			`2:47: services.app.endpoints: expected a list, in brackets or with - before each item; got "127.0.0.1:9000"`},
		{"mapping for a list", withSection(`routes: {api: {service: app}}`),
			`3:9: routes: expected a list, in brackets or with - before each item; got a mapping`},
		{"list for a mapping", "services: [{name: app, discover: static}]\n",
			`1:11: services: expected a mapping of names to values; got a list`},
		{"list for a text", withRoute(`match: {host: [a.example, b.example]}, service: app`),
			`3:25: routes[0].match.host: expected a string, got a list`},
		{"mapping for a text", withAddress(`{socket_address: {address: 0.0.0.0, port_value: 80}}`),
			`1:33: listeners[0].address: expected a string, got a mapping`},
		{"yes", withSection(`access_log: {path: stdout, failed: yes}`),
			`3:36: access_log.failed: expected true or false, got "yes"`},
		{"on", withSection(`admin: {profiles: on}`),
			`3:19: admin.profiles: expected true or false, got "on"`},
		{"true for on", withService(`hedge: {mode: true}`),
			`2:81: services.app.hedge.mode: expected one of off, shadow, on, got "true"`},
		{"no for off", withService(`proxy_protocol: no`),
			`2:83: services.app.proxy_protocol: expected one of off, v1, v2, got "no"`},
		{"quoted switch", withSection(`access_log: {path: stdout, failed: "true"}`),
			`3:36: access_log.failed: expected true or false, got "true" in quotes, which makes it a string`},
		{"quoted number", withSection(`loops: "4"`),
			`3:8: loops: expected a whole number, got "4" in quotes, which makes it a string`},
		{"port in quotes", withService(`check: {tcp: true, port: "8081"}`),
			`2:92: services.app.check.port: expected a whole number, got "8081" in quotes, which makes it a string`},
		{"fraction", withSection(`loops: 2.5`),
			`3:8: loops: expected a whole number, got "2.5"`},
		{"octal", withService(`max_queue: 010`),
			`2:78: services.app.max_queue: expected a whole number, got "010"`},

		// Numbers with units.
		{"duration without a unit", withService(`timeout: 30`),
			`2:76: services.app.timeout: expected a duration such as 500ms, got "30"; the unit is missing`},
		{"duration in days", withService(`idle_timeout: 1d`),
			`2:81: services.app.idle_timeout: expected a duration such as 500ms, got "1d"; the units are ms, s, m and h, without a space`},
		{"duration with a space", withService(`timeout: 5 s`),
			`2:76: services.app.timeout: expected a duration such as 500ms, got "5 s"; the units are ms, s, m and h, without a space`},
		{"duration of Traefik as a word", withService(`timeout: 5sec`),
			`2:76: services.app.timeout: expected a duration such as 500ms, got "5sec"; the units are ms, s, m and h, without a space`},
		{"no duration", withService(`timeout: 0s`),
			`2:76: services.app.timeout: expected at least 1ms, got "0s"`},
		{"negative duration", withService(`timeout: -5s`),
			`2:76: services.app.timeout: expected at least 1ms, got "-5s"`},
		{"size of nginx", withSection(`limits: {message: 10m}`),
			`3:19: limits.message: expected a size such as 64KiB, got "10m"; the units are KiB, MiB and GiB, right behind a whole number`},
		{"decimal size", withSection(`limits: {message: 10MB}`),
			`3:19: limits.message: expected a size such as 64KiB, got "10MB"; the units are KiB, MiB and GiB, right behind a whole number`},
		{"size of Kubernetes", withSection(`limits: {message: 10Mi}`),
			`3:19: limits.message: expected a size such as 64KiB, got "10Mi"; the units are KiB, MiB and GiB, right behind a whole number`},
		{"percentage for a share", withRoute(`mirror: {service: app, share: 10%}, service: app`),
			`3:41: routes[0].mirror.share: expected a number in [0,1], got "10%"; 10 percent is 0.1`},
		{"percentage without its sign", withSection(`access_log: {path: stdout, sample: 50}`),
			`3:36: access_log.sample: expected a number in [0,1], got "50"; 50 percent is 0.5`},
		{"percentage for a weight", withRoute(`service: [{name: app, weight: 90%}]`),
			`3:41: routes[0].service[0].weight: expected a whole number, got "90%"; expected it without the %`},
		{"negative weight", withRoute(`service: [{name: app, weight: -1}]`),
			`3:41: routes[0].service[0].weight: expected at least 0, got "-1"`},
		{"weight over 65535", withRoute(`service: [{name: app, weight: 100000}]`),
			`3:41: routes[0].service[0].weight: expected at most 65535, got "100000"`},
		{"no weight", withRoute(`service: [{name: app, weight: 0}]`),
			`3:20: routes[0].service: every weight is 0: no request could go anywhere`},
		{"rate of nginx", withListener(`rate_limit: {rate: 10r/s}`),
			`1:100: listeners[0].rate_limit.rate: expected a whole number, got "10r/s"`},

		// Addresses.
		{"port alone", withAddress(`8080`),
			`1:33: listeners[0].address: expected host:port, got "8080"; a port alone is :8080`},
		{"host alone", withAddress(`127.0.0.1`),
			`1:33: listeners[0].address: expected host:port, got "127.0.0.1"; the port is missing`},
		{"star", withAddress(`"*:8080"`),
			`1:33: listeners[0].address: expected an IP address or a name before the port, got "*:8080"; all addresses are [::]`},
		{"URL", withEndpoints(`["http://127.0.0.1:9000"]`),
			`2:48: services.app.endpoints[0]: expected host:port, got "http://127.0.0.1:9000"; it has no scheme, since protocol and tls say what is spoken`},
		{"URL with a path", withEndpoints(`["https://app.example/api"]`),
			`2:48: services.app.endpoints[0]: expected host:port, got "https://app.example/api"; it has no scheme, since protocol and tls say what is spoken`},
		{"no port", withEndpoints(`[app.example]`),
			`2:48: services.app.endpoints[0]: expected host:port, got "app.example"; the port is missing`},
		{"all addresses", withEndpoints(`["0.0.0.0:9000"]`),
			`2:48: services.app.endpoints[0]: expected a host that can be connected to, got "0.0.0.0:9000"`},
		{"host and port", withEndpoints(`[{host: 127.0.0.1, port: 9000}]`),
			`2:48: services.app.endpoints[0]: expected host:port, got ""; an example is 127.0.0.1:8080` + "\n" +
				`2:49: services.app.endpoints[0].host: unknown key; did you mean address?` + "\n" +
				`2:66: services.app.endpoints[0].port: unknown key; did you mean address?`},
		{"an endpoint twice", withEndpoints(`["127.0.0.1:9000", "127.0.0.1:9000"]`),
			`2:66: services.app.endpoints[1]: 127.0.0.1:9000 is listed twice`},
		{"IPv6 without brackets", withAddress(`"::1:8080"`),
			`1:33: listeners[0].address: expected host:port, an IPv6 host as in [::1]:80, got "::1:8080"`},
		{"octet over 255", withAddress(`127.0.0.256:8080`),
			`1:33: listeners[0].address: expected an IP address or a name before the port, got "127.0.0.256:8080"`},
		{"port over 65535", withAddress(`127.0.0.1:80800`),
			`1:33: listeners[0].address: expected a port from 0 to 65535, got "80800"`},
		{"path of a socket", withAddress(`/run/app.sock`),
			`1:33: listeners[0].address: expected host:port, got "/run/app.sock"; a Unix socket is unix:/path`},
		{"mode in letters", withListeners(`[{name: in, address: "unix:/run/app.sock", mode: rw-rw----, protocol: http, service: app}]`),
			`1:61: listeners[0].mode: expected octal digits such as "0660", got "rw-rw----"`},
		{"two listeners at an address", withListeners(`[{name: a, address: ":8080", protocol: http, service: app}, {name: b, address: "127.0.0.1:8080", protocol: http, service: app}]`),
			`1:91: listeners[1].address: 127.0.0.1:8080 overlaps :8080, the address of listeners[0].address; expected another port or address`},
		{"two listeners with a name", withListeners(`[{name: a, address: ":80", protocol: http, service: app}, {name: a, address: ":81", protocol: http, service: app}]`),
			`1:77: listeners[1].name: "a" is already the name of listeners[0]`},
		{"listener at the address of the admin API", withSection(`admin: {address: "127.0.0.1:8080"}`),
			`1:33: listeners[0].address: 127.0.0.1:8080 is already used by admin.address; expected another port or address`},
		{"admin API for everybody", withSection(`admin: {address: "0.0.0.0:9901"}`),
			`3:18: admin.address: expected a loopback address; on any other the admin API needs admin.token`},
		{"CIDR over 32", withListener(`forwarded: {trust: [10.0.0.0/33]}`),
			`1:101: listeners[0].forwarded.trust[0]: expected a number of proxies, or a list of CIDRs such as 10.0.0.0/8, got "10.0.0.0/33"`},
		{"range of addresses", withListener(`forwarded: {trust: [10.0.0.1-10.0.0.9]}`),
			`1:101: listeners[0].forwarded.trust[0]: expected a number of proxies, or a list of CIDRs such as 10.0.0.0/8, got "10.0.0.1-10.0.0.9"`},
		{"netmask", withListener(`proxy_protocol: {trust: [10.0.0.0/255.0.0.0]}`),
			`1:106: listeners[0].proxy_protocol.trust[0]: expected a CIDR such as 10.0.0.0/8, got "10.0.0.0/255.0.0.0"`},

		// Variables.
		{"variable that is not set", withAddress(`"${REMORA_UNSET}:8080"`),
			`1:33: listeners[0].address: environment variable REMORA_UNSET is not set; ${REMORA_UNSET:-value} gives a default`},
		{"variable without its brace", withAddress(`"${REMORA_UNSET:8080"`),
			`1:33: listeners[0].address: "${" without "}"; write $$ for a plain $`},
		{"default of another syntax", withAddress(`"${REMORA_UNSET-127.0.0.1}:8080"`),
			`1:33: listeners[0].address: ${REMORA_UNSET...}: expected ${NAME} or ${NAME:-default}`},
		{"variable of the shell", withAddress(`$REMORA_UNSET:8080`),
			`1:33: listeners[0].address: expected an IP address or a name before the port, got "$REMORA_UNSET:8080"; a variable is ${NAME}`},
		{"template", withAddress(`"{{ .PodIP }}:8080"`),
			`1:33: listeners[0].address: expected host:port, an IPv6 host as in [::1]:80, got "{{ .PodIP }}:8080"; templates are not filled in, only ${NAME}`},
		{"variable in a key", "services: {\"${APP}\": {discover: static, endpoints: [\"127.0.0.1:9000\"]}}\n",
			`1:22: services.${APP}: variables are expanded in values, not in keys; expected the name itself`},

		// Services and routes.
		{"a letter missing in a service", withRoute(`service: ap`),
			`3:20: routes[0].service: there is no service "ap"; did you mean app?`},
		{"service that does not exist", withRoute(`service: backend`),
			`3:20: routes[0].service: there is no service "backend"; expected one of app`},
		{"no service at all", "listeners: [{name: in, address: \":80\", protocol: http, service: app}]\n",
			`1:65: listeners[0].service: there is no service "app"; there are none`},
		{"no service in a route", withRoute(`match: {path: /api}`),
			`3:10: routes[0].service: missing; a route needs a service, redirect or respond`},
		{"service without endpoints", "services:\n  app:\n",
			`2:3: services.app.discover: is etcd, but registry.etcd.endpoints is empty; expected addresses there, or discover: static`},
		{"kind of discovery in capitals", "services: {app: {discover: STATIC, endpoints: [\"127.0.0.1:9000\"]}}\n",
			`1:28: services.app.discover[0]: expected one of ` + sources + `, got "STATIC"; did you mean static?`},
		{"policy of Envoy", withService(`lb: {policy: ROUND_ROBIN}`),
			`2:80: services.app.lb.policy: expected one of ` + policies + `, got "ROUND_ROBIN"; did you mean weighted_round_robin?`},
		{"policy of HAProxy", withService(`lb: {policy: leastconn}`),
			`2:80: services.app.lb.policy: expected one of ` + policies + `, got "leastconn"; did you mean least_pending?`},
		{"policy without a key", withService(`lb: {policy: consistent_hash}`),
			`2:71: services.app.lb.hash: missing; expected exactly one of header, cookie, query, path and source`},
		{"key without a policy", withService(`lb: {hash: {header: x-user}}`),
			`2:78: services.app.lb.hash: not used by lb.policy: least_pending; expected consistent_hash`},
		{"cookie with a space", withService(`lb: {sticky: {cookie: my cookie, secret: 0123456789abcdef}}`),
			`2:89: services.app.lb.sticky.cookie: expected the name of a cookie, got "my cookie"`},
		{"cookie without a secret", withService(`lb: {sticky: {cookie: server}}`),
			`2:80: services.app.lb.sticky.secret: expected at least 16 bytes, the same in all sidecars`},
		{"protocol with TLS", withListeners(`[{name: in, address: ":443", protocol: https, service: app}]`),
			`1:51: listeners[0].protocol: expected one of ` + protocols + `, got "https"; did you mean http?`},
		{"protocol that http includes", withListeners(`[{name: in, address: ":443", protocol: grpc, service: app}]`),
			`1:51: listeners[0].protocol: expected one of ` + protocols + `, got "grpc"; did you mean http?`},
		{"retry condition of Envoy", withService(`retry: {on: [connect-failure]}`),
			`2:80: services.app.retry.on[0]: expected one of connect, refused, reset, 5xx, a status such as 503 or a code of gRPC such as unavailable, got "connect-failure"; did you mean connect?`},
		{"retry conditions in one text", withService(`retry: {on: "5xx,reset"}`),
			`2:79: services.app.retry.on: expected a list, in brackets or with - before each item; got "5xx,reset"`},
		{"retry after a status of the client", withService(`retry: {on: [404]}`),
			`2:80: services.app.retry.on[0]: expected one of connect, refused, reset, 5xx, a status such as 503 or a code of gRPC such as unavailable, got "404"`},
		{"attempt longer than the request", withService(`timeout: 1s, retry: {per_try_timeout: 2s}`),
			`2:105: services.app.retry.per_try_timeout: 2s is not less than the timeout of 1s, so it would end no attempt`},
		{"open parenthesis", withRoute(`match: {regex: "/v(1|2"}, service: app`),
			`3:26: routes[0].match.regex: not a regular expression (RE2): missing closing ): "/v(1|2"; a parenthesis itself is \(`},
		{"lookahead", withRoute(`match: {regex: "/(?!admin).*"}, service: app`),
			`3:26: routes[0].match.regex: not a regular expression (RE2): invalid or unsupported Perl syntax: "(?!"; RE2 has no lookahead, no lookbehind and no backreference`},
		{"glob for an expression", withRoute(`match: {regex: "*.php"}, service: app`),
			`3:26: routes[0].match.regex: not a regular expression (RE2): missing argument to repetition operator: "*"; any text is .*`},
		{"path without a slash", withRoute(`match: {path: api}, service: app`),
			`3:25: routes[0].match.path: expected a path that starts with "/", got "api"`},
		{"query in a path", withRoute(`match: {path: "/a?b=c"}, service: app`),
			`3:25: routes[0].match.path: no request has such a path: expected no empty or dot segment, no query, and escapes in capitals of other than letters, digits and -._~; got "/a?b=c"`},
		{"rule of Traefik", withRoute("match: \"Host(`a.example`)\", service: app"),
			"3:18: routes[0].match: expected a mapping with keys such as host, path, prefix_text; got \"Host(`a.example`)\""},
		{"host with a port", withRoute(`match: {host: "a.example:8080"}, service: app`),
			`3:25: routes[0].match.host: expected a host without port, got "a.example:8080"`},
		{"star within a host", withRoute(`match: {host: "a.*.example"}, service: app`),
			`3:25: routes[0].match.host: expected one host, or the end of hosts such as "*.svc", got "a.*.example"; a route without host matches all hosts`},
		{"method in small letters", withRoute(`match: {method: [get]}, service: app`),
			`3:28: routes[0].match.method[0]: expected a method such as GET, got "get"; for a Dubbo method set match.service too`},
		{"header with a colon", withRoute(`match: {header: {"X-A:": b}}, service: app`),
			`3:36: routes[0].match.header["X-A:"]: expected the name of a header, got "X-A:"`},
		{"pseudo-header", withRoute(`match: {header: {":authority": b}}, service: app`),
			`3:42: routes[0].match.header[":authority"]: expected the name of a header, got ":authority"`},
		{"host as a header", withRoute(`match: {header: {Host: b}}, service: app`),
			`3:34: routes[0].match.header.Host: expected match.host for the host`},
		{"header with a space", withRoute(`request_headers: {set: {x a: b}}, service: app`),
			`3:40: routes[0].request_headers.set["x a"]: expected the name of a header, got "x a"`},
		{"header of the connection", withRoute(`request_headers: {set: {Connection: close}}, service: app`),
			`3:47: routes[0].request_headers.set.Connection: Connection belongs to the connection, the framing or the sidecar: a route can't change it`},
		{"placeholder of another proxy", withRoute(`request_headers: {set: {x-ip: "{client_ip}"}}, service: app`),
			`3:41: routes[0].request_headers.set.x-ip: unknown placeholder; expected one of peer, host, method, path, query, service, listener, request_id, or {{ for a brace`},
		{"URL for a host", withRoute(`redirect: {host: "https://a.example"}`),
			`3:28: routes[0].redirect.host: expected a host with or without a port, got "https://a.example"`},
		{"status of a redirect", withRoute(`redirect: {status: 200, host: a.example}`),
			`3:30: routes[0].redirect.status: expected 301, 302, 303, 307 or 308, got 200`},
		{"status over 599", withRoute(`respond: {status: 1000}`),
			`3:29: routes[0].respond.status: expected at most 599, got "1000"`},
		{"route behind one that takes all", withRoute(`service: app}, {match: {path: /a}, service: app`),
			`3:26: routes[1]: never reached: routes[0] matches all requests that this one does`},

		// TLS and logs.
		{"certificate without a key", withListener(`tls: {cert: /none/cert.pem}`),
			`1:86: listeners[0].tls: cert and key must be set together` + "\n" +
				`1:93: listeners[0].tls.cert: open /none/cert.pem: no such file or directory`},
		{"no file", withListener(`tls: {cert: /none/cert.pem, key: /none/key.pem}`),
			`1:93: listeners[0].tls.cert: open /none/cert.pem: no such file or directory` + "\n" +
				`1:114: listeners[0].tls.key: open /none/key.pem: no such file or directory`},
		{"certificate in place of its file", withListener(`tls: {cert: "-----BEGIN CERTIFICATE-----\nMIIB", key: "-----BEGIN PRIVATE KEY-----\nMIIE"}`),
			`1:93: listeners[0].tls.cert: expected the path of a file, got its content` + "\n" +
				`1:135: listeners[0].tls.key: expected the path of a file, got its content`},
		{"version of nginx", withListener(`tls: {cert: /none/cert.pem, key: /none/key.pem, min_version: TLSv1.2}`),
			`1:93: listeners[0].tls.cert: open /none/cert.pem: no such file or directory` + "\n" +
				`1:114: listeners[0].tls.key: open /none/key.pem: no such file or directory` + "\n" +
				`1:142: listeners[0].tls.min_version: expected one of 1.2, 1.3, got "TLSv1.2"; did you mean 1.2?`},
		{"empty tls", withListener(`tls: {}`),
			`1:86: listeners[0].tls: empty, which would be plain text; expected at least one key, such as ca: system`},
		{"link without tls", withListeners(`[{name: in, address: ":80", protocol: link, service: app}]`),
			`1:13: listeners[0]: a link that is not on loopback needs tls, or insecure: true`},
		{"level of others", withSection(`log: {level: WARNING}`),
			`3:14: log.level: expected one of debug, info, warn, error, got "WARNING"; did you mean warn?`},

		// Valid, but surely meant otherwise.
		{"star at the end of a path", withRoute(`match: {path: /api/*}, service: app`),
			`3:25: warning: routes[0].match.path: * stands for itself; the paths below a prefix match without it`},
		{"variable of nginx", withRoute(`request_headers: {set: {x-ip: $remote_addr}}, service: app`),
			`3:41: warning: routes[0].request_headers.set.x-ip: has a variable of another proxy, which is sent as it stands; expected a placeholder such as {peer}`},
		{"variable of Envoy", withRoute(`request_headers: {add: {x-ip: "%DOWNSTREAM_REMOTE_ADDRESS%"}}, service: app`),
			`3:41: warning: routes[0].request_headers.add.x-ip: has a variable of another proxy, which is sent as it stands; expected a placeholder such as {peer}`},
		{"variable of HAProxy", withRoute(`response_headers: {set: {x-ip: "%[src]"}}, service: app`),
			`3:42: warning: routes[0].response_headers.set.x-ip: has a variable of another proxy, which is sent as it stands; expected a placeholder such as {peer}`},
	} {
		if got := strings.Join(checked(t, file, c.text), "\n"); got != c.want {
			t.Errorf("%s: got\n%s\nwant\n%s", c.name, got, c.want)
		}
	}
}

// TestCheckBounds: messages are short lines whatever the file has, and still say what was expected.
func TestCheckBounds(t *testing.T) {
	const size = 500_000
	long := strings.Repeat("x", size)
	file := filepath.Join(t.TempDir(), "remora.yaml")
	for _, c := range []struct{ name, text, want string }{
		{"number", withSection("loops: " + long), `..."`},
		{"size", withSection("limits: {message: " + "1 " + long + "}"), "right behind a whole number"},
		{"share", withRoute("mirror: {service: app, share: " + long + "}, service: app"), `..."`},
		{"name of a service", withRoute("service: " + long), `..."; expected one of app`},
		{"key", long + ": 1", "access_log, tracing, config"},
		{"choice", withSection("log: {level: " + long + "}"), `..."`},
		{"address", withAddress(long), "the port is missing"},
		{"expression", withRoute(`match: {regex: "` + long + `"}, service: app`), "got 500000"},
		{"open expression", withRoute(`match: {regex: "(` + long[:500] + `"}, service: app`), `a parenthesis itself is \(`},
		{"variable", withAddress(`"${` + long + `}"`), "gives a default"},
		{"file", withListener("tls: {cert: " + long + ", key: " + long + "}"), "..."},
		{"header", withRoute("request_headers: {set: {" + long + " y: z}}, service: app"), `..."`},
		{"control characters", withSection(`"\e[2J\a\r\nlog": {}`), "access_log, tracing, config"},
		{"many errors", many("key%d: 1\n"), "and 3900 more"},
		{"many warnings", "services:\n" + many("  s%d: {discover: static, endpoints: [\"127.0.0.1:9000\"]}\n") +
			"listeners: [{name: in, address: \"127.0.0.1:8080\", protocol: http, service: s0}]\n", "and 3899 more"},
	} {
		lines := checked(t, file, c.text)
		if len(lines) == 0 || len(lines) > 101 || !strings.HasSuffix(lines[len(lines)-1], c.want) {
			t.Errorf("%s: %d lines: %.1500q", c.name, len(lines), lines)
		}
		for _, line := range lines {
			if len(line) > 1100 || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
				t.Errorf("%s: a line of %d bytes: %.1500q", c.name, len(line), line)
			}
		}
	}
}

// many returns 4000 lines.
func many(format string) string {
	var text strings.Builder
	for i := range 4000 {
		fmt.Fprintf(&text, format, i)
	}
	return text.String()
}
