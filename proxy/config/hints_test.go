package config

import (
	"fmt"
	"testing"
)

// TestHints: an error says what the wrong text was probably meant to be, and nothing if that is not known.
func TestHints(t *testing.T) {
	endpoint := func(address string) string {
		return `services: {s: {discover: static, endpoints: ["` + address + `"]}}`
	}
	const at = "f:1:46: services.s.endpoints[0]: expected "
	const host = at + "host:port, an IPv6 host as in [::1]:80, got "
	const dialled = at + "an IP address or a name before the port, got "
	sample := func(value string) string { return "access_log: {path: /a, sample: " + value + "}" }
	const ofShare = "f:1:32: access_log.sample: expected a number in [0,1], got "
	const duration = "f:1:18: timeouts.idle: expected a duration such as 500ms, got "
	const size = "f:1:19: limits.message: expected a size such as 64KiB, got "
	const indentation = "; expected the indentation of the lines around it"
	const quotes = "; a value that begins with one of [ { * & @ % needs quotes"
	for _, c := range []struct{ text, want string }{
		{endpoint(""), at + `host:port, got ""; an example is 127.0.0.1:8080`},
		{endpoint("http://a:1"), at + `host:port, got "http://a:1"; it has no scheme, since protocol and tls say what is spoken`},
		{endpoint("/a"), at + `host:port, got "/a"; a Unix socket is unix:/path`},
		{endpoint("{{a}}"), at + `host:port, got "{{a}}"; templates are not filled in, only ${NAME}`},
		{endpoint("8080"), at + `host:port, got "8080"; a port alone is :8080`},
		{endpoint("a"), at + `host:port, got "a"; the port is missing`},
		{endpoint("$HOST:80"), dialled + `"$HOST:80"; a variable is ${NAME}`},
		{endpoint("$${HOST}:80"), dialled + `"${HOST}:80"`},
		{endpoint("*:80"), dialled + `"*:80"; all addresses are [::]`},
		{endpoint("a*:80"), dialled + `"a*:80"`},
		{endpoint("1.2.3:4"), dialled + `"1.2.3:4"`},
		{endpoint("a.1.:4"), dialled + `"a.1.:4"`},
		{endpoint("a..:1"), dialled + `"a..:1"`},
		{endpoint("ä.az-AZ_09:1"), ""},
		{endpoint("a]:1"), host + `"a]:1"`},
		{endpoint("a:b:1"), host + `"a:b:1"`},
		{endpoint("::1:1"), host + `"::1:1"`},
		{endpoint("[::1:80"), host + `"[::1:80"`},
		{endpoint("a b:1"), host + `"a b:1"`},
		{endpoint("u@b:1"), host + `"...@b:1"`},
		{endpoint("@b:1"), host + `"...@b:1"`},
		{endpoint(":1"), at + `a host that can be connected to, got ":1"`},
		{endpoint("0.0.0.0:1"), at + `a host that can be connected to, got "0.0.0.0:1"`},
		{endpoint("a:0"), at + `a port from 1 to 65535, got "0"`},
		{endpoint("a:1"), ""},
		{endpoint("a:65535"), ""},
		{endpoint("a:65536"), at + `a port from 1 to 65535, got "65536"`},
		{endpoint("a:-1"), at + `a port from 1 to 65535, got "-1"`},
		{endpoint("a:08"), at + `a port from 1 to 65535, got "08"`},
		{"admin: {address: ':-1'}", `f:1:18: admin.address: expected a port from 0 to 65535, got "-1"`},

		{"loops: 5%", `f:1:8: loops: expected a whole number, got "5%"; expected it without the %`},
		{"loops: x", `f:1:8: loops: expected a whole number, got "x"`},
		{"loops: 1s", `f:1:8: loops: expected a whole number, got "1s"`},
		{"timeouts: {idle: 1}", duration + `"1"; the unit is missing`},
		{"timeouts: {idle: 1 s}", duration + `"1 s"; the units are ms, s, m and h, without a space`},
		{"timeouts: {idle: 9sec}", duration + `"9sec"; the units are ms, s, m and h, without a space`},
		{"timeouts: {idle: 0sec}", duration + `"0sec"; the units are ms, s, m and h, without a space`},
		{`timeouts: {idle: ""}`, duration + `""`},
		{"timeouts: {idle: s}", duration + `"s"`},
		{"timeouts: {idle: .s}", duration + `".s"`},
		{"limits: {message: 1.5MiB}", size + `"1.5MiB"; the units are KiB, MiB and GiB, right behind a whole number`},
		{"limits: {message: x}", size + `"x"`},
		{"limits: {message: 8589934592GiB}", size + `"8589934592GiB"`},
		{"limits: {message: -8589934593GiB}", size + `"-8589934593GiB"`},
		{"limits: {message: -1KiB}", `f:1:19: limits.message: expected at least 1KiB, got "-1KiB"`},
		{"limits: {message: -8589934592GiB}", `f:1:19: limits.message: expected at least 1KiB, got "-8589934592GiB"`},
		{"limits: {message: 8589934591GiB}", `f:1:19: limits.message: expected at most 1GiB, got "8589934591GiB"`},
		{"limits: {message: 01KiB}", size + `"01KiB"; the units are KiB, MiB and GiB, right behind a whole number`},

		{sample("1%"), ofShare + `"1%"; 1 percent is 0.01`},
		{sample("0%"), ofShare + `"0%"; 0 percent is 0`},
		{sample("-1%"), ofShare + `"-1%"`},
		{sample("1.5"), ofShare + `"1.5"`},
		{sample("2"), ofShare + `"2"; 2 percent is 0.02`},
		{sample("100"), ofShare + `"100"; 100 percent is 1`},
		{sample("101"), ofShare + `"101"`},
		{sample("nan"), ofShare + `"nan"`},
		{sample("inf"), ofShare + `"inf"`},
		{sample("-0.1"), ofShare + `"-0.1"`},
		{withService("lb: {policy: consistent_hash, hash: {path: true, balance: 50%}}"), `f:1:112: services.s.lb.hash.balance: expected a number in [0,100], got "50%"`},

		{"node:\n\tid: a", `f:2:1: not valid YAML: found character '\t' that cannot start any token; expected spaces in place of the tab`},
		{"node: {id: {{a}}}", "f:1:13: not valid YAML: could not find flow map content; templates are not filled in, only ${NAME}"},
		{`node: {id: "a\q"}`, "f:1:15: not valid YAML: found unknown escape character 'q'; in single quotes a backslash stands for itself"},
		{"node:\n  id:a\n  zone: b", "f:2:3: not valid YAML: unexpected key name; expected key: value, with a space behind the colon"},
		{"node:\n  id: a\n zone: b", "f:3:2: not valid YAML: value is not allowed in this context" + indentation},
		{"node:\n  id: @a", "f:2:7: not valid YAML: '@' is a reserved character" + quotes},
		{"node:\n  id: [a", "f:2:7: not valid YAML: sequence end token ']' not found" + quotes},
		{"{: b}", "f:1:2: not valid YAML: found an invalid key for this map" + quotes},
		{"{a: 1", "f:1:1: not valid YAML: could not find flow mapping end token '}'"},
		{`a: "b`, "f:1:4: not valid YAML: could not find end character of double-quoted text"},
		{"admin:\n  token:abc", "f:2:3: admin: expected a mapping with keys such as address, token, profiles; got a plain value; expected a space behind the colon"},
		{"node: id:a", `f:1:7: node: expected a mapping with keys such as id, zone, labels; got "id:a"; expected a space behind the colon`},
		{"node: id:/a", `f:1:7: node: expected a mapping with keys such as id, zone, labels; got "id:/a"`},

		{withRoute("match: {regex: /a(b}"), `f:2:94: routes[0].match.regex: not a regular expression (RE2): missing closing ): "/a(b"; a parenthesis itself is \(`},
		{withRoute("match: {regex: a)b}"), `f:2:94: routes[0].match.regex: not a regular expression (RE2): unexpected ): "a)b"; a parenthesis itself is \(`},
		{withRoute(`match: {regex: "a["}`), `f:2:94: routes[0].match.regex: not a regular expression (RE2): missing closing ]: "["; a bracket itself is \[`},
		{withRoute(`match: {regex: "*"}`), `f:2:94: routes[0].match.regex: not a regular expression (RE2): missing argument to repetition operator: "*"; any text is .*`},
		{withRoute(`match: {regex: "a(?=b)"}`), `f:2:94: routes[0].match.regex: not a regular expression (RE2): invalid or unsupported Perl syntax: "(?="; RE2 has no lookahead, no lookbehind and no backreference`},
		{withRoute(`match: {regex: "(a)\\1"}`), `f:2:94: routes[0].match.regex: not a regular expression (RE2): invalid escape sequence: "\\1"; RE2 has no lookahead, no lookbehind and no backreference`},
		{withRoute(`match: {regex: "a{2,1}"}`), `f:2:94: routes[0].match.regex: not a regular expression (RE2): invalid repeat count: "{2,1}"`},
	} {
		_, err := Parse("f", []byte(c.text), environment)
		if got := fmt.Sprint(err); (err == nil) != (c.want == "") || err != nil && got != c.want {
			t.Errorf("%s\ngives %v\nwant  %s", c.text, err, c.want)
		}
	}
}

// TestSuggestions: what a name probably means is another spelling of it, what another proxy calls it, or a name with few
// other letters.
func TestSuggestions(t *testing.T) {
	names := []string{"max_queue", "services", "endpoints", "on", "timeout"}
	for given, want := range map[string]string{
		"maxQueue": "max_queue", "max-queue": "max_queue", "clusters": "services", "upstream": "services", "hosts": "endpoints",
		"timeuot": "timeout", "timeou": "timeout", "timeouts": "timeout", "timout": "timeout", "tiemuot": "timeout", "ximexut": "timeout", "xixexut": "",
		"endopinst": "endpoints", "endpxxxxs": "", "no": "on", "xx": "", "in": "on", "": "", "x": "",
		"endpoints_of_the_service": "",
	} {
		got := didYouMean(given, names)
		if want != "" {
			want = "; did you mean " + want + "?"
		}
		if got != want {
			t.Errorf("%q: %q, want %q", given, got, want)
		}
	}
}
