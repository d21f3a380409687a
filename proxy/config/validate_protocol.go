package config

import (
	"reflect"
	"slices"
	"strings"
)

// protocols reports a service that can't take what is sent to it. Opaque bytes need an
// application, or a sidecar that passes them on; requests need a service that
// understands them. HTTP requests can be converted to Dubbo calls, but not the other
// way round.
func (v *validator) protocols(at path, name, sent string) {
	s := v.config.Services[name]
	switch {
	case s == nil:
	case sent == ProtocolTCP && s.multiplexed():
		v.report(at, "service %s speaks %s; opaque tcp needs a service with protocol: %s, %s or %s",
			name, s.Protocol, ProtocolTCP, ProtocolHTTP, ProtocolLink)
	case sent != ProtocolTCP && s.Protocol == ProtocolTCP:
		v.report(at, "service %s takes opaque bytes, not requests; expected one with protocol: %s, %s or %s",
			name, ProtocolLink, ProtocolHTTP, ProtocolDubbo)
	case sent == ProtocolDubbo && s.SpeaksHTTP():
		v.report(at, "service %s speaks %s, and Dubbo calls can't be converted to it; expected one with protocol: %s or %s",
			name, s.Protocol, ProtocolLink, ProtocolDubbo)
	case sent == ProtocolTCP && s.LB.Policy == LBConsistentHash && !s.LB.Hash.Source:
		v.report(at, "service %s has keys of requests, and opaque tcp has none; expected lb.hash: {source: true}", name)
	case sent != ProtocolHTTP && s.LB.Sticky.Cookie != "":
		v.report(at, "service %s has lb.sticky, and only HTTP has cookies", name)
	case sent == ProtocolDubbo && s.LB.Hash.ofHTTP():
		v.report(at, "service %s has keys of HTTP requests, and Dubbo calls have no headers and no query; expected lb.hash with path or source", name)
	}
}

// multiplexed reports whether requests share the connections to the endpoints, which take no opaque
// bytes therefore.
func (s *Service) multiplexed() bool {
	return s.Protocol == ProtocolDubbo || s.Protocol == ProtocolHTTP2 || s.Protocol == ProtocolGRPC
}

// routeTarget reports a service that can't take what a route sends to it.
func (v *validator) routeTarget(at path, name string, m *Match) {
	v.protocols(at, name, v.routeProtocol(m))
	if s := v.config.Services[name]; s != nil && s.multiplexed() && slices.Contains(m.Method, "CONNECT") {
		v.report(at, "match.method has CONNECT, and service %s speaks %s, which has no tunnels; expected one with protocol: %s or %s",
			name, s.Protocol, ProtocolHTTP, ProtocolLink)
	}
}

// routeProtocol returns dubbo for a route that only Dubbo calls can reach, otherwise
// http.
func (v *validator) routeProtocol(m *Match) string {
	routed := func(protocol string) bool {
		return slices.ContainsFunc(v.config.Listeners, func(l Listener) bool {
			return l.Service == "" && l.Protocol == protocol
		})
	}
	if m.OfDubbo() || !m.OfHTTP() && routed(ProtocolDubbo) && !routed(ProtocolHTTP) {
		return ProtocolDubbo
	}
	return ProtocolHTTP
}

// matchDubbo reports conditions that no Dubbo call can meet.
func (v *validator) matchDubbo(at path, m *Match) {
	v.refuseIf(m.OfDubbo() && m.OfHTTP(), at, "host, path, regex, header and query match HTTP requests, "+
		"service, version and group match Dubbo calls: nothing can match both")
	v.refuseIf(m.Version == "0.0.0",
		at.key("version"), "0.0.0 means no version in Dubbo; leave it out")
}

// methods reports names that can't be methods, of HTTP or, in a route for Dubbo, of an
// interface.
func (v *validator) methods(at path, m *Match) {
	for i, name := range m.Method {
		switch {
		case name == "" || strings.ContainsAny(name, " \t"):
			v.report(at.item(i), "expected a method such as GET, got %q", name)
		case strings.ToUpper(name) != name && v.routeProtocol(m) != ProtocolDubbo:
			v.report(at.item(i), "expected a method such as GET, got %q; for a Dubbo method set match.service too", name)
		}
	}
}

// hasRoutes reports whether there are routes of connections, or of requests.
func (v *validator) hasRoutes(ofConnections bool) bool {
	return slices.ContainsFunc(v.config.Routes, func(r Route) bool { return (r.Match.SNI != "") == ofConnections })
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
