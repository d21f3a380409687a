package config

import (
	"net/url"
	"strings"
)

// check reports errors that any check may have.
func (v *validator) check(at path, c *Check) {
	v.refuseIf(c.HTTP != "" && c.TCP, at, "expected http or tcp, got both")
	if _, err := url.ParseRequestURI(c.HTTP); c.HTTP != "" && (err != nil || !strings.HasPrefix(c.HTTP, "/")) {
		v.report(at.key("http"), `expected a path that starts with "/", got %q`, public(c.HTTP))
	}
}

// serviceCheck checks the check of a service's endpoints. Endpoints in etcd may have
// the protocol http although the service has another, so only static ones are checked.
func (v *validator) serviceCheck(at path, s *Service) {
	v.check(at, &s.Check)
	v.refuseIf(s.Check.HTTP != "" && s.Discover == DiscoverStatic && s.Protocol != ProtocolHTTP,
		at.key("http"), "the endpoints speak %s, not %s; expected tcp: true", s.Protocol, ProtocolHTTP)
}

// registerCheck checks the check of the application behind a listener. l is nil if
// there is no such listener.
func (v *validator) registerCheck(at path, c *Check, l *Listener) {
	v.check(at, c)
	if !c.Enabled() || l == nil {
		return
	}
	s := v.config.Services[l.Service]
	switch {
	case l.Service == "":
		v.report(at, "listener %q has no service, so there is nothing to check", l.Name)
	case s != nil && s.Discover != DiscoverStatic:
		v.report(at, "service %s has no static endpoints, so there is nothing to check", s.Name)
	}
}
