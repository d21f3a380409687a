package config

import (
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the expected errors in testdata")

// environment is what the files in testdata may refer to.
func environment(name string) (string, bool) {
	value, ok := map[string]string{
		"POD_IP": "10.0.0.5", "WORD": "many", "EMPTY": "", "FOUR": "4", "YAML": "{a: 1}\nb: [", "NESTED": "${FOUR}",
	}[name]
	return value, ok
}

// parseFile parses a file of testdata under its base name.
func parseFile(t *testing.T, file string) (*Config, error) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return Parse(filepath.Base(file), data, environment)
}

// TestErrors holds every file of testdata against the errors it should have: a
// file without .errors beside it has none.
func TestErrors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("found %d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			got := ""
			if _, err := parseFile(t, file); err != nil {
				got = err.Error() + "\n"
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".errors"
			if *update && got != "" {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got:\n%s\nwant:\n%s", got, want)
			}
		})
	}
}

// TestFull checks what the design's example means.
func TestFull(t *testing.T) {
	c, err := parseFile(t, "testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Node.ID = "api-1"
	want.Registry.Etcd.Endpoints = []string{"127.0.0.1:2379"}
	want.Listeners = []Listener{
		{Name: "egress", Address: "127.0.0.1:15001", Protocol: ProtocolHTTP, Transparent: true},
		{Name: "ingress", Address: "0.0.0.0:15006", Protocol: ProtocolLink, Service: "local", Insecure: true, Connections: 256},
	}
	compute, local := DefaultService("compute"), DefaultService("local")
	compute.Endpoints, compute.Check.TCP = []Endpoint{}, true
	local.Discover, local.Protocol, local.MaxConcurrency = DiscoverStatic, ProtocolHTTP, 64
	local.Endpoints = []Endpoint{{Address: "127.0.0.1:8080", Weight: 1}}
	want.Services = map[string]*Service{"compute": compute, "local": local}
	overridden := DefaultPolicy()
	overridden.Timeout, overridden.Idempotent, overridden.Hedge.Mode = 500*time.Millisecond, true, HedgeOn
	overridden.Retry.On = []string{"connect", "refused", "reset", "5xx", "503"}
	want.Routes = []Route{
		{
			Match:   Match{Host: "compute", Path: "/v1/", Method: []string{"GET", "POST"}, Header: map[string]string{}},
			Service: "compute", Policy: overridden,
		},
		{Service: "compute", Policy: DefaultPolicy()},
	}
	want.Register = []Register{{
		Service: "compute", Listener: "ingress", Advertise: "10.0.0.5:15006", Weight: 1,
		Check: Check{HTTP: "/healthz", Interval: 2 * time.Second, Timeout: 500 * time.Millisecond, Healthy: 1, Unhealthy: 4},
	}}
	want.Tracing.Headers = map[string]string{}
	want.AccessLog = AccessLog{
		Path: "/var/log/remora/access.log", Sample: 0.01, Slow: 100 * time.Millisecond, Failed: true, Buffer: 4 << 20,
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("got:\n%+v\nwant:\n%+v", c, want)
	}
}

// TestRoutePolicy checks that a route changes what it sets, and nothing else of
// its service's policy, wherever in the file the service stands.
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
	if s.Timeout != 2*time.Second || s.Hedge.MaxDelay != 50*time.Millisecond || len(s.Retry.On) != 2 {
		t.Errorf("the service's own policy changed: %+v", s)
	}
}

func TestMerge(t *testing.T) {
	c, err := parseFile(t, "testdata/merge.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for name, timeout := range map[string]time.Duration{"a": time.Second, "b": 2 * time.Second, "c": time.Second} {
		s := c.Services[name]
		if s.Name != name || s.Timeout != timeout || s.MaxQueue != 7 || s.Endpoints[0].Address != "a:1" {
			t.Errorf("service %s: %+v", name, s)
		}
	}
}

func TestExpand(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"${FOUR}", "4"},
		{"a${FOUR}b${FOUR}", "a4b4"},
		{"${EMPTY}", ""},
		{"${EMPTY:-x}", "x"},
		{"${NONE:-}", ""},
		{"${NONE:-a:-b}", "a:-b"},
		{"$${FOUR}", "${FOUR}"},
		{"$$$${FOUR}", "$${FOUR}"},
		{"$$${FOUR}", "$4"},
		{"pa$word$", "pa$word$"},
		{"${NESTED}", "${FOUR}"}, // what a variable holds is not expanded
		{"${NONE}", "error"},
		{"${}", "error"},
		{"${4}", "error"},
		{"${A B}", "error"},
		{"${A", "error"},
		{"${NONE:-${FOUR}}", "error"},
	} {
		got, err := expand(c.in, environment)
		if err != nil {
			got = "error"
		}
		if got != c.want {
			t.Errorf("expand(%q) = %q, %v; want %q", c.in, got, err, c.want)
		}
	}
}

