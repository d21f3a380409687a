package config

import (
	"fmt"
	"maps"
	slashpath "path"
	"slices"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/internal/hostname"
)

// Match selects requests. Every condition that is set must hold; the zero Match
// takes all. Host, Path, PrefixText, Regex, Header and Query select HTTP requests alone, Service,
// Version and Group select Dubbo calls alone, SNI selects connections alone.
type Match struct {
	// Host of the request without port, [however it is spelled](strictness.md#names). `*.svc` matches `a.svc` and `a.b.svc`, not `svc`.
	Host string `yaml:"host"`
	// Prefix of the path, of whole segments: `/api` and `/api/` match `/api`, `/api/` and `/api/x`, not `/apis`. Begins with `/`.
	Path string `yaml:"path"`
	// Prefix of the path as text, instead of `path`: `/api` matches `/apis`, too. Begins with `/`.
	PrefixText string `yaml:"prefix_text"`
	// [Expression](routing.md#expressions) for the whole path, without the query.
	Regex string `yaml:"regex"`
	// One of these methods, of HTTP or of a Dubbo interface.
	Method []string `yaml:"method"`
	// [Conditions](routing.md#conditions) on values. Names in any case. Several lines of a name are one value, joined with `, `.
	Header map[string]Condition `yaml:"header"`
	// [Conditions](routing.md#conditions) on parameters of the query, decoded. Of several with a name the first counts.
	Query map[string]Condition `yaml:"query"`

	// Name in the ClientHello of a connection to a `tcp` listener, in any case. `*.example.com` takes any one label for `*`; `*` takes every connection, also without a name. No other condition can be set.
	SNI string `yaml:"sni"`

	// Dubbo: the interface, or the path that the provider exports it by.
	Service string `yaml:"service"`
	// Dubbo: version of the service.
	Version string `yaml:"version"`
	// Dubbo: group of the service.
	Group string `yaml:"group"`
}

// OfHTTP reports whether m selects HTTP requests alone.
func (m *Match) OfHTTP() bool {
	return m.Host != "" || m.Path != "" || m.PrefixText != "" || m.Regex != "" || len(m.Header) > 0 || len(m.Query) > 0
}

// OfDubbo reports whether m selects Dubbo calls alone.
func (m *Match) OfDubbo() bool { return m.Service != "" || m.Version != "" || m.Group != "" }

// text is the same for equal matches, and for no others.
func (m Match) text() string { return fmt.Sprintf("%#v", m) }

// canonical returns m without what makes no difference.
func (m Match) canonical() Match {
	m.Host = hostname.Name(m.Host)
	if m.Path != "/" {
		m.Path = strings.TrimSuffix(m.Path, "/")
	}
	return m
}

// check checks the conditions of a route of requests.
func (m *Match) check(in scope, at path) {
	m.checkHost(in, at.key("host"))
	m.checkPath(in, at)
	m.checkHeaders(in, at.key("header"))
	m.checkQuery(in, at.key("query"))
	m.checkDubbo(in, at)
	m.checkMethods(in, at.key("method"))
}

// checkHost reports what no host can be.
func (m *Match) checkHost(in scope, at path) {
	host := m.Host
	name, _ := strings.CutPrefix(host, "*.")
	switch {
	case strings.Contains(name, "*"):
		in.report(at, `expected one host, or the end of hosts such as "*.svc", got %q; a route without host matches all hosts`, host)
	case strings.ContainsAny(name, "/ ") || strings.Contains(name, ":") && !strings.HasPrefix(name, "["):
		in.report(at, "expected a host without port, got %q", host)
	case name != host && (name == "" || name[0] == '.' || name[0] == '['):
		in.report(at, `expected the end of hosts such as "*.svc", got %q`, host)
	}
}

// checkPath reports prefixes that no path has, or only by accident.
func (m *Match) checkPath(in scope, at path) {
	for _, c := range []struct{ key, prefix string }{{"path", m.Path}, {"prefix_text", m.PrefixText}} {
		in.refuseIf(c.prefix != "" && !strings.HasPrefix(c.prefix, "/"),
			at.key(c.key), `expected a path that starts with "/", got %q`, c.prefix)
	}
	in.refuseIf(m.Path != "" && m.PrefixText != "", at.key("prefix_text"), "contradicts path")
	in.refuseIf(strings.HasPrefix(m.Path, "/") && !isNormal(m.Path), at.key("path"),
		"no request has such a path: expected no empty or dot segment, no query, and escapes in capitals of other"+
			" than letters, digits and -._~; got %q", m.Path)
	if m.Regex != "" {
		checkRegex(in, at.key("regex"), m.Regex)
	}
}

// isNormal reports whether normalization would keep a path, which begins with "/". An escaped
// slash is kept: listeners may keep it, too.
func isNormal(p string) bool {
	if p != "/" && slashpath.Clean(p) != strings.TrimSuffix(p, "/") || strings.ContainsAny(p, "?#") {
		return false
	}
	for _, escape := range strings.Split(p, "%")[1:] {
		if len(escape) < 2 || escape[:2] != strings.ToUpper(escape[:2]) {
			return false
		}
		c, err := strconv.ParseUint(escape[:2], 16, 8)
		if err != nil || c == 0 || hostname.IsUnreserved(byte(c)) {
			return false
		}
	}
	return true
}

// checkHeaders reports conditions that no request can meet.
func (m *Match) checkHeaders(in scope, at path) {
	for _, name := range slices.Sorted(maps.Keys(m.Header)) {
		shown, c := at.entry(name), m.Header[name]
		lower, value := strings.ToLower(name), c.Text
		switch c.Is {
		case IsRegex:
			value = ""
		case IsPrefix: // a space may follow
			value = strings.TrimRight(value, " \t")
		}
		switch {
		case !isHeaderName(name):
			in.report(shown, "expected the name of a header, got %q", name)
		case lower == "host":
			in.report(shown, "expected match.host for the host")
		case strings.HasPrefix(lower, "x-remora-"):
			in.report(shown, "the sidecar removes its own headers before it matches routes")
		case value != strings.Trim(value, " \t") || strings.ContainsAny(value, "\r\n\x00"):
			in.report(c.at(shown), "expected the value of a header, without spaces around it, got %q", value)
		default:
			c.check(in, shown)
		}
	}
}

// checkQuery reports conditions without a name.
func (m *Match) checkQuery(in scope, at path) {
	for _, name := range slices.Sorted(maps.Keys(m.Query)) {
		in.refuseIf(name == "", at.entry(name), "expected the name of a parameter")
		m.Query[name].check(in, at.entry(name))
	}
}

// checkDubbo reports conditions that no Dubbo call can meet.
func (m *Match) checkDubbo(in scope, at path) {
	in.refuseIf(m.OfDubbo() && m.OfHTTP(), at, "host, path, regex, header and query match HTTP requests, "+
		"service, version and group match Dubbo calls: nothing can match both")
	in.refuseIf(m.Version == "0.0.0",
		at.key("version"), "0.0.0 means no version in Dubbo; leave it out")
}

// checkMethods reports names that can't be methods, of HTTP or, in a route for Dubbo, of an
// interface.
func (m *Match) checkMethods(in scope, at path) {
	for i, name := range m.Method {
		switch {
		case name == "" || strings.ContainsAny(name, " \t"):
			in.report(at.item(i), "expected a method such as GET, got %q", name)
		case strings.ToUpper(name) != name && in.config.routeProtocol(m) != ProtocolDubbo:
			in.report(at.item(i), "expected a method such as GET, got %q; for a Dubbo method set match.service too", name)
		}
	}
}
