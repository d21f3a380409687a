package forwarded

import (
	"bytes"
	"net/netip"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/loop"
)

// NearestClient returns the loop.Source of the client that the sender of a request has named last, in the last
// X-Forwarded-For: the peer of the sender. The zero Addr means that there is none, or no address of IP.
func NearestClient(hs []protocol.Header) netip.Addr {
	for i := len(hs) - 1; i >= 0; i-- {
		if protocol.EqualFold(hs[i].Name, "x-forwarded-for") {
			list := hs[i].Value
			return loop.Source(addrOf(bytes.Trim(list[bytes.LastIndexByte(list, ',')+1:], " \t")))
		}
	}
	return netip.Addr{}
}

// addrOf returns the address of an entry of a list, with or without a port. The zero Addr means that the entry has
// none.
func addrOf(entry []byte) netip.Addr {
	text := string(entry)
	if addr, err := netip.ParseAddr(text); err == nil {
		return addr
	}
	at, _ := netip.ParseAddrPort(text)
	return at.Addr()
}