// TestExpandedStructure checks that a variable can't add to the file's
// structure, and that quotes around one don't make it a string.
func TestExpandedStructure(t *testing.T) {
	c := mustParse(t, `{node: {id: "a", zone: "${YAML}"}, loops: "${FOUR}"}`)
	if c.Node.Zone != "{a: 1}\nb: [" || c.Loops != 4 {
		t.Errorf("got zone %q, loops %d", c.Node.Zone, c.Loops)
	}
	if _, err := Parse("x", []byte(`loops: "4"`), environment); err == nil {
		t.Error("a number in quotes passed")
	}
}

func TestEmpty(t *testing.T) {
	for _, text := range []string{"{}", "\ufeff{}", "services:\nroutes:\nlog:\nlimits: {}\n"} {
		if c := mustParse(t, text); !reflect.DeepEqual(c, Default()) {
			t.Errorf("%q: got %+v", text, c)
		}
	}
}

// TestNothing: a file that was emptied is refused, so a reload leaves what there is.
func TestNothing(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "null\n", "---\n", "\ufeff"} {
		if _, err := Parse("f", []byte(text), environment); err == nil || err.Error() != "f:1:1: empty; expected a configuration" {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// TestLongValues: an error shows the beginning of what is wrong, in whole characters.
func TestLongValues(t *testing.T) {
	long := strings.Repeat("é", 100_000)
	for _, text := range []string{"loops: " + long, "listeners: [{name: l, address: " + long + "}]", long + ": 1"} {
		_, err := Parse("f", []byte(text), environment)
		if err == nil {
			t.Fatalf("%.20q: no error", text)
		}
		for _, line := range strings.Split(err.Error(), "\n") {
			if len(line) > 2*maxShown+100 || !utf8.ValidString(line) {
				t.Errorf("%.20q: a line of %d bytes: %.50q", text, len(line), line)
			}
		}
	}
}

// TestEdges pins down which side of a bound a value is on.
func TestEdges(t *testing.T) {
	const listeners = "services: {s: {discover: static, endpoints: [\"a:1\"]}}\nlisteners: "
	const mutual = `{cert: c, key: k, ca: a, peers: ["spiffe://d/x"]}`
	const etcd = `registry: {etcd: {endpoints: `
	deep := strings.Repeat("[", maxDepth-2) + strings.Repeat("]", maxDepth-2)
	for _, c := range []struct {
		text string
		want string // in the error; "": none
	}{
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
		{"access_log: {path: stdout}", ""},
		{"access_log: {}", ""},
		{"access_log: {path: /a, sample: 0, slow: 1ms}", ""},
		{"access_log: {path: /a, sample: 0, failed: true}", ""},
		{"access_log: {path: /a, sample: 0}", "no request would be logged"},
		{"access_log: {path: /a, sample: 1.5}", "[0,1]"},
		{"access_log: {path: /a, buffer: 1KiB}", "at least 64KiB"},
		{"access_log: {failed: true}", "expected a file, stdout or stderr"},
		{"timeouts: {write: 999us}", "at least 1ms"},
		{"admin: {address: \"[::1]:9901\"}", ""},
		{"admin: {address: \"[::]:9901\"}", "loopback"},
		{"admin: {address: \"[::]:9901\", token: x}", ""},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: ` + mutual + `}]`, ""},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, insecure: true, tls: ` + mutual + `}]`, "contradicts"},
		{listeners + `[{name: l, address: "a:1", protocol: http, service: s, tls: ` + mutual + `}]`, "not built"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, ca: a}}]`, "tls.peers: missing"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: {cert: c, key: k, peers: [x]}}]`, "tls.ca: missing"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, tls: {ca: a, peers: [x]}}]`, "tls.cert: missing"},
		{`services: {s: {discover: static, endpoints: ["a:1"], tls: ` + mutual + `}}` + "\nlisteners: [{name: l, address: \"a:1\", protocol: tcp, service: s}]", ""},
		{`services: {s: {discover: static, endpoints: ["a:1"], protocol: tcp, tls: {peers: [x]}}}` + "\nlisteners: [{name: l, address: \"a:1\", protocol: tcp, service: s}]", ""},
		{`services: {s: {discover: static, endpoints: ["a:1"], protocol: tcp, tls: {ca: a}}}`, "tls.peers: missing"},
		{`services: {s: {discover: static, endpoints: ["a:1"], tls: {ca: a, peers: [x]}}}`, "tls.cert: missing"},
		{listeners + `[{name: l, address: "a:1", protocol: tcp, service: s, tls: ` + mutual + `}]`, "not built"},
		{`services: {s: {discover: static, endpoints: ["a:1"], tls: ` + mutual + `}}`, ""},
		{`services: {s: {discover: static, endpoints: ["a:1"], protocol: http, tls: ` + mutual + `}}`, "not built"},
		{etcd + `["https://a:1"]}}`, ""},
		{etcd + `["a:1"], tls: {ca: x}}}`, ""},
		{etcd + `["https://a:1"], tls: {cert: x, key: y, peers: ["spiffe://d/*", "dns:a.b", "*.b"]}}}`, ""},
		{etcd + `["http://a:1"], tls: {ca: x}}}`, "expected https"},
		{etcd + `["https://a:1", "b:1"]}}`, "expected https"},
		{etcd + `["https://a:1"], tls: {cert: x}}}`, "together"},
		{etcd + `["https://a:1"], tls: {peers: ["*"]}}}`, "got \"*\""},
		{"admin: {token: \"a b\"}", "without spaces"},
		{"admin: {address: \"\"}", ""},
		{listeners + `[{name: l, address: "127.0.0.1:1", protocol: link, service: s}]`, ""},
		{listeners + `[{name: l, address: "[::ffff:127.0.0.1]:1", protocol: link, service: s}]`, ""},
		{listeners + `[{name: l, address: "localhost:1", protocol: link, service: s}]`, ""},
		{listeners + `[{name: l, address: ":1", protocol: link, service: s}]`, "insecure: true"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s}]`, "insecure: true"},
		{listeners + `[{name: l, address: "a:1", protocol: link, service: s, insecure: true}]`, ""},
		{listeners + `[{name: l, address: "a:0", protocol: http, service: s}, {name: m, address: "a:0", protocol: http, service: s}]`, ""},
		{"#" + strings.Repeat("x", maxFile-1), "empty"},
		{"#" + strings.Repeat("x", maxFile), "larger than"},
		{"x: " + deep, "unknown key"},
		{"x: [[" + deep + "]]", "nested more than 32 deep"},
		{strings.Repeat("- ", 1000), "nested more than 32 deep"},
		{strings.Repeat("[", 1000), "not valid YAML"},
		{strings.Repeat("{", 1000), "not valid YAML"},
		{"node: &a {id: &b [*a, *b]}", "inside its own anchor"},
		{"loops: 1\nloops: 2", "given before, in line 1"},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], rate_limit: {burst: 5}}}", "a burst alone limits nothing"},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], rate_limit: {rate: 5}, breaker: {consecutive: 3}}}", ""},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], breaker: {half_open: 0}}}", "half_open"},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], max_concurrency: auto}}", ""},
		{"services: {s: {discover: static, endpoints: [\"a:1\"], max_concurrency: automatic}}", "number or auto"},
	} {
		got := ""
		if _, err := Parse("test", []byte(c.text), environment); err != nil {
			got = err.Error()
		}
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%.100q: got %.200q, want %q", c.text, got, c.want)
		}
	}
}

