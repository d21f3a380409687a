package config

import (
	"reflect"
	"slices"
	"strings"
)

// TakesServerName reports whether a route of connections takes one to name; empty means that the
// client has sent none.
func (m *Match) TakesServerName(name string) bool {
	if m.SNI == "*" {
		return true
	}
	if suffix, isWild := strings.CutPrefix(m.SNI, "*"); isWild {
		dot := strings.IndexByte(name, '.')
		return dot > 0 && strings.EqualFold(name[dot:], suffix)
	}
	return name != "" && strings.EqualFold(m.SNI, name)
}

// checkSNI checks a route of connections.
func (r *Route) checkSNI(in scope, at path) {
	match, shown := at.key("match"), at.key("match").key("sni")
	in.refuseIf(!reflect.DeepEqual(r.Match, Match{SNI: r.Match.SNI}), match,
		"sni selects connections, whose bytes are not read: no other condition can hold")
	in.refuseIf(!isServerName(r.Match.SNI), shown, "expected a name such as example.com, *.example.com, or *, got %q", r.Match.SNI)
	in.refuseIf(!slices.ContainsFunc(in.config.Listeners, func(l Listener) bool { return l.Protocol == ProtocolTCP && l.Service == "" }),
		shown, "only a tcp listener without service looks at it, and there is none")
	const ofRequests = "is for requests; this route is for connections"
	for _, key := range []struct {
		name  string
		given bool
	}{
		{"rewrite", r.Rewrite != (Rewrite{})},
		{"redirect", r.Redirect.Given()},
		{"respond", r.Respond.Given()},
		{"request_headers", r.RequestHeaders.Given()},
		{"response_headers", r.ResponseHeaders.Given()},
		{"rate_limit", r.RateLimit != RateLimit{}},
	} {
		in.refuseIf(key.given, at.key(key.name), ofRequests)
	}
	for key, s := range r.filters() {
		in.refuseIf(s.given(), at.key(key), ofRequests)
	}
	in.refuseIf(r.Allow.Given(), at.key("allow"), "set the rules at the listener or the service")
	r.Allow.check(in, at.key("allow"))
	switch s := in.config.Services[r.Service]; {
	case len(r.Split) > 0:
		in.report(at.key("service"), "expected one service: connections can't be split")
	case r.Service == "":
		in.report(at.key("service"), "missing; a route needs a service")
	case s == nil:
		in.reference(at.key("service"), r.Service)
	default:
		checkProtocol(in, at.key("service"), r.Service, ProtocolTCP)
		in.refuseIf(!reflect.DeepEqual(r.Policy, s.Policy), at, "a route of connections has no policy; set it at the service")
	}
}

// isServerName reports whether name is a host name, or one with * for its first label, or *.
func isServerName(name string) bool {
	isBad := func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("-_.", c)
	}
	rest := strings.TrimPrefix(name, "*.")
	return name == "*" || !strings.ContainsFunc(rest, isBad) && !strings.Contains("."+rest+".", "..")
}
