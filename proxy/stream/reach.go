package stream

import (
	"net"
	"net/netip"
	"slices"

	"github.com/remora-proxy/remora/proxy/config"
)

// special are addresses that only an entry for them, or for a part of their network, opens: a
// name that leads to them, or a wider network, may have been chosen by somebody else.
var special = prefixes(
	"0.0.0.0/8", "127.0.0.0/8", "::/96", // this host; the last has addresses of IPv4, too
	"169.254.0.0/16", "fe80::/10", // link-local, and most metadata services
	"224.0.0.0/4", "240.0.0.0/4", "ff00::/8", // multicast, reserved, broadcast
	"100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32", // metadata: Alibaba, Azure, Oracle
	"fd00:ec2::/32", "fd20:ce::254/128", // metadata: AWS (also the credentials of EKS), Google
	"fd00:c1::a9fe:a9fe/128", "fd00:42::42/128", // metadata: Oracle, Scaleway
	// Tunnels and translators, where an address of IPv4 may be at any place, disguised or cut short: Teredo
	// (RFC 4380), IPv4-translated addresses (RFC 2765), and networks of local translators (RFC 8215).
	"2001::/32", "::ffff:0:0:0/96", "64:ff9b:1::/48",
)

// translated are networks of IPv6 whose addresses have one of IPv4 from a byte on.
var translated = []struct {
	prefix netip.Prefix
	at     int
}{
	{netip.MustParsePrefix("64:ff9b::/96"), 12}, // RFC 6052
	{netip.MustParsePrefix("2002::/16"), 2},     // RFC 3056
}

func prefixes(all ...string) (out []netip.Prefix) {
	for _, text := range all {
		out = append(out, netip.MustParsePrefix(text))
	}
	return out
}

// reach decides where a listener's direct requests may go.
type reach struct {
	allow []config.Destination // empty means everywhere but to special addresses
	own   []netip.Addr         // of this host: the sidecar may listen there
	blind bool                 // own is not known, so any address may be one
}

// permits reports whether to, an address of host, may be reached.
func (r *reach) permits(host string, to netip.AddrPort) bool {
	special := r.specialOf(to.Addr())
	for i := range r.allow {
		d := &r.allow[i]
		switch {
		case d.Port != 0 && d.Port != to.Port():
		case d.Prefix.IsValid():
			if d.Prefix.Contains(to.Addr()) && d.Prefix.Bits() >= special.Bits() { // -1 if nothing is special
				return true
			}
		case !special.IsValid() && d.MatchName(host):
			return true
		}
	}
	return len(r.allow) == 0 && !special.IsValid()
}

// specialOf returns the special network that addr is in, or addr alone if it may be this host's or
// stands for a special address of IPv4. The zero Prefix means that nothing is special.
func (r *reach) specialOf(addr netip.Addr) netip.Prefix {
	for _, p := range special {
		if p.Contains(addr) {
			return p
		}
	}
	if v4 := withinIPv6(addr); v4.IsValid() && r.specialOf(v4).IsValid() {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	if r.blind || slices.Contains(r.own, addr) {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	return netip.Prefix{}
}

// withinIPv6 returns the address of IPv4 that addr stands for, or the zero Addr.
func withinIPv6(addr netip.Addr) netip.Addr {
	b := addr.As16()
	for _, t := range translated {
		if t.prefix.Contains(addr) {
			return netip.AddrFrom4([4]byte(b[t.at : t.at+4]))
		}
	}
	if isatap := b[8]&^3 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe; isatap { // RFC 5214, in any network
		return netip.AddrFrom4([4]byte(b[12:]))
	}
	return netip.Addr{}
}

// ownAddresses returns the addresses of this host's interfaces. The system may forbid to ask for them: systemd does so
// without AF_NETLINK in RestrictAddressFamilies.
func ownAddresses() (own []netip.Addr, err error) {
	all, err := net.InterfaceAddrs()
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			own = append(own, p.Addr().Unmap())
		}
	}
	return own, err
}
