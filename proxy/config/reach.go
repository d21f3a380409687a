package config

import (
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/remora-proxy/remora/internal/bindaddr"
)

// checkUsed warns of what no request can reach.
func checkUsed(in scope) {
	c := in.config
	if len(c.Listeners) == 0 {
		in.warn("listeners", "missing; without a listener no request reaches the sidecar")
		return
	}
	if in.config.hasRoutes(false) && !slices.ContainsFunc(c.Listeners, func(l Listener) bool { return l.Service == "" && l.Protocol != ProtocolTCP }) {
		unused := path("routes")
		if in.config.hasRoutes(true) {
			unused = unused.item(slices.IndexFunc(c.Routes, func(r Route) bool { return r.Match.SNI == "" }))
		}
		in.warn(unused, "not used: each listener has a service of its own")
	}
	for i := range c.Routes {
		warnForeign(in, path("routes").item(i), &c.Routes[i])
	}
	used := c.RoutedServices()
	for i := range c.Routes {
		for _, s := range c.Routes[i].filters() {
			used = append(used, s.sendsTo())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Services)) {
		if !slices.Contains(used, name) {
			in.warn(path("services").entry(name), "not used: no listener and no route leads to it")
		}
	}
}

// checkReached reports routes behind another route that takes all their requests, because it has the same
// match or none, or all their connections.
func checkReached(in scope) {
	matches := map[string]int{} // routes of requests, by the text of their matches
	for i := range in.config.Routes {
		m, at := &in.config.Routes[i].Match, path("routes").item(i)
		if m.SNI != "" {
			takes := func(earlier Route) bool { return earlier.Match.SNI != "" && earlier.Match.TakesServerName(m.SNI) }
			if j := slices.IndexFunc(in.config.Routes[:i], takes); j >= 0 {
				in.report(at, "never reached: routes[%d] takes all connections that this one does", j)
			}
			continue
		}
		first := i
		for _, same := range []Match{m.canonical(), {}} {
			if j, earlier := matches[same.text()]; earlier {
				first = min(first, j)
			}
		}
		if first < i {
			in.report(at, "never reached: routes[%d] matches all requests that this one does", first)
			continue
		}
		matches[m.canonical().text()] = i
	}
}

// checkLoops reports endpoints of a service that are a listener whose requests go to that service.
func checkLoops(in scope) {
	c := in.config
	for i := range c.Listeners {
		l := &c.Listeners[i]
		reached := map[string]bool{}
		c.follow(l, reached)
		for _, name := range slices.Sorted(maps.Keys(reached)) {
			for j, e := range c.Services[name].Endpoints {
				in.refuseIf(arrivesAt(e.Address, l.Address), path("services").entry(name).key("endpoints").item(j),
					"a loop: this is listener %s, whose requests come here", l.Name)
			}
		}
	}
}

// follow adds to reached the services that the requests of a listener go to, directly or
// through other listeners of this configuration.
func (c *Config) follow(l *Listener, reached map[string]bool) {
	for _, name := range c.leadsTo(l) {
		s := c.Services[name]
		if s == nil || reached[name] {
			continue
		}
		reached[name] = true
		for i := range c.Listeners {
			next := &c.Listeners[i]
			if slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return arrivesAt(e.Address, next.Address) }) {
				c.follow(next, reached)
			}
		}
	}
}

// leadsTo returns the services of a listener. A route that changes its requests is left out: they
// may match another route when they come back. So is one that puts connections into TLS.
func (c *Config) leadsTo(l *Listener) (services []string) {
	if l.Service != "" {
		return []string{l.Service}
	}
	for i := range c.Routes {
		r := &c.Routes[i]
		s := c.Services[r.Service]
		switch ofConnections := r.Match.SNI != ""; {
		case ofConnections != (l.Protocol == ProtocolTCP), ofConnections && s != nil && s.TLS.Enabled():
		case r.Rewrite == (Rewrite{}) && !r.RequestHeaders.Given():
			services = append(services, r.services()...)
		}
	}
	return services
}

// Host is what only the process knows of the host that it runs on.
type Host interface {
	// IsOwn reports whether an address is one of the host.
	IsOwn(addr netip.Addr) bool

	// Bound returns where the process listens for an address with a host name, as DNS had it when the socket was bound. ok is
	// false if there is no such socket.
	Bound(address string) (at netip.AddrPort, ok bool)
}

// ComesBack reports whether a connection to an endpoint of a service arrives at a listener whose requests go to that service.
func (c *Config) ComesBack(service string, at netip.AddrPort, on Host) bool {
	for i := range c.Listeners {
		l := &c.Listeners[i]
		if !arrives(at, l.Address, on) {
			continue // without more work: most endpoints have another port
		}
		reached := map[string]bool{}
		if c.follow(l, reached); reached[service] {
			return true
		}
	}
	return false
}

// IsAdmin reports whether a connection to an address arrives at the admin API.
func (c *Config) IsAdmin(at netip.AddrPort, on Host) bool { return arrives(at, c.Admin.Address, on) }

// arrives reports whether a connection to an address arrives at a listener with an address of the configuration.
func arrives(at netip.AddrPort, address string, on Host) bool {
	of, ok := bindaddr.Parse(address)
	if !ok {
		of, ok = on.Bound(address)
	}
	return ok && bindaddr.Covers(of, at) && (of.Addr() == at.Addr() || at.Addr().IsLoopback() || on.IsOwn(at.Addr()))
}

// arrivesAt reports whether a connection from this host to addr surely arrives at a listener
// that is bound to the address bound.
func arrivesAt(addr, bound string) bool {
	i, j := strings.LastIndexByte(addr, ':'), strings.LastIndexByte(bound, ':')
	switch {
	case addr == bound:
		return addr != ""
	case i < 0 || j < 0 || addr[i:] != bound[j:]:
		return false
	}
	to, at := ipOf(addr[:i]), ipOf(bound[:j])
	switch {
	case !to.IsValid():
		return false
	case bound[:j] == "" || at == netip.IPv6Unspecified():
		return to.IsLoopback()
	case at == netip.IPv4Unspecified():
		return to.Is4() && to.IsLoopback()
	}
	return to == at
}

// ipOf returns the IP address of a host, and the zero Addr for a name other than localhost.
func ipOf(host string) netip.Addr {
	if host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(strings.Trim(host, "[]"))
	if err != nil {
		return netip.Addr{}
	}
	return ip.Unmap()
}
