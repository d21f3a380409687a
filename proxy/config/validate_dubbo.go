package config

import (
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
	case sent == ProtocolTCP && s.Protocol == ProtocolDubbo:
		v.report(at, "service %s speaks %s; opaque tcp needs a service with protocol: %s, %s or %s",
			name, s.Protocol, ProtocolTCP, ProtocolHTTP, ProtocolLink)
	case sent != ProtocolTCP && s.Protocol == ProtocolTCP:
		v.report(at, "service %s takes opaque bytes, not requests; expected one with protocol: %s, %s or %s",
			name, ProtocolLink, ProtocolHTTP, ProtocolDubbo)
	case sent == ProtocolDubbo && s.Protocol == ProtocolHTTP:
		v.report(at, "service %s speaks %s, and Dubbo calls can't be converted to it; expected one with protocol: %s or %s",
			name, s.Protocol, ProtocolLink, ProtocolDubbo)
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
