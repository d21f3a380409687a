package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// layFile is the file on which overlays are laid.
const layFile = `
registry: {etcd: {endpoints: ["127.0.0.1:2379"]}}
listeners: [{name: l, address: "127.0.0.1:1", protocol: http}]
services:
  a: {discover: static, endpoints: ["127.0.0.1:2"], timeout: 3s, hedge: {mode: off, max_delay: 20ms}, retry: {attempts: 2, on: [connect, reset]}}
  b: {discover: static, endpoints: ["127.0.0.1:3"]}
routes: [{match: {path: /b}, service: b}, {service: a}]
`

// laid returns the configuration with an overlay on layFile.
func laid(text string) (*Config, error) {
	return ParseWith("file", []byte(layFile), environment, &Overlay{Name: "overlay", Text: []byte(text)})
}

// TestLay: mappings merge by key, other values replace those of the file.
func TestLay(t *testing.T) {
	for _, c := range []struct{ text, file string }{
		{"services: {a: {hedge: {mode: on}}}", strings.Replace(layFile, "mode: off", "mode: on", 1)},
		{"services: {a: {timeout: 1s, lb: {policy: random}}}", strings.Replace(layFile, "timeout: 3s", "timeout: 1s, lb: {policy: random}", 1)},
		{"services: {a: {retry: {on: [refused]}}}", strings.Replace(layFile, "[connect, reset]", "[refused]", 1)},
		{"services: {a: {retry: {on: []}}}", strings.Replace(layFile, "[connect, reset]", "[]", 1)},
		{"services: {other: {timeout: 1s}}", layFile}, // no service of this file
		{"services: {}", layFile},
		{"limits: {message: 1MiB}", layFile + "limits: {message: 1MiB}\n"},
		{"routes: [{service: b}]", strings.Replace(layFile, "{match: {path: /b}, service: b}, {service: a}", "{service: b}", 1)},
		{"x: &h {mode: on}\nservices: {a: {hedge: *h}}", ""},
		{"services:\n  a: &p {timeout: 1s}\n  b: {<<: *p, max_pending: 7}", strings.Replace(strings.Replace(layFile, "timeout: 3s", "timeout: 1s", 1), `3"]}`, `3"], timeout: 1s, max_pending: 7}`, 1)},
		{"services: {a: {max_queue: 5}} # $$ is $", strings.Replace(layFile, "timeout: 3s", "timeout: 3s, max_queue: 5", 1)},
	} {
		got, err := laid(c.text)
		if c.file == "" {
			if err == nil {
				t.Errorf("%s: accepted", c.text)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", c.text, err)
		} else if want := mustParse(t, c.file); !got.Equal(want) {
			a, _ := got.YAML()
			b, _ := want.YAML()
			t.Errorf("%s:\n%s\nwant\n%s", c.text, a, b)
		}
	}
}

// TestLayErrors: an overlay that is wrong is refused, with positions in its text. If it is right, and does not fit the
// file, positions are where the error is.
func TestLayErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "overlay:1:1: empty; expected a configuration"},
		{"# nothing", "overlay:1:1: empty; expected a configuration"},
		{"[]", "overlay:1:1: expected a mapping with keys such as node, loops, engine; got a list"},
		{"services: [", "overlay:1:11: not valid YAML: sequence end token ']' not found; a value that begins with one of [ { * & @ % needs quotes"},
		{"services:\n  a: {hedge: {mode: sometimes}}", "overlay:2:21: services.a.hedge.mode: expected one of off, shadow, on, got \"sometimes\""},
		{"services: {other: {timeot: 1s}}", "overlay:1:20: services.other.timeot: unknown key; did you mean timeout?"},
		{"services:\n  a:\n    timeout: ${HOME}", "overlay:3:14: services.a.timeout: ${HOME}: an overlay can't use variables; write $$ for a plain $"},
		{"services: {a: {timeout: \"${HOME:-1s}\"}}", "overlay:1:25: services.a.timeout: ${HOME}: an overlay can't use variables; write $$ for a plain $"},
		{"services: {a: }", "overlay:1:12: services.a: empty; an overlay sets values, and an empty list is []"},
		{"services:", "overlay:1:1: services: empty; an overlay sets values, and an empty list is []"},
		{"routes: [null]", "overlay:1:10: routes[0]: empty; an overlay sets values, and an empty list is []"},
		{"services: {a: {hedge: {min_delay: 1s}}}", "overlay:1:35: services.a.hedge.min_delay: 1s is more than max_delay, 20ms"},
		{"routes: [{service: none}]", "overlay:1:20: routes[0].service: there is no service \"none\"; expected one of a, b"},
		{"services: {a: {max_pending: 1}, a: {}}", "overlay:1:33: key \"a\" is already set in line 1"},
		{strings.Repeat("#", maxFile+1), "overlay: larger than 1048576 bytes; not a configuration file?"},
	} {
		_, err := laid(c.text)
		if err == nil || err.Error() != c.want {
			t.Errorf("%.80s:\ngot  %v\nwant %s", c.text, err, c.want)
		}
	}
}

