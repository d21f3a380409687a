package config

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// TestEveryNumberIsBounded: each number, size and time has an upper bound. A larger one
// could overflow where it is converted, multiplied or added to.
func TestEveryNumberIsBounded(t *testing.T) {
	seen := 0
	for _, b := range bounds() {
		seen++
		values := []string{"9223372036854775807"}
		switch {
		case b.isTime:
			values = []string{"2562047h"}
		case !b.isSize:
			values = append(values, "2147483648", "4294967295", "4294967296")
		}
		for _, value := range values {
			text := b.yaml(value)
			_, err := Parse("test", []byte(text), environment)
			got := fmt.Sprint(err)
			if !strings.Contains(got, b.last()+": expected at most ") {
				t.Errorf("%s\ngives %s", text, got)
			}
		}
	}
	if seen < 40 {
		t.Errorf("%d numbers, sizes and times were found", seen)
	}
}

// bounded is a key with a whole number, a size or a time.
type bounded struct {
	setting
	isSize, isTime bool
}

func bounds() (out []bounded) {
	for _, s := range settings(nil) {
		kind, _, _ := strings.Cut(s.values, " ")
		kind = strings.TrimSuffix(kind, ",")
		switch kind {
		case "number", "size", "time":
			out = append(out, bounded{s, kind == "size", kind == "time"})
		}
	}
	return out
}

func (b bounded) last() string { return b.key[strings.LastIndexByte(b.key, '.')+1:] }

// yaml returns a file that sets only the key, to value.
func (b bounded) yaml(value string) string {
	key := b.key
	if _, top := topLevel()[strings.Split(key, ".")[0]]; !top {
		key = "services.*." + key // of a block or a policy
	}
	steps := strings.Split(key, ".")
	text := value
	for i := len(steps) - 1; i >= 0; i-- {
		switch {
		case steps[i] != "*":
			text = "{" + steps[i] + ": " + text + "}"
		case steps[i-1] == "services":
			text = "{s: " + text + "}"
		default:
			text = "[" + text + "]"
		}
	}
	return text
}

func topLevel() map[string]bool {
	keys := map[string]bool{}
	for _, f := range fieldsOf(reflect.TypeFor[Config]()) {
		keys[f.name] = true
	}
	return keys
}

