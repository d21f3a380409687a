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

// sniRoute checks a route of connections.
func (v *validator) sniRoute(i int, r *Route) {
	at := path("routes").item(i)
	match, shown := at.key("match"), at.key("match").key("sni")
	v.refuseIf(!reflect.DeepEqual(r.Match, Match{SNI: r.Match.SNI}), match,
		"sni selects connections, whose bytes are not read: no other condition can hold")
	v.refuseIf(!isServerName(r.Match.SNI), shown, "expected a name such as example.com, *.example.com, or *, got %q", r.Match.SNI)
	v.refuseIf(!slices.ContainsFunc(v.config.Listeners, func(l Listener) bool { return l.Protocol == ProtocolTCP && l.Service == "" }),
		shown, "only a tcp listener without service looks at it, and there is none")
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
		{"fault", r.Fault != defaultFault()},
		{"mirror", r.Mirror != defaultMirror()},
		{"fallback", !r.Fallback.isDefault()},
		{"cache", r.Cache.Enabled()},
		{"collapse", r.Collapse},
	} {
		v.refuseIf(key.given, at.key(key.name), "is for requests; this route is for connections")
	}
	v.refuseIf(r.Allow.Given(), at.key("allow"), "set the rules at the listener or the service")
	for j, earlier := range v.config.Routes[:i] {
		if earlier.Match.SNI != "" && earlier.Match.TakesServerName(r.Match.SNI) {
			v.report(at, "never reached: routes[%d] takes all connections that this one does", j)
			break
		}
	}
	switch s := v.config.Services[r.Service]; {
	case len(r.Split) > 0:
		v.report(at.key("service"), "expected one service: connections can't be split")
	case r.Service == "":
		v.report(at.key("service"), "missing; a route needs a service")
	case s == nil:
		v.reference(at.key("service"), r.Service)
	default:
		v.protocols(at.key("service"), r.Service, ProtocolTCP)
		v.refuseIf(!reflect.DeepEqual(r.Policy, s.Policy), at, "a route of connections has no policy; set it at the service")
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
