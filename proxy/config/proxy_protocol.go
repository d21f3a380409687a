package config

import (
	"net/netip"
	"slices"
)

// ProxyProtocol says that proxies make the connections of a listener for its clients.
type ProxyProtocol struct {
	// CIDRs of the proxies. Each of their connections begins with a header of the PROXY protocol, v1 or v2, within `timeouts.header`, and is then its client's. All other connections are closed: `bad-proxy-header`. Unset means that there is no header.
	Trust []string `yaml:"trust" filled:"true" reload:"new listener; another list: next connection"`
}

// Enabled reports whether connections begin with a header.
func (p *ProxyProtocol) Enabled() bool { return len(p.Trust) > 0 }

// Trusts returns the proxies.
func (p *ProxyProtocol) Trusts() Trust { return Trust{From: prefixes(p.Trust)} }

// check reports what is no CIDR.
func (p *ProxyProtocol) check(in scope, at path) {
	for i, text := range p.Trust {
		_, err := parsePrefix(text)
		in.refuseIf(err != nil, at.key("trust").item(i), "expected a CIDR such as 10.0.0.0/8, got %q", text)
	}
}

// Trust is whom Forwarded.Trust names. At most one field is set; none means nobody.
type Trust struct {
	All  bool           // every client
	Hops int            // proxies in front, the nearest of which is the client
	From []netip.Prefix // addresses of proxies
}

// Contains reports whether addr is one of From.
func (t *Trust) Contains(addr netip.Addr) bool {
	addr = addr.Unmap().WithZone("")
	return slices.ContainsFunc(t.From, func(p netip.Prefix) bool { return p.Contains(addr) })
}

// prefixes returns the CIDRs of a valid list.
func prefixes(list []string) (all []netip.Prefix) {
	for _, text := range list {
		if p, err := parsePrefix(text); err == nil {
			all = append(all, p)
		}
	}
	return all
}

// parsePrefix reads a CIDR, or one address.
func parsePrefix(text string) (netip.Prefix, error) {
	if addr, err := netip.ParseAddr(text); err == nil {
		addr = addr.Unmap()
		return addr.WithZone("").Prefix(addr.BitLen())
	}
	p, err := netip.ParsePrefix(text)
	return p.Masked(), err
}
