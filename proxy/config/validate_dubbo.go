package config

import (
	"slices"
	"strings"
)

// speaks holds what a service speaks against the protocol of what is sent there:
// opaque bytes go to an application, or to a sidecar that passes them on, and
// requests where they are understood. What comes as HTTP may leave as Dubbo, not
// the other way round.
func (v *validator) speaks(at path, name, sent string) {
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
		v.report(at, "service %s speaks %s, and calls of Dubbo are not converted to it; expected one with protocol: %s or %s",
			name, s.Protocol, ProtocolLink, ProtocolDubbo)
	}
}

// carries is the protocol of what a route takes: dubbo if that is all that can
// come to it, else http.
func (v *validator) carries(m *Match) string {
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

// matchDubbo reports conditions on calls of Dubbo that none could meet.
func (v *validator) matchDubbo(at path, m *Match) {
	if m.OfDubbo() && m.OfHTTP() {
		v.report(at, "host, path and header are of HTTP, service, version and group of Dubbo: no request has both")
	}
	if m.Version == "0.0.0" {
		v.report(at.key("version"), "0.0.0 is how Dubbo says that there is no version; leave it out")
	}
}

// methods reports names that are no methods: those of HTTP, or, in a route for
// Dubbo, those of an interface.
func (v *validator) methods(at path, m *Match) {
	for i, name := range m.Method {
		switch {
		case name == "" || strings.ContainsAny(name, " \t"):
			v.report(at.item(i), "expected a method such as GET, got %q", name)
		case strings.ToUpper(name) != name && v.carries(m) != ProtocolDubbo:
			v.report(at.item(i), "expected a method such as GET, got %q; for a method of Dubbo set match.service too", name)
		}
	}
}
