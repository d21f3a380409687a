package config

import (
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// compiledSchema is the published schema.
var compiledSchema = sync.OnceValues(func() (*jsonschema.Schema, error) {
	return jsonschema.NewCompiler().Compile(schemaFile)
})

// conforms returns what the schema has against a file.
func conforms(t *testing.T, text string) error {
	t.Helper()
	s, err := compiledSchema()
	if err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return s.Validate(tree)
}

// TestSchemaExamples: the examples of the documentation conform to the schema. So do the valid
// files of other tests: see checkRules.
func TestSchemaExamples(t *testing.T) {
	texts := map[string]string{}
	for _, pattern := range []string{"../../docs/examples/*.yaml", "../../docs/examples/tls/*.yaml", "../../packaging/kubernetes/kustomize/*/remora.yaml", "testdata/full.yaml", "testdata/merge.yaml"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %v", pattern, err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			texts[file] = string(text)
		}
	}
	printed, err := mustParse(t, texts["testdata/full.yaml"]).YAML()
	if err != nil {
		t.Fatal(err)
	}
	texts["what /config shows"] = string(printed)
	for file, text := range texts {
		if err := conforms(t, text); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestSchemaBroken: files with one mistake do not conform, and without it they do.
func TestSchemaBroken(t *testing.T) {
	for _, c := range []struct{ broken, right string }{
		{"loop: 1", "loops: 1"},
		{"loops: many", "loops: 2"},
		{"loops: 257", "loops: 256"},
		{"loops: -1", "loops: 0"},
		{"loops: 1.5", `loops: "${LOOPS}"`},
		{"log: loud", "log:"},
		{"log: [level]", "log: {level: info}"},
		{"log: {level: loud}", `log: {level: "${LEVEL:-info}"}`},
		{"log: {levels: info}", "log: {format: text}"},
		{"limits: {header: 64KB}", "limits: {header: 64KiB}"},
		{"limits: {header: 1}", "limits: {header: 1024}"},
		{"limits: {message: 4 MiB}", `limits: {message: "${N}MiB"}`},
		{"timeouts: {idle: 5}", "timeouts: {idle: 5s}"},
		{"timeouts: {idle: 5 minutes}", "timeouts: {idle: 1h30m}"},
		{"timeouts: {drain: -1s}", "timeouts: {drain: 0}"},
		{"tracing: {sample: 2}", "tracing: {sample: 1}"},
		{"tracing: {headers: [a]}", "tracing: {headers: {a: 1}}"},
		{"listeners: {name: a}", "listeners: []"},
		{"listeners: [{name: a, protocol: http}]", `listeners: [{name: a, protocol: http, address: ":1"}]`},
		{`listeners: [{name: a, protocol: smtp, address: ":1"}]`, `listeners: [{name: a, protocol: link, address: ":1"}]`},
		{`listeners: [{name: a, protocol: http, address: ":1", insecure: 1}]`, `listeners: [{name: a, protocol: link, address: ":1", insecure: true}]`},
		{`listeners: [{name: a, protocol: http, address: ":1", forwarded: {trust: {a: 1}}}]`, `listeners: [{name: a, protocol: http, address: ":1", forwarded: {trust: 1}}]`},
		{`listeners: [{name: a, protocol: http, address: ":1", allow: {rules: []}}]`, `listeners: [{name: a, protocol: http, address: ":1", allow: {rules: [{method: [GET]}]}}]`},
		{"services: [a]", "services: {a: {}}"},
		{"services: {a: {discover: consul}}", "services: {a: {discover: static}}"},
		{"services: {a: {endpoints: [{host: b}]}}", `services: {a: {endpoints: ["b:1", {address: "b:2", weight: 2}]}}`},
		{"services: {a: {max_concurrency: none}}", "services: {a: {max_concurrency: auto}}"},
		{"services: {a: {lb: {policy: fastest}}}", "services: {a: {lb: {policy: random}}}"},
		{"services: {a: {hedge: {budget: 2}}}", "services: {a: {hedge: {budget: 0.9}}}"},
		{"services: {a: {hedge: {delay: [5ms]}}}", "services: {a: {hedge: {delay: 5ms}}}"},
		{"routes: [{service: {name: a}}]", "routes: [{service: [{name: a, weight: 1}]}]"},
		{"routes: [{service: a, match: {hosts: [b]}}]", "routes: [{service: a, match: {host: b}}]"},
		{"register: [{service: a, listener: b}]", `register: [{service: a, listener: b, advertise: "c:1"}]`},
	} {
		if conforms(t, c.broken) == nil {
			t.Errorf("conforms: %s", c.broken)
		}
		if err := conforms(t, c.right); err != nil {
			t.Errorf("%s: %v", c.right, err)
		}
	}
}
