package config

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

var update = flag.Bool("update", false, "rewrite the expected errors in testdata")

// environment has the variables of the files in testdata.
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

// TestErrors compares the errors of each file in testdata with its .errors file. A file
// without one must have no errors.
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

// TestFull checks the values of the design's example.
func TestFull(t *testing.T) {
	c, err := parseFile(t, "testdata/full.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Default()
	want.Node.ID = "api-1"
	want.Registry.Etcd().Endpoints = []string{"127.0.0.1:2379"}
	egress, ingress := withDefaults[Listener](), withDefaults[Listener]()
	egress.Name, egress.Address, egress.Protocol, egress.Transparent = "egress", "127.0.0.1:15001", ProtocolHTTP, true
	egress.Path = Path{Normalize: true, EscapedSlashes: SlashesKeep}
	ingress.Name, ingress.Address, ingress.Protocol, ingress.Service = "ingress", "0.0.0.0:15006", ProtocolLink, "local"
	ingress.Insecure, ingress.Connections = true, 256
	want.Listeners = []Listener{egress, ingress}
	compute, local := DefaultService("compute"), DefaultService("local")
	compute.Endpoints, compute.Check.TCP = []Endpoint{}, true
	local.Discover, local.Protocol, local.MaxConcurrency = []string{DiscoverStatic}, ProtocolHTTP, 64
	local.Endpoints = []Endpoint{{Address: "127.0.0.1:8080", Weight: 1}}
	want.Services = map[string]*Service{"compute": compute, "local": local}
	overridden := DefaultPolicy()
	overridden.Timeout, overridden.Idempotent, overridden.Hedge.Mode = 500*time.Millisecond, []string{IdempotentTrue}, HedgeOn
	overridden.Retry.On = []string{"connect", "refused", "reset", "5xx", "503"}
	overridden.Retry.PerTryTimeout = 100 * time.Millisecond
	matching, other := withDefaults[Route](), withDefaults[Route]()
	matching.Match = Match{Host: "compute", Path: "/v1/", Method: []string{"GET", "POST"}, Header: map[string]Condition{}}
	matching.Service, matching.Policy, other.Service = "compute", overridden, "compute"
	want.Routes = []Route{matching, other}
	want.Register = []Register{{
		Service: "compute", Listener: "ingress", Advertise: "10.0.0.5:15006", Weight: 1,
		Check: Check{HTTP: "/healthz", Interval: 2 * time.Second, Timeout: 500 * time.Millisecond, Healthy: 1, Unhealthy: 4, OnDown: "keep"},
	}}
	want.Admin.Profiles = true
	want.Tracing.Headers = map[string]string{}
	want.AccessLog = AccessLog{
		Path: "/var/log/remora/access.log", Format: AccessJSON, Sample: 0.01, Slow: 100 * time.Millisecond, Failed: true, Buffer: 4 << 20,
	}
	if !c.Equal(want) {
		t.Errorf("got:\n%+v\nwant:\n%+v", c, want)
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

// TestLoad: a file is read with the variables of the process, an overlay and further checks. One that can't be read is no
// wrong file.
func TestLoad(t *testing.T) {
	file := filepath.Join(t.TempDir(), "remora.yaml")
	t.Setenv("REMORA_TEST_ZONE", "west")
	if err := os.WriteFile(file, []byte("node: {zone: \"${REMORA_TEST_ZONE}\"}\nlimits: {headers: 7}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := Load(file)
	if err != nil || c.Node.Zone != "west" || c.Limits.Headers != 7 {
		t.Fatalf("%+v, %v", c, err)
	}
	var inspected *Config
	inspect := func(c *Config, report func(path, text string)) { inspected = c }
	c, err = LoadWith(file, &Overlay{Name: "overlay", Text: []byte("limits: {headers: 8}")}, inspect)
	if err != nil || c.Node.Zone != "west" || c.Limits.Headers != 8 || inspected != c {
		t.Errorf("%+v, %v", c, err)
	}
	_, err = Load(file, func(_ *Config, report func(path, text string)) { report("node.zone", "no such zone") })
	if want := file + ":1:14: node.zone: no such zone"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	_, err = Load(file + ".gone")
	if errs := (Errors)(nil); !errors.Is(err, os.ErrNotExist) || errors.As(err, &errs) {
		t.Errorf("a file that is not there: %v", err)
	}
}

// TestYAMLShapes: which keys, merges and documents a file may have.
func TestYAMLShapes(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"? loops\n: 1", ""},
		{"node: {? id : a}", ""},
		{"<<: {loops: 1}", ""},
		{"<<: [{loops: 1}, {loops: x}]", ""}, // the first has the key
		{"loops: 1\n<<: {loops: x}", ""},
		{"<<: [{loops: x}, {loops: 1}]", `f:1:14: loops: expected a whole number, got "x"`},
		{"<<: [{loops: 1}, 7]", "f:1:18: expected a mapping to merge"},
		{"<<: [[{loops: 1}]]", "f:1:6: expected a mapping to merge"},
		{"<<: 7", "f:1:5: expected a mapping to merge, as in <<: *name"},
		{"loops: 1\n<<: [!x 1]", "f:2:6: a YAML tag is not supported; leave it out"},
		{"~: a", "f:1:1: expected a plain name as key"},
		{"loops: .inf", `f:1:8: loops: expected a whole number, got ".inf"`},
		{"loops: .nan", `f:1:8: loops: expected a whole number, got ".nan"`},
		{"loops: |\n  1", `f:1:8: loops: expected a whole number, got "1" in quotes, which makes it a string`},
		{"loops: '1'", `f:1:8: loops: expected a whole number, got "1" in quotes, which makes it a string`},
		{"loops: '${FOUR}'", ""},
		{"timeouts: {idle: '1s'}", ""},
		{"limits: {message: '64KiB'}", ""},
		{"loops: &x 1\nlimits: {headers: *x}", ""},
		{"loops: &x 300\nlimits: {headers: *x}", `f:1:11: loops: expected at most 256, got "300"`},
		{"loops: 1\nlimits: &x {headers: 0}\ntimeouts: *x", "f:2:13: timeouts.headers: unknown key; did you mean header?\n" +
			"f:2:22: limits.headers: expected at least 1, got \"0\""},
		{"loops: 1\n...\nloops: 2", "f:3:1: a second document; expected one document per file"},
		{"loops: 1\n---\nloops: 2\n---\nloops: 3", "f:3:1: a second document; expected one document per file"},
		{"loops: 1\n---\n", ""},
		{"loops: [- 1]", "f:1:8: loops: expected a whole number, got a list"},
		{"# a document of its own\n---\nloops: x", `f:3:8: loops: expected a whole number, got "x"`},
		{"{}\r| a", "f:2:1: not valid YAML: value is not allowed in this context; expected the indentation of the lines around it"}, // a line ends with a carriage return, too
		{"routes: 7\nlisteners: [{name: l, address: \"a:1\", protocol: http}]", "f:1:9: routes: expected a list, in brackets or with - before each item; got \"7\""},
		{"services: {s: {discover: [x], endpoints: [\"a:1\"]}}", "f:1:27: services.s.discover[0]: expected one of etcd, file, kubernetes, zookeeper, static, got \"x\""},
		{"node: {id: \"${A}${B}\"}", "f:1:12: node.id: environment variable A is not set; ${A:-value} gives a default"},
		{"node: {id: \"${POD_IP}${B}\"}", "f:1:12: node.id: environment variable B is not set; ${B:-value} gives a default"},
		{"node: {id: \"${EMPTY}\"}", `f:1:12: node.id: expected a name without spaces, / and @, got ""`},
	} {
		_, err := Parse("f", []byte(c.text), environment)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || err != nil && got != c.want {
			t.Errorf("%s\ngives %v\nwant  %s", c.text, err, c.want)
		}
	}
}

// TestDefaultProtocol: what endpoints speak depends on who lists them, unless the file says so.
func TestDefaultProtocol(t *testing.T) {
	c := mustParse(t, `
registry: {etcd: {endpoints: ["a:1"]}}
services:
  file: &file {endpoints: ["a:1"], discover: static}
  merged: {<<: *file, timeout: 1s}
  sidecar: {<<: *file, protocol: link}
  etcd: {discover: etcd}
  none:
`)
	for name, want := range map[string]string{
		"file": ProtocolHTTP, "merged": ProtocolHTTP, "sidecar": ProtocolLink, "etcd": ProtocolLink, "none": ProtocolLink,
	} {
		if got := c.Services[name].Protocol; got != want {
			t.Errorf("service %s speaks %s, want %s", name, got, want)
		}
	}
}

// TestDefaults: a file that sets nothing has the defaults.
func TestDefaults(t *testing.T) {
	for _, text := range []string{"{}", "\ufeff{}", "services:\nroutes:\nlog:\nlimits: {}\n"} {
		if c := mustParse(t, text); !c.Equal(Default()) {
			t.Errorf("%q: got %+v", text, c)
		}
	}
}

// TestEmptyFile: a file without content is refused, so a reload changes nothing.
func TestEmptyFile(t *testing.T) {
	for _, text := range []string{"", "\n", "# nothing\n", "null\n", "---\n", "\ufeff"} {
		if _, err := Parse("f", []byte(text), environment); err == nil || err.Error() != "f:1:1: empty; expected a configuration" {
			t.Errorf("%q: got %v", text, err)
		}
	}
}

// TestLongValues: an error shows the beginning of a long value, in whole characters.
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

func mustParse(t *testing.T, text string) *Config {
	t.Helper()
	c, err := Parse("test", []byte(text), environment)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return c
}

// FuzzParse checks that Parse does not panic, that each error has a position, and that
// a valid configuration is the same after it was printed and parsed.
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
			if c.Registry.Etcd().Password == "" {
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

// TestKeyWithoutMeaning: the check of a registration has no on_down, whatever its value. What the effective
// configuration shows can be read again.
func TestKeyWithoutMeaning(t *testing.T) {
	const text = `
registry: {etcd: {endpoints: ["http://127.0.0.1:2379"]}}
listeners: [{name: in, address: ":8080", protocol: link, insecure: true, service: app}]
services: {app: {discover: static, endpoints: ["127.0.0.1:8081"], check: {tcp: true, on_down: %s}}}
register: [{service: app, listener: in, advertise: "192.0.2.1:8080", check: {tcp: true%s}}]
`
	none := func(string) (string, bool) { return "", false }
	for _, value := range []string{"keep", "close"} {
		_, err := Parse("r.yaml", fmt.Appendf(nil, text, value, ", on_down: "+value), none)
		if err == nil || !strings.HasPrefix(err.Error(), "r.yaml:5:89: register[0].check.on_down: has no meaning here; expected one of http, tcp,") {
			t.Errorf("%s: %v", value, err)
		}
		c, err := Parse("r.yaml", fmt.Appendf(nil, text, value, ""), none)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := c.YAML()
		if err != nil || strings.Count(string(shown), "on_down: "+value) != 1 {
			t.Errorf("%s, %v", shown, err)
		}
		if again, err := Parse("r.yaml", shown, none); err != nil || again.Services["app"].Check.OnDown != value {
			t.Errorf("%s: the effective configuration is not read: %v", value, err)
		}
	}
}
