package stream

import (
	"net"
	"net/netip"
	"slices"

	"github.com/remora-proxy/remora/internal/special"
	"github.com/remora-proxy/remora/proxy/config"
)

// reach decides where a listener's direct requests may go. Special addresses are opened only by an entry for them, or for a part of
// their network: a name that leads to them, or a wider network, may have been chosen by somebody else.
type reach struct {
	allow []config.Destination // empty means everywhere but to special addresses
	own   []netip.Addr         // of this host: the sidecar may listen there
	blind bool                 // own is not known, so any address may be one
}

// permits reports whether to, an address of host, may be reached.
func (r *reach) permits(host string, to netip.AddrPort) bool {
	of := r.specialOf(to.Addr())
	for i := range r.allow {
		d := &r.allow[i]
		switch {
		case d.Port != 0 && d.Port != to.Port():
		case d.Prefix.IsValid():
			if d.Prefix.Contains(to.Addr()) && d.Prefix.Bits() >= of.Bits() { // -1 if nothing is special
				return true
			}
		case !of.IsValid() && d.MatchName(host):
			return true
		}
	}
	return len(r.allow) == 0 && !of.IsValid()
}

// specialOf returns the special network that addr is in, or addr alone if it may be this host's or
// stands for a special address of IPv4. The zero Prefix means that nothing is special.
func (r *reach) specialOf(addr netip.Addr) netip.Prefix {
	if n, ok := special.Of(addr); ok {
		return n.Prefix
	}
	if r.blind || slices.Contains(r.own, addr) || slices.Contains(r.own, special.Within(addr)) {
		return netip.PrefixFrom(addr, addr.BitLen())
	}
	return netip.Prefix{}
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
