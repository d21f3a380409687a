package fair

import (
	"net"
	"net/netip"
)

// sourceBits is the length of the IPv6 prefix that makes a source. A host may choose the other
// bits freely (RFC 4291 section 2.5.4).
const sourceBits = 64

// SourceOf returns the source of a connection from remote: an IPv4 address, also if an IPv6
// socket accepted it, or an IPv6 network. An address that is not of TCP has the zero Addr.
func SourceOf(remote net.Addr) netip.Addr {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	addr := tcp.AddrPort().Addr().Unmap()
	if addr.Is4() {
		return addr
	}
	network, err := addr.WithZone("").Prefix(sourceBits)
	if err != nil {
		return netip.Addr{}
	}
	return network.Addr()
}