// TestLayKeepsFile: errors of the file stay errors, whatever the overlay sets.
func TestLayKeepsFile(t *testing.T) {
	over := &Overlay{Name: "overlay", Text: []byte("services: {a: {timeout: 1s}}")}
	for _, file := range []string{"", "[]", "text", "services: [", "services: []", "unknown: 1"} {
		if _, err := ParseWith("file", []byte(file), environment, over); err == nil || !strings.HasPrefix(err.Error(), "file:") {
			t.Errorf("%q: %v", file, err)
		}
	}
}

// TestFixedKeys: no overlay sets a fixed key, in any spelling. The same overlay is refused without a file.
func TestFixedKeys(t *testing.T) {
	for _, key := range fixed {
		steps := strings.Split(key, ".")
		for _, value := range []string{"x", "{}", "{address: \"0.0.0.0:1\"}", "[]", "[{}]", "~"} {
			text := value
			for _, step := range slices.Backward(steps) {
				switch {
				case step == "*" && steps[0] == "routes":
					text = "[" + text + "]"
				case step == "*":
					text = "{a: " + text + "}"
				default:
					text = "{" + step + ": " + text + "}"
				}
			}
			refusedAsFixed(t, text)
		}
	}
	for _, text := range []string{
		"\"admin\": {address: \"0.0.0.0:1\"}",
		"? admin\n: {address: \"0.0.0.0:1\"}",
		"services: {a: &x {max_queue: 1}, b: {tls: {}, <<: *x}}",
		"services:\n  a: {<<: {tls: {ca: system}}}",
		"services: {a: {<<: [{max_queue: 1}, {endpoints: []}]}}",
		"services: {unknown: {allow: {enforce: false}}}",
		"<<: {admin: {}}",
		"services: {<<: {a: {tls: {}}}}",
	} {
		refusedAsFixed(t, text)
	}
}

func refusedAsFixed(t *testing.T, text string) {
	t.Helper()
	for name, err := range map[string]error{
		"alone":  CheckOverlay(&Overlay{Name: "overlay", Text: []byte(text)}),
		"a file": func() error { _, err := laid(text); return err }(),
	} {
		var errs Errors
		if !errors.As(err, &errs) || !slices.ContainsFunc(errs, func(e Error) bool { return e.Fixed && e.File == "overlay" }) {
			t.Errorf("%s, on %s: %v", text, name, err)
		}
	}
}

// TestAttacks: what a writer of overlays might try on a fleet is refused, on a sidecar and by "remora fleet set".
func TestAttacks(t *testing.T) {
	for _, c := range []struct{ name, text string }{
		{"open the admin API to everybody", `admin: {address: "0.0.0.0:9901"}`},
		{"remove its token", `admin: {token: ""}`},
		{"serve profiles", `admin: {profiles: true}`},
		{"drop TLS towards endpoints", `services: {a: {tls: {ca: ""}}}`},
		{"trust any authority", `services: {a: {tls: {ca: system, peers: []}}}`},
		{"drop TLS of a listener", `listeners: [{name: l, address: "127.0.0.1:1", protocol: http}]`},
		{"open another listener", `listeners: [{name: x, address: "0.0.0.0:1", protocol: http, service: a}]`},
		{"drop allow rules of a service", `services: {a: {allow: {enforce: false}}}`},
		{"drop allow rules of a route", `routes: [{service: a, allow: {enforce: false}}]`},
		{"send requests elsewhere", `services: {a: {endpoints: ["192.0.2.1:80"]}}`},
		{"find endpoints elsewhere", `services: {a: {discover: etcd}}`},
		{"use another registry", `registry: {etcd: {endpoints: ["192.0.2.1:2379"]}}`},
		{"stop the overlays", `config: {etcd: ""}`},
		{"register another address", `register: [{service: a, listener: l, advertise: "192.0.2.1:80"}]`},
		{"send health checks elsewhere", `services: {a: {check: {tcp: true, port: 22}}}`},
		{"write files", `access_log: {path: /etc/cron.d/x}`},
		{"send spans elsewhere", `tracing: {endpoint: "http://192.0.2.1:4318"}`},
		{"speak another protocol", `services: {a: {protocol: opaque}}`},
		{"be another node", `node: {id: x, zone: z}`},
		{"by an alias", "x: &x {tls: {ca: system}}\nservices: {a: *x}"},
		{"by a merge key", `services: {a: {<<: {tls: {ca: system}}}}`},
		{"by an escape", `"\x61dmin": {address: "0.0.0.0:9901"}`},
	} {
		t.Run(c.name, func(t *testing.T) { refusedAsFixed(t, c.text) })
	}
}

// TestLayDropsNoRules: routes of an overlay don't replace routes with allow rules.
func TestLayDropsNoRules(t *testing.T) {
	file := strings.Replace(layFile, "{service: a}]", "{service: a, allow: {rules: [{method: [GET]}]}}]", 1)
	_, err := ParseWith("file", []byte(file), environment, &Overlay{Name: "overlay", Text: []byte("\nroutes: [{service: a}]")})
	const want = "overlay:2:1: routes: routes of the file have allow rules, which other routes would drop; expected no routes in an overlay"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
}

