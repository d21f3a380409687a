package loop

import "net/netip"

// sourceBits is the length of the IPv6 prefix that makes a source. A host may choose the other
// bits freely (RFC 4291 section 2.5.4).
const sourceBits = 64

// Source returns the source of connections from addr: an IPv4 address, also if an IPv6 socket
// accepted it, or an IPv6 network. An invalid address is a source, too.
func Source(addr netip.Addr) netip.Addr {
	addr = addr.Unmap()
	if addr.Is6() {
		network, _ := addr.WithZone("").Prefix(sourceBits)
		return network.Addr()
	}
	return addr
}
