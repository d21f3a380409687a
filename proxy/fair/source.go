package fair

import (
	"net"
	"net/netip"

	"github.com/remora-proxy/remora/proxy/loop"
)

// SourceOf returns the loop.Source of a connection from remote. An address that is not of TCP
// has the zero Addr.
func SourceOf(remote net.Addr) netip.Addr {
	if tcp, ok := remote.(*net.TCPAddr); ok {
		return loop.Source(tcp.AddrPort().Addr())
	}
	return netip.Addr{}
}
