// Package bindaddr compares the addresses of listening TCP sockets: two sockets can't listen at
// addresses that overlap.
package bindaddr

import (
	"net/netip"
	"strings"
)

// Parse returns what a socket at "ip:port" listens at. No host is all addresses, as [::] is. ok is
// false for host names and Unix sockets.
func Parse(addr string) (at netip.AddrPort, ok bool) {
	if strings.HasPrefix(addr, ":") {
		addr = "[::]" + addr
	}
	at, err := netip.ParseAddrPort(addr)
	return unmap(at), err == nil
}

func unmap(at netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// Covers reports whether a socket at wide gets each connection that one at narrow would get: both
// have one port, and one address, or wide has all addresses. [::] has those of IPv4, too.
func Covers(wide, narrow netip.AddrPort) bool {
	of := wide.Addr()
	return wide.Port() == narrow.Port() && (of == narrow.Addr() ||
		of == netip.IPv6Unspecified() || of == netip.IPv4Unspecified() && narrow.Addr().Is4())
}

// Overlap reports whether one of two sockets covers the other.
func Overlap(a, b netip.AddrPort) bool { return Covers(a, b) || Covers(b, a) }
