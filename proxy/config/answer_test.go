package config

import (
	"strings"
	"testing"
)

// TestAnswerRules checks redirects, responses and changes of headers.
func TestAnswerRules(t *testing.T) {
	var rules []rule
	for _, r := range []rule{
		{`redirect: {host: b}`, ""},
		{`match: {path: /a}, rewrite: {path: /b}, redirect: {status: 308}`, ""},
		{`redirect: {}`, "routes[0].service: missing; a route needs a service, redirect or respond"},
		{`redirect: {status: 301}`, "routes[0].redirect: leads to the same URL"},
		{`redirect: {host: b, status: 304}`, "redirect.status: expected 301, 302, 303, 307 or 308, got 304"},
		{`redirect: {scheme: ftp}`, `redirect.scheme: expected http or https, got "ftp"`},
		{`redirect: {host: "b/c"}`, `redirect.host: expected a host with or without a port, got "b/c"`},
		{`redirect: {path: b}`, `redirect.path: expected a path that starts with "/", got "b"`},
		{`redirect: {path: //b}`, `redirect.path: expected one "/" at the start`},
		{`match: {path: /a}, rewrite: {path: /b}, redirect: {path: /c}`, "redirect.path: contradicts rewrite.path"},
		{`redirect: {host: b}, service: s`, "routes[0].service: contradicts redirect"},
		{`redirect: {host: b}, respond: {status: 204}`, "respond: contradicts redirect"},
		{`redirect: {host: b}, match: {method: [CONNECT]}`, "match.method: contradicts redirect"},
		{`redirect: {host: b}, match: {service: x}`, "redirect: answers only HTTP requests"},
		{`redirect: {host: b}, rewrite: {host: c}`, "rewrite.host: nothing is sent on"},
		{`respond: {status: 199}`, "respond.status: expected 200 to 599, got 199"},
		{`respond: {status: 600}`, `respond.status: expected at most 599, got "600"`},
		{`respond: {status: 1}`, "respond.status: expected 200 to 599, got 1"},
		{`respond: {status: 304, body: a}`, "respond.body: a response with the status 304 has no body"},
		{`respond: {status: 304}`, ""},
		{`respond: {body: a}`, ""},
		{`respond: {headers: {x: "1"}}`, ""},
		{`redirect: {host: b, status: 307}`, ""},
		{`redirect: {scheme: https}`, ""},
		{`redirect: {path: /b}`, ""},
		{`redirect: {host: b, status: 1}`, "redirect.status: expected 301, 302, 303, 307 or 308, got 1"},
		{`respond: {status: 204, body: a}`, "respond.body: a response with the status 204 has no body"},
		{`respond: {body: ` + strings.Repeat("a", 65537) + `}`, "respond.body: expected at most 64KiB, got 65537 bytes"},
		{`match: {path: /a}, rewrite: {path: /b}, respond: {body: a}`, "respond: contradicts rewrite.path"},
		{`respond: {headers: {content-length: "1"}}`, "respond.headers.content-length: content-length belongs to the connection"},
		{`service: s, rewrite: {host: "a b"}`, "rewrite.host: expected a host"},
		{`service: s, rewrite: {host: "[::1]:80"}`, ""},
		{`service: s, match: {service: x}, rewrite: {host: a}`, "only Dubbo calls come here"},
		{`service: s, request_headers: {set: {x-a: "{host} {{}} {request_id}"}, add: {x-b: a}, remove: [x-c]}`, ""},
		{`service: s, request_headers: {set: {Host: a}}`, "request_headers.set.Host: expected rewrite.host for the host"},
		{`service: s, request_headers: {set: {x-remora-hedge: a}}`, "can't change it"},
		{`service: s, request_headers: {remove: [Transfer-Encoding]}`, "request_headers.remove[0]: Transfer-Encoding belongs"},
		{`service: s, request_headers: {set: {x-a: "s3cret {hosst}"}}`, "request_headers.set.x-a: unknown placeholder; did you mean host?, or {{ for a brace"},
		{`service: s, request_headers: {set: {x-a: "{host"}}`, "a brace without its other half"},
		{`service: s, request_headers: {set: {x-a: "a}"}}`, "a brace without its other half"},
		{`service: s, request_headers: {set: {x-a: "a\nb"}}`, "without line breaks"},
		{`service: s, request_headers: {set: {x-a: ` + strings.Repeat("a", 4097) + `}}`, "expected at most 4096 bytes"},
		{`service: s, request_headers: {set: {x-a: a}, add: {X-A: b}}`, "request_headers.add.X-A: contradicts set"},
		{`service: s, request_headers: {set: {x-a: a, X-A: b}}`, "is listed twice, in another case"},
		{`service: s, response_headers: {set: {x-a: a}, remove: [x-a]}`, "response_headers.remove[0]: needless: set replaces x-a"},
		{`service: s, response_headers: {remove: [x-a, X-A]}`, `response_headers.remove[1]: "X-A" is listed twice`},
		{`service: s, response_headers: {remove: [a b]}`, `expected the name of a header, got "a b"`},
	} {
		rules = append(rules, rule{`{routes: [{` + r.text + `}], services: {s: {discover: static, endpoints: ["a:1"]}}}`, r.want})
	}
	checkRules(t, rules)
}

// TestYAMLEdits checks that values of headers, which may be secrets, are not printed.
func TestYAMLEdits(t *testing.T) {
	c := mustParse(t, `{services: {s: {discover: static, endpoints: ["a:1"]}}, routes: [
  {service: s, match: {path: /a}, request_headers: {set: {x-a: s3cret}, add: {x-b: s3cret}}, response_headers: {set: {x-c: s3cret}}}, {respond: {headers: {x-d: shown}}}]}`)
	data, err := c.YAML()
	if text := string(data); err != nil || strings.Contains(text, "s3cret") || strings.Count(text, "<redacted>") != 3 || !strings.Contains(text, "shown") {
		t.Errorf("%v\n%s", err, text)
	}
}

// FuzzValue: a value is refused, or its parts are its text.
func FuzzValue(f *testing.F) {
	for _, seed := range []string{"", "a {host} b", "{{{path}}}", "}}{{", "{", "}", "{x}", "a{{b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		parts, err := ParseValue(value)
		if err != nil {
			return
		}
		text := ""
		for _, p := range parts {
			if p.Placeholder != "" {
				text += "{" + p.Placeholder + "}"
			} else {
				text += strings.NewReplacer("{", "{{", "}", "}}").Replace(p.Text)
			}
		}
		if text != value {
			t.Errorf("%q has the parts %q", value, parts)
		}
	})
}
