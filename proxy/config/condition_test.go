package config

import (
	"strings"
	"testing"
)

// TestMatchRules checks conditions of routes.
func TestMatchRules(t *testing.T) {
	var rules []rule
	for _, r := range []rule{
		{`host: "*.svc"`, ""},
		{`host: "*"`, `match.host: expected one host, or the end of hosts such as "*.svc", got "*"`},
		{`host: "*."`, `expected the end of hosts such as "*.svc", got "*."`},
		{`host: "*..a"`, `expected the end of hosts`},
		{`host: "*a"`, `expected one host, or the end of hosts`},
		{`host: "a.*.b"`, `expected one host, or the end of hosts`},
		{`host: "*.a:80"`, `expected a host without port`},
		{`host: "[::1]"`, ""},
		{`host: "*.[::1]"`, `expected the end of hosts`},
		{`host: "a/b"`, `expected a host without port`},
		{`host: "a b"`, `expected a host without port`},
		{`host: "a:80"`, `expected a host without port`},
		{`path: /`, ""},
		{`path: /a/.`, "no request has such a path"},
		{`path: "/a#b"`, "no request has such a path"},
		{`path: "/%4"`, "no request has such a path"},
		{`path: "/%GG"`, "no request has such a path"},
		{`path: "/%00"`, "no request has such a path"},
		{`path: "/%7E"`, "no request has such a path"},
		{`path: "/%2f"`, "no request has such a path"},
		{`path: "/%01%7F%2F"`, ""},
		{`regex: "/a(b"`, `test:1:39: routes[0].match.regex: not a regular expression (RE2): missing closing ): "/a(b"`},
		{`regex: "a)|(b"`, `not a regular expression (RE2): unexpected )`},
		{`regex: "` + strings.Repeat("a", 513) + `"`, "expected an expression of 1 to 512 bytes, got 513"},
		{`regex: "(a{100}){10}b"`, "too large: it may take 1"},
		{`regex: "(?i)/a", path: /a`, ""},
		{`regex: "/\\d+(?=a)"`, "invalid or unsupported Perl syntax"},
		{`header: {a: {regex: "["}}`, `match.header.a.regex: not a regular expression (RE2): missing closing ]: "["`},
		{`header: {a: {regex: ""}}`, `match.header.a.regex: expected an expression of 1 to 512 bytes`},
		{`header: {a: {prefix: ""}}`, `match.header.a.prefix: empty; present: true matches every value`},
		{`header: {a: {prefix: "b "}}`, ""},
		{`header: {a: {prefix: " b"}}`, `match.header.a.prefix: expected the value of a header`},
		{`header: {a: {not: " b"}}`, `match.header.a.not: expected the value of a header`},
		{`header: {a: {not: {regex: "("}}}`, `match.header.a.not.regex: not a regular`},
		{`header: {a: {present: false}, b: {not: {present: false}}, c: {exact: ""}}`, ""},
		{`header: {a: {present: yes}}`, `match.header.a.present: expected true or false, got "yes"`},
		{`header: {a: {}}`, `match.header.a: expected one of exact, prefix, regex, present, not, got 0 keys`},
		{`header: {a: {exact: a, not: b}}`, `match.header.a: expected one of exact, prefix, regex, present, not, got 2 keys`},
		{`header: {a: {prefx: a}}`, `match.header.a.prefx: unknown key; did you mean prefix?`},
		{`header: {a: [b]}`, `match.header.a: expected a value, or a mapping such as {prefix: a}; got a list`},
		{`header: {a: }`, `match.header.a: expected a value, or a mapping such as {prefix: a}; got nothing`},
		{`header: {a: {prefix: [b]}}`, `match.header.a.prefix: expected a string, got a list`},
		{`query: {"": a}`, `match.query[""]: expected the name of a parameter`},
		{`query: {a b: " c"}`, ""},
		{`query: {a: {regex: "*"}}`, `match.query.a.regex: not a regular expression (RE2): missing argument to repetition operator: "*"`},
		{`query: {a: b}, service: s`, "nothing can match both"},
		{`method: [GET, ""]`, `match.method[1]: expected a method such as GET, got ""`},
		{`method: ["a b"]`, `match.method[0]: expected a method such as GET, got "a b"`},
		{`method: ["A\tB"], service: s`, `match.method[0]: expected a method such as GET, got "A\tB"`},
		{`method: [get]`, `match.method[0]: expected a method such as GET, got "get"; for a Dubbo method set match.service too`},
		{`method: [get], service: s`, "service s speaks http, and Dubbo calls can't be converted to it"},
	} {
		rules = append(rules, rule{`{routes: [{service: s, match: {` + r.text + `}}], services: {s: {discover: static, endpoints: ["a:1"]}}}`, r.want})
	}
	checkRules(t, rules)
}

// TestYAMLConditions checks that conditions are printed in the form that a file may have.
func TestYAMLConditions(t *testing.T) {
	c := mustParse(t, `{services: {s: {discover: static, endpoints: ["a:1"]}}, routes: [{service: s, match: {
  header: {a: "1", b: {exact: ""}, c: {not: {regex: "$$x{2}"}}, d: {present: false}, e: {not: true}}, query: {a: {prefix: "$$a"}}}}]}`)
	roundTrip(t, c)
	data, _ := c.YAML()
	for _, want := range []string{`a: "1"`, `b: ""`, "regex: $$x{2}", "present: false", `not: "true"`, "prefix: $$a"} {
		if !strings.Contains(string(data), want) {
			t.Errorf("no %q in\n%s", want, data)
		}
	}
}
