package reactor

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"

	"github.com/remora-proxy/remora/proxy/fair"
)

type connLimits struct {
	max       int64
	maxSource int // 0 means no limit, and bySource stays empty

	taken         atomic.Int64
	refused       atomic.Int64 // because of max, or of the listener's limit
	refusedSource atomic.Int64 // because of maxSource

	// bySource has an entry for each source with a connection, so at most max.
	mu       sync.Mutex
	bySource map[netip.Addr]int
}

type listenerLimit struct {
	max   int64 // 0 means no limit
	taken atomic.Int64
}

// reservation counts an accepted connection. The zero value, of a dialled one, does not.
type reservation struct {
	of     *connLimits
	room   *listenerLimit
	source netip.Addr
}

// reserve counts a connection from remote; false means that a limit is reached.
func (p *connLimits) reserve(remote net.Addr, in *listenerLimit) (_ reservation, ok bool) {
	taken, here := p.taken.Add(1), in.taken.Add(1)
	got := reservation{of: p, room: in, source: fair.SourceOf(remote)}
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
	return reservation{}, false
}

// release uncounts the connection. It may be called again.
func (at *reservation) release() {
	p := at.of
	if p == nil {
		return
	}
	at.of = nil
	p.forgetSource(at.source)
	at.room.taken.Add(-1)
	p.taken.Add(-1)
}

func (p *connLimits) countSource(source netip.Addr) bool {
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

func (p *connLimits) forgetSource(source netip.Addr) {
	if p.maxSource == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.bySource[source]--; p.bySource[source] == 0 {
		delete(p.bySource, source)
	}
}