// TestTextBounds: what is as long as it may be is valid, and so are the first and the last of the characters that a name
// may have.
func TestTextBounds(t *testing.T) {
	const name = "az-AZ_09.x"
	x := func(n int) string { return strings.Repeat("x", n) }
	list := func(n int, item string) string { // %d is the number of the item
		var all []string
		for i := range n {
			all = append(all, strings.ReplaceAll(item, "%d", fmt.Sprint(i)))
		}
		return strings.Join(all, ", ")
	}
	format := func(text string) string { return "access_log: {path: /a, format: " + strconv.Quote(text) + "}" }
	listener := func(keys string) string {
		return withListener(`address: "127.0.0.1:1", protocol: http, service: s, ` + keys)
	}
	endpoint := func(addr string) string { return `services: {s: {discover: static, endpoints: ["` + addr + `"]}}` }
	direct := func(allow string) string {
		return withListener(`address: "127.0.0.1:1", protocol: http, unrouted: direct, direct: {allow: ["` + allow + `"]}`)
	}
	set := func(headers string) string { return withRoute(`request_headers: {set: {` + headers + `}}`) }
	answer := func(keys string) string { return `{routes: [{respond: {` + keys + `}}]}` }
	tracing := func(value string) string { return `tracing: {endpoint: "http://a", headers: {x: "` + value + `"}}` }
	hedge := func(keys string) string { return withService(`timeout: 2s, hedge: {` + keys + `}`) }
	checkRules(t, []rule{
		{format("{path}" + x(maxFormat-6)), ""},
		{format("{header a}{header b}{header c}{header d}{header e}{header f}{header g}{header h}"), ""},
		{format("{path} ~\t"), ""},
		{format("{path}\x1f"), "control characters"},
		{format("{path}\x7f"), "control characters"},
		{endpoint(name + ":65535"), ""},
		{endpoint("A9.z:1"), ""},
		{endpoint(name + ":65536"), "expected a port from 1 to 65535"},
		{endpoint(name + ":-1"), "expected a port from 1 to 65535"},
		{endpoint("a`b:1"), "expected an IP address or a name"},
		{endpoint("a:0"), "expected a port from 1 to 65535"},
		{withListener(`address: "127.0.0.1:65535", protocol: http, service: s`), ""},
		{withListener(`address: "127.0.0.1:65536", protocol: http, service: s`), "expected a port from 0 to 65535"},
		{withService(`protocol: http, tls: {sni: "` + name + `"}`), ""},
		{withService(`protocol: http, tls: {sni: "a/b"}`), "expected a host name"},
		{direct("az-_09.x:65535"), ""},
		{direct("az-_09.x:65536"), "expected a port from 1 to 65535"},
		{direct("az-_09.x:1"), ""},
		{direct("a/b"), "expected a name"},
		{listener(`allow: {rules: [{name: "` + name + `"}]}`), ""},
		{listener(`allow: {rules: [{name: "` + x(maxRuleName) + `"}]}`), ""},
		{listener(`allow: {rules: [{name: "` + x(maxRuleName+1) + `"}]}`), "at most 64"},
		{listener(`allow: {rules: [{name: "a/b"}]}`), "at most 64 letters"},
		{listener(`allow: {rules: [{path: ["/!~"]}]}`), ""},
		{listener(`allow: {rules: [{path: ["/a b"]}]}`), "expected a path"},
		{listener(`forwarded: {trust: 255}`), ""},
		{listener(`forwarded: {trust: 256}`), "at most 255 proxies"},
		{listener(`forwarded: {trust: -1}`), "expected a number of proxies"},
		{listener(`tls: {cert: c, key: k, certificates: [` + list(256, "{cert: d, key: l}") + `]}`), ""},
		{`{services: {s: {discover: static, endpoints: ["a:1"], protocol: tcp}}, listeners: [{name: l, address: ":1", protocol: tcp}], routes: [{match: {sni: "` + name + `"}, service: s}]}`, ""},
		{set(list(maxEdits, "x%d: y")), ""},
		{set(list(maxEdits+1, "x%d: y")), "at most 32 headers"},
		{set(`"!~": "a\t~"`), ""},
		{set(`x: "a\x7f"`), "expected the value of a header"},
		{set(`x: "` + x(maxEditValue) + `"`), ""},
		{set(`x: "` + x(maxEditValue+1) + `"`), "at most 4096 bytes"},
		{withRoute(`request_headers: {add: {` + list(maxEdits, "x%d: y") + `}}`), ""},
		{withRoute(`request_headers: {add: {` + list(maxEdits+1, "x%d: y") + `}}`), "add: expected at most 32 headers, got 33"},
		{withRoute(`request_headers: {add: {host: a}}`), "add.host: expected rewrite.host"},
		{withRoute(`request_headers: {add: {x: "{"}}`), "add.x: a brace without its other half"},
		{withRoute(`request_headers: {remove: [` + list(maxEdits, "x%d") + `]}`), ""},
		{withRoute(`request_headers: {remove: [` + list(maxEdits+1, "x%d") + `]}`), "at most 32 headers"},
		{withRoute(`match: {path: /a}, rewrite: {path: /` + x(maxRewrite-1) + `}`), ""},
		{withRoute(`match: {path: /a}, rewrite: {path: /` + x(maxRewrite) + `}`), "at most 1024 bytes"},
		{withRoute(`match: {path: /a}, rewrite: {path: "/!~"}`), ""},
		{withRoute(`match: {path: /a}, rewrite: {path: "/ "}`), "expected a path"},
		{withRoute(`rewrite: {host: "` + x(maxRewrite) + `"}`), ""},
		{withRoute(`rewrite: {host: "` + x(maxRewrite+1) + `"}`), "expected a host"},
		{withRoute(`rewrite: {host: "a~[:1]"}`), ""},
		{withRoute(`rewrite: {host: "é"}`), "expected a host"},
		{withRoute(`match: {regex: "[` + x(maxRegex-2) + `]"}`), ""},
		{withRoute(`match: {regex: "` + x(maxRegexSteps-2) + `"}`), ""}, // its program begins and ends with an instruction of its own
		{withRoute(`match: {regex: "` + x(maxRegexSteps-1) + `"}`), "it may take 251 steps"},
		{withRoute(`cache: {key: [a, b, c, d, e, f, g, h]}`), ""},
		{withRoute(`cache: {ignore: [a, b, c, d, e, f, g, h]}`), ""},
		{withRoute(`cache: {bytes: 1048575}`), "at least 1MiB"},
		{answer(`body: "` + x(maxBody) + `"`), ""},
		{answer(`body: "` + x(maxBody+1) + `"`), "at most 64KiB"},
		{answer(`status: 200`), ""},
		{answer(`status: 199`), "expected 200 to 599"},
		{tracing(` \t~`), ""},
		{tracing(`\x7f`), "expected ASCII"},
		{tracing(`\x1f`), "expected ASCII"},
		{hedge(`delay: p99.9`), ""},
		{hedge(`delay: p0.5`), ""},
		{hedge(`delay: p-1`), "expected auto"},
		{hedge(`delay: 1ns`), ""},
		{hedge(`delay: p0`), "expected auto"},
		{hedge(`delay: p100`), "expected auto"},
		{hedge(`delay: 0s`), "expected auto"},
		{hedge(`delay: 8759h`), ""},
		{hedge(`delay: 8760h`), "expected auto"},
		{hedge(`min_delay: 9ms, max_delay: 9ms`), ""},
		{hedge(`min_delay: 9ms, max_delay: 8ms`), "is more than max_delay"},
		{hedge(`mode: on, delay: 1999ms`), ""},
		{hedge(`mode: on, delay: 2s`), "not less than the timeout"},
		{hedge(`mode: on, delay: p91, budget: 0.1`), ""},
		{hedge(`mode: on, delay: p90, budget: 0.1`), "leaves no room under the budget"},
		{withService(`retry: {on: ["500", "599"]}`), ""},
		{withService(`retry: {on: ["499"]}`), "expected one of connect"},
		{withService(`retry: {on: ["600"]}`), "expected one of connect"},
		{withService(`retry: {on: ["0500"]}`), "expected one of connect"},
		{withService(`timeout: 2s, retry: {per_try_timeout: 1999ms}`), ""},
		{withService(`timeout: 2s, retry: {per_try_timeout: 2s}`), "not less than the timeout"},
	})
}
