package reactor

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
)

// places are those of accepted connections: limited in all, and for each source
// that they come from.
type places struct {
	max       int64
	maxSource int // 0: no bound, and nothing is kept by source

	taken         atomic.Int64
	refused       atomic.Int64 // for want of a place, here or in the room
	refusedSource atomic.Int64 // for having too many of them

	// bySource has an entry for each source with a connection, so never more
	// than max.
	mu       sync.Mutex
	bySource map[netip.Addr]int
}

// room is a listener's part of the places.
type room struct {
	max   int64 // 0: all there are
	taken atomic.Int64
}

// place is what one accepted connection holds. The zero place, that of a dialled
// one, is none.
type place struct {
	of     *places
	room   *room
	source netip.Addr
}

// take finds a place in the room for a connection from remote; ok is false if
// there is none.
func (p *places) take(remote net.Addr, in *room) (_ place, ok bool) {
	taken, here := p.taken.Add(1), in.taken.Add(1)
	got := place{of: p, room: in, source: sourceOf(remote)}
	switch {
	case taken > p.max || in.max > 0 && here > in.max:
		p.refused.Add(1)
	case !p.countSource(got.source):
		p.refusedSource.Add(1)
	default:
		return got, true
	}
	in.taken.Add(-1)
	p.taken.Add(-1)
	return place{}, false
}

// leave gives the place back, once.
func (at *place) leave() {
	p := at.of
	if p == nil {
		return
	}
	at.of = nil
	p.forgetSource(at.source)
	at.room.taken.Add(-1)
	p.taken.Add(-1)
}

func (p *places) countSource(source netip.Addr) bool {
	if p.maxSource == 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.bySource[source]
	if n == p.maxSource {
		return false
	}
	p.bySource[source] = n + 1
	return true
}

func (p *places) forgetSource(source netip.Addr) {
	if p.maxSource == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bySource[source]--; p.bySource[source] == 0 {
		delete(p.bySource, source)
	}
}

// sourceBits is how much of an IPv6 address tells one source from another: hosts
// choose the rest as they like (RFC 4291 section 2.5.4).
const sourceBits = 64

// sourceOf is whom a connection is counted for: the IPv4 address, also of a peer
// that an IPv6 socket accepted, or the network of an IPv6 one.
func sourceOf(remote net.Addr) netip.Addr {
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
