package config

import (
	"maps"
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
	Fault           Fault       `yaml:"fault"`
	Mirror          Mirror      `yaml:"mirror"`
	Fallback        Fallback    `yaml:"fallback"`
	Cache           Cache       `yaml:"cache"`
	// Same requests that are in flight on one loop share one request to the service and its response.
	Collapse bool `yaml:"collapse"`

	// Policy is the effective one: that of Service, overridden field by field
	// by what the route sets. Each Share of a Split has its own.
	Policy `yaml:",inline"`
}

func (v *validator) route(i int, r *Route) {
	at := path("routes").item(i)
	if r.Match.SNI != "" {
		v.sniRoute(i, r)
		return
	}
	switch {
	case r.Answers():
		v.answer(at, r)
	case len(r.Split) > 0:
		v.split(at.key("service"), r.Split, &r.Match)
	case r.Service == "":
		v.report(at.key("service"), "missing; a route needs a service, redirect or respond")
	default:
		v.reference(at.key("service"), r.Service)
		v.routeTarget(at.key("service"), r.Service, &r.Match)
	}
	match := at.key("match")
	v.matchPath(match, &r.Match)
	v.matchHost(match.key("host"), r.Match.Host)
	v.matchHeaders(match.key("header"), r.Match.Header)
	v.matchQuery(match.key("query"), r.Match.Query)
	v.rewrite(at.key("rewrite").key("path"), r)
	v.rewriteHost(at.key("rewrite").key("host"), r)
	v.headerEdits(at.key("request_headers"), &r.RequestHeaders)
	v.headerEdits(at.key("response_headers"), &r.ResponseHeaders)
	v.matchDubbo(match, &r.Match)
	v.methods(match.key("method"), &r.Match)
	v.reached(at, i, &r.Match)
	v.routePolicies(at, r)
	v.rateLimit(at, &r.RateLimit)
	v.rateKey(at, &r.RateLimit, r.Match.OfDubbo())
	v.fault(at.key("fault"), r)
	v.mirror(at.key("mirror"), r)
	v.fallback(at.key("fallback"), r)
	v.cache(at, r)
}

// reached complains about a route behind another route that takes all its requests: with the same match, or
// with none.
func (v *validator) reached(at path, i int, m *Match) {
	first := i
	for _, same := range []Match{m.canonical(), {}} {
		if j, earlier := v.matches[same.text()]; earlier {
			first = min(first, j)
		}
	}
	if first < i {
		v.report(at, "never reached: routes[%d] matches all requests that this one does", first)
		return
	}
	v.matches[m.canonical().text()] = i
}

// routePolicies checks the policy of a route and those of its shares. Errors in
// inherited settings were reported where these are set.
func (v *validator) routePolicies(at path, r *Route) {
	var inherited []*Policy
	inherit := func(service string) {
		if s := v.config.Services[service]; s != nil {
			inherited = append(inherited, &s.Policy)
		}
	}
	inherit(r.Service)
	v.policy(at, &r.Policy, inherited)
	inherited = append(inherited, &r.Policy)
	for i := range r.Split {
		s := &r.Split[i]
		inherit(s.Name)
		v.policy(at.key("service").item(i), &s.Policy, inherited)
	}
}

// routeTarget reports a service that can't take what a route sends to it.
func (v *validator) routeTarget(at path, name string, m *Match) {
	v.protocols(at, name, v.routeProtocol(m))
	if s := v.config.Services[name]; s != nil && s.multiplexed() && slices.Contains(m.Method, "CONNECT") {
		v.report(at, "match.method has CONNECT, and service %s speaks %s, which has no tunnels; expected one with protocol: %s or %s",
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
func (v *validator) hasRoutes(ofConnections bool) bool {
	return slices.ContainsFunc(v.config.Routes, func(r Route) bool { return (r.Match.SNI != "") == ofConnections })
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

// split reports a split without weight, and shares whose service is missing, listed
// twice or of the wrong protocol.
func (v *validator) split(at path, shares []Share, m *Match) {
	sum, seen := 0, map[string]bool{}
	for i, s := range shares {
		item := at.item(i)
		switch {
		case s.Name == "":
			v.report(item.key("name"), "missing; a share needs a service")
		case seen[s.Name]:
			v.report(item.key("name"), "%s is listed twice", s.Name)
		default:
			v.reference(item.key("name"), s.Name)
			v.routeTarget(item.key("name"), s.Name, m)
		}
		seen[s.Name] = true
		sum += s.Weight
	}
	v.refuseIf(sum == 0, at, "every weight is 0: no request could go anywhere")
}
