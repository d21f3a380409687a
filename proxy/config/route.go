package config

import (
	"maps"
	"reflect"
	"slices"
)

// Route sends what it matches to a service, or splits it between several.
type Route struct {
	Match Match `yaml:"match"`

	// Name of a service, or a list of shares. Required without `redirect` and `respond`.
	Service string  `yaml:"service"`
	Split   []Share `yaml:"-"` // the list of shares, whose first is Service; empty if the file gives a name

	Rewrite         Rewrite     `yaml:"rewrite"`
	Redirect        Redirect    `yaml:"redirect"`
	Respond         Respond     `yaml:"respond"`
	RequestHeaders  HeaderEdits `yaml:"request_headers"`
	ResponseHeaders HeaderEdits `yaml:"response_headers"`
	RateLimit       RateLimit   `yaml:"rate_limit"`
	Allow           Allow       `yaml:"allow"`

	Blocks `yaml:",inline"` // of filters whose settings nothing else reads

	Fallback Fallback `yaml:"fallback"`
	Cache    Cache    `yaml:"cache"`
	// Same requests that are in flight on one loop share one request to the service and its response.
	Collapse Collapse `yaml:"collapse"`

	// Policy is the effective one: that of Service, overridden field by field
	// by what the route sets. Each Share of a Split has its own.
	Policy `yaml:",inline"`
}

func (r *Route) setDefaults() { r.Blocks = defaultBlocks[Route]() }

func (r *Route) check(in scope, at path) {
	in.route = r
	if r.Match.SNI != "" {
		r.checkSNI(in, at)
		return
	}
	switch {
	case r.Answers():
		r.checkAnswer(in, at)
	case len(r.Split) > 0:
		r.checkSplit(in, at.key("service"))
	case r.Service == "":
		unread := in.partly[at.key("redirect")] || in.partly[at.key("respond")]
		in.refuseIf(!unread, at.key("service"), "missing; a route needs a service, redirect or respond")
	default:
		in.reference(at.key("service"), r.Service)
		r.Match.checkTarget(in, at.key("service"), r.Service)
	}
	r.checkPolicies(in, at)
	in.sections(reflect.ValueOf(r).Elem(), at)
}

// checkPolicies checks the policy of a route and those of its shares. Errors in
// inherited settings were reported where these are set.
func (r *Route) checkPolicies(in scope, at path) {
	var inherited []*Policy
	inherit := func(service string) {
		if s := in.config.Services[service]; s != nil {
			inherited = append(inherited, &s.Policy)
		}
	}
	inherit(r.Service)
	r.Policy.check(in, at, inherited)
	inherited = append(inherited, &r.Policy)
	for i := range r.Split {
		s := &r.Split[i]
		inherit(s.Name)
		s.Policy.check(in, at.key("service").item(i), inherited)
	}
}

// checkTarget reports a service that can't take what a route sends to it.
func (m *Match) checkTarget(in scope, at path, name string) {
	checkProtocol(in, at, name, in.config.routeProtocol(m))
	if s := in.config.Services[name]; s != nil && s.multiplexed() && slices.Contains(m.Method, "CONNECT") {
		in.report(at, "match.method has CONNECT, and service %s speaks %s, which has no tunnels; expected one with protocol: %s or %s",
			name, s.Protocol, ProtocolHTTP, ProtocolLink)
	}
}

// RoutedServices returns the names of the services that a listener or a route leads to, sorted.
func (c *Config) RoutedServices() []string {
	names := map[string]bool{}
	for i := range c.Listeners {
		names[c.Listeners[i].Service] = true
	}
	for i := range c.Routes {
		for _, name := range c.Routes[i].services() {
			names[name] = true
		}
	}
	delete(names, "")
	return slices.Sorted(maps.Keys(names))
}

// services returns the names of the services of a route.
func (r *Route) services() (names []string) {
	if len(r.Split) == 0 {
		return []string{r.Service}
	}
	for i := range r.Split {
		names = append(names, r.Split[i].Name)
	}
	return names
}

// policies returns the policy of the route, or those of its shares.
func (r *Route) policies() []*Policy {
	if len(r.Split) == 0 {
		return []*Policy{&r.Policy}
	}
	all := make([]*Policy, len(r.Split))
	for i := range r.Split {
		all[i] = &r.Split[i].Policy
	}
	return all
}

// hasRoutes reports whether there are routes of connections, or of requests.
func (c *Config) hasRoutes(ofConnections bool) bool {
	return slices.ContainsFunc(c.Routes, func(r Route) bool { return (r.Match.SNI != "") == ofConnections })
}

// routeProtocol returns dubbo for a route that only Dubbo calls can reach, otherwise
// http.
func (c *Config) routeProtocol(m *Match) string {
	routed := func(protocol string) bool {
		return slices.ContainsFunc(c.Listeners, func(l Listener) bool {
			return l.Service == "" && l.Protocol == protocol
		})
	}
	if m.OfDubbo() || !m.OfHTTP() && routed(ProtocolDubbo) && !routed(ProtocolHTTP) {
		return ProtocolDubbo
	}
	return ProtocolHTTP
}

// Share is a service's part of a split route.
type Share struct {
	// Name of a service.
	Name string `yaml:"name"`
	// Part of the sum of weights. 0 means no requests; not all may be 0.
	Weight int `yaml:"weight" max:"65535"`

	// Policy is the effective one: that of the service, overridden by what the
	// route sets, and that by what the share sets.
	Policy `yaml:",inline"`
}

func (s *Share) setDefaults() { s.Weight = 1 }

// checkSplit reports a split without weight, and shares whose service is missing, listed
// twice or of the wrong protocol.
func (r *Route) checkSplit(in scope, at path) {
	sum, seen := 0, map[string]bool{}
	for i, s := range r.Split {
		item := at.item(i)
		switch {
		case s.Name == "":
			in.report(item.key("name"), "missing; a share needs a service")
		case seen[s.Name]:
			in.report(item.key("name"), "%s is listed twice", s.Name)
		default:
			in.reference(item.key("name"), s.Name)
			r.Match.checkTarget(in, item.key("name"), s.Name)
		}
		seen[s.Name] = true
		sum += s.Weight
	}
	in.refuseIf(sum == 0, at, "every weight is 0: no request could go anywhere")
}