// mayChange has the keys of the file, of a service and of a route that an overlay may set. A key that is neither here
// nor in fixed needs a decision: what could a writer of overlays do with it?
var mayChange = map[string]string{
	"":            "via services routes limits timeouts",
	"services.*.": "serialization lb probe timeout_header timeout idempotent priority retry hedge connect_timeout idle_timeout cancel max_pending max_concurrency max_queue check outlier breaker rate_limit",
	"routes.*.": "match service rewrite redirect respond request_headers response_headers rate_limit fault mirror fallback cache collapse " +
		"timeout idempotent priority retry hedge",
}

// TestEveryKeyIsDecided: each key of the file, of a service and of a route is fixed, or an overlay may change it.
func TestEveryKeyIsDecided(t *testing.T) {
	for prefix, fields := range map[string][]field{
		"": fieldsOf(reflect.TypeFor[Config]()), "services.*.": fieldsOf(reflect.TypeFor[Service]()), "routes.*.": fieldsOf(reflect.TypeFor[Route]()),
	} {
		may := strings.Fields(mayChange[prefix])
		for _, f := range fields {
			if isFixed := slices.Contains(fixed, prefix+f.name); isFixed == slices.Contains(may, f.name) {
				t.Errorf("%s%s is fixed: %v; and it is in the list of keys that may change: %v", prefix, f.name, isFixed, !isFixed)
			}
		}
	}
}

// TestRestartsAreFixed: a key that takes effect only at a restart is fixed: otherwise a revision that a sidecar has refused
// would be in use after its restart.
func TestRestartsAreFixed(t *testing.T) {
	for _, s := range settings(fieldTexts(t)) {
		isFixed := slices.ContainsFunc(fixed, func(key string) bool { return s.key == key || strings.HasPrefix(s.key, key+".") })
		if s.reload == "restart" && !isFixed {
			t.Errorf("%s takes effect at a restart, and is not fixed", s.key)
		}
	}
}

// TestFixedKeysPage: docs/fleet.md lists the fixed keys.
func TestFixedKeysPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/fleet.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range fixed {
		if !strings.Contains(string(page), fmt.Sprintf("`%s`", key)) {
			t.Errorf("docs/fleet.md lacks %s", key)
		}
	}
}

// FuzzLay: whatever an overlay says, it is refused, or no fixed key has changed.
func FuzzLay(f *testing.F) {
	for _, key := range fixed {
		f.Add(strings.NewReplacer("*", "a", ".", ": {").Replace(key) + ": x" + strings.Repeat("}", strings.Count(key, ".")))
	}
	for _, text := range []string{
		"services: {a: {hedge: {mode: on}}}", "routes: [{service: a, allow: {}}]", "services: {a: &x {tls: {}}, b: *x}", "services: {<<: {a: {allow: {}}}}",
		"x: &x {tls: {ca: system}}\nservices:\n  a: *x", "? services\n: {a: {endpoints: []}}", "\"\\x61dmin\": {address: \"\"}", "--- {}\n--- {}",
	} {
		f.Add(text)
	}
	file, err := Parse("file", []byte(layFile), environment)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := laid(text)
		if err != nil {
			return
		}
		for name, of := range map[string]func(*Config) any{
			"node": func(c *Config) any { return c.Node }, "loops": func(c *Config) any { return c.Loops }, "engine": func(c *Config) any { return c.Engine },
			"log": func(c *Config) any { return c.Log }, "admin": func(c *Config) any { return c.Admin }, "registry": func(c *Config) any { return c.Registry },
			"config": func(c *Config) any { return c.Overlays }, "listeners": func(c *Config) any { return c.Listeners }, "register": func(c *Config) any { return c.Register },
			"access_log": func(c *Config) any { return c.AccessLog }, "tracing": func(c *Config) any { return c.Tracing }, "services": fixedOfServices, "routes": rulesOfRoutes,
			"limits": func(c *Config) any {
				return []int{c.Limits.Connections, c.Limits.PerSource, c.Limits.AdminConnections, int(c.Timeouts.Detect)}
			},
		} {
			if !reflect.DeepEqual(of(file), of(got)) {
				t.Errorf("%s: %+v, in the file %+v", name, of(got), of(file))
			}
		}
	})
}

// fixedOfServices returns the values of the services' fixed keys.
func fixedOfServices(c *Config) any {
	all := map[string]any{}
	for name, s := range c.Services {
		all[name] = []any{s.Discover, s.Combine, s.Endpoints, s.Opaque, s.Protocol, s.ProxyProtocol, s.Check.Host, s.Check.Port, s.Allow, s.TLS}
	}
	return all
}

// rulesOfRoutes returns the allow rules of the routes.
func rulesOfRoutes(c *Config) any {
	var all []AllowRule
	for i := range c.Routes {
		all = append(all, c.Routes[i].Allow.Rules...)
	}
	return all
}
