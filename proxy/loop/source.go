package loop

import "net/netip"

// UnixPeer is the RemoteAddr of a peer on a Unix socket. Its socket usually has no name.
const UnixPeer = "unix"

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

// PeerAddr returns the IP address of a Conn's RemoteAddr, and the zero Addr if it has none. For
// rules about addresses, a peer on a Unix socket is on loopback.
func PeerAddr(remote string) netip.Addr {
	if remote == UnixPeer {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	ap, _ := netip.ParseAddrPort(remote)
	return ap.Addr()
}
