// Package byname keeps the pools of an endpoint with TLS: one for each name that the endpoint must
// prove, so that no request uses a connection that was verified for another name.
package byname

import (
	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/proxy/fair/share"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// maxNames bounds the pools of an endpoint on a loop. Clients may ask for any name.
const maxNames = 64

// Pool is the connections to an endpoint that has proved one name.
type Pool interface {
	race.Upstream
	// Unused reports whether no connection carries a request, and no request waits for one.
	Unused() bool
}

// Pools is the Upstream of one endpoint with TLS, from one loop.
type Pools struct {
	service  *service.Service
	endpoint *service.Endpoint
	newPool  func(name string) Pool
	pools    map[string]*named
	uses     uint64 // requests so far
	scratch  []byte // a name
	retired  bool
}

// named is the pool of one name.
type named struct {
	Pool
	source  share.Source // of the request that it was made for
	lastUse uint64       // Pools.uses at the last one
}

// New returns the pools of an endpoint, none at first.
func New(s *service.Service, e *service.Endpoint, newPool func(name string) Pool) *Pools {
	return &Pools{service: s, endpoint: e, newPool: newPool, pools: make(map[string]*named)}
}

// Send implements race.Upstream.
func (s *Pools) Send(a *race.Attempt) {
	req := a.Outgoing()
	if p := s.For(req.Request().Authority, req); p != nil {
		p.Send(a)
		return
	}
	a.Fail(fault.Overloaded)
}

// Request knows who it came from. It is asked only for a name without a pool.
type Request interface{ Client() shard.Client }

// For returns the pool for a request to authority, or nil if there are too many.
func (s *Pools) For(authority []byte, from Request) Pool {
	name := s.nameFor(authority)
	p := s.pools[string(name)]
	if p == nil {
		client := from.Client()
		source := client.Source()
		if !s.makeRoom(source) {
			return nil
		}
		p = &named{Pool: s.newPool(string(name)), source: source}
		if s.retired {
			p.Retire()
		}
		s.pools[string(name)] = p
	}
	s.uses++
	p.lastUse = s.uses
	return p.Pool
}

// nameFor returns the name that the endpoint must prove, valid until the next call.
func (s *Pools) nameFor(authority []byte) []byte {
	tls, name := &s.service.Config.TLS, s.scratch[:0]
	if tls.ByHost() {
		var buf hostname.Buffer
		name = append(name, hostname.Bare(hostname.Of(&buf, authority))...)
	}
	if len(name) == 0 {
		name = append(name, tls.ServerName(s.endpoint.LB.Host, s.endpoint.LB.Addr)...)
	}
	s.scratch = name
	return name
}

// makeRoom reports whether there is room for a pool for a source. If there are maxNames, the pool
// without a request that was used least recently gives way. If each has a request, a pool of the source that has
// too many does, see share.Counts. A pool that gives way carries its requests to their end.
func (s *Pools) makeRoom(source share.Source) bool {
	if len(s.pools) < maxNames {
		return true
	}
	least := s.leastRecent(func(p *named) bool { return p.Unused() })
	if least == "" {
		var have share.Counts
		for _, p := range s.pools {
			have.Add(p.source)
		}
		if from, ok := have.Excess(source); ok {
			least = s.leastRecent(func(p *named) bool { return p.source == from })
		}
	}
	p := s.pools[least]
	if p == nil {
		return false
	}
	p.Retire()
	delete(s.pools, least)
	return true
}

// leastRecent returns the name of the pool that was used least recently, of those that qualify; "" means none does.
func (s *Pools) leastRecent(qualifies func(p *named) bool) (name string) {
	var first *named
	for n, p := range s.pools {
		if (first == nil || p.lastUse < first.lastUse) && qualifies(p) {
			name, first = n, p
		}
	}
	return name
}

// Retire implements race.Upstream.
func (s *Pools) Retire() {
	s.retired = true
	for _, p := range s.pools {
		p.Retire()
	}
}

// Connections implements race.Upstream.
func (s *Pools) Connections() (n int) {
	for _, p := range s.pools {
		n += p.Connections()
	}
	return n
}

// Largest implements race.Upstream.
func (s *Pools) Largest() (held, each int, h shard.Holder) {
	for _, p := range s.pools {
		if n, e, holder := p.Largest(); holder != nil && n > held {
			held, each, h = n, e, holder
		}
	}
	return held, each, h
}
