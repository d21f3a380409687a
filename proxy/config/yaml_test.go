package config

import (
	"strings"
	"testing"
)

// TestYAML checks that a printed configuration parses to the same values.
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

// roundTrip prints c, parses the result and prints it again.
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

// TestYAMLRules checks that rules are printed without the conditions that they lack, and that
// a number of proxies is read back.
func TestYAMLRules(t *testing.T) {
	c := mustParse(t, withListener(`address: "a:1", protocol: http, service: s, forwarded: {trust: 2}, allow: {rules: [{path: [/a]}, {method: [GET]}]}`))
	roundTrip(t, c)
	data, _ := c.YAML()
	if text := string(data); strings.Contains(text, " from:") || strings.Count(text, " method:") != 1 {
		t.Errorf("printed:\n%s", text)
	}
}

// TestYAMLAuto: a number that may be automatic is printed as what it is.
func TestYAMLAuto(t *testing.T) {
	for text, want := range map[string]int{"auto": MaxConcurrencyAuto, "7": 7, "0": 0} {
		c := mustParse(t, `{services: {s: {discover: static, endpoints: ["10.0.0.1:80"], max_concurrency: `+text+`}}}`)
		data, err := c.YAML()
		if err != nil {
			t.Fatal(err)
		}
		if again := mustParse(t, string(data)); again.Services["s"].MaxConcurrency != want {
			t.Errorf("%s: %d after printing, want %d", text, again.Services["s"].MaxConcurrency, want)
		}
	}
}