// TestSecrets checks that no error and no printed configuration gives away a
// secret.
func TestSecrets(t *testing.T) {
	c := mustParse(t, `{admin: {token: hunter2}, registry: {etcd: {endpoints: ["a:1"], username: u, password: hunter2}},
		tracing: {headers: {authorization: Bearer hunter2}}}`)
	data, err := c.YAML()
	if err != nil || strings.Contains(string(data), "hunter2") || !strings.Contains(string(data), redacted) {
		t.Errorf("%v\n%s", err, data)
	}
	_, err = Parse("x", []byte("admin: {token: hunter2}\nregistry: {etcd: {password: hunter2}}\n"+
		"tracing: {headers: {a: \"hunter2\\n\"}}\n"), environment)
	if err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// TestYAML checks that what is printed reads back as the same.
func TestYAML(t *testing.T) {
	for _, file := range []string{"testdata/full.yaml", "testdata/merge.yaml"} {
		c, err := parseFile(t, file)
		if err != nil {
			t.Fatal(err)
		}
		c.Node.Zone = "a $b ${c} $$: #\n"
		roundTrip(t, c)
	}
}

// roundTrip prints and reads c.
func roundTrip(t *testing.T, c *Config) {
	t.Helper()
	data, err := c.YAML()
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse("printed", data, environment)
	if err != nil {
		t.Fatalf("%v\n%s", err, data)
	}
	second, err := again.YAML()
	if err != nil || string(second) != string(data) {
		t.Errorf("%v\nfirst:\n%s\nsecond:\n%s", err, data, second)
	}
}

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("test", []byte(text), environment)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// FuzzParse checks that no file makes Parse panic, that every error has a
// place, and that a good one survives being printed.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("fuzz", data, environment)
		if err == nil {
			if c.Registry.Etcd.Password == "" {
				roundTrip(t, c)
			}
			return
		}
		var errs Errors
		if !errors.As(err, &errs) || len(errs) == 0 {
			t.Fatalf("got %T %v", err, err)
		}
		for _, e := range errs {
			if e.Text == "" || e.Line < 0 || e.Line > 0 && e.Column < 1 {
				t.Errorf("bad error %+v", e)
			}
		}
	})
}
