// Package byname keeps the pools of an endpoint with TLS: one for each name that the endpoint must
// prove, so that no request uses a connection that was verified for another name.
package byname

import (
	"github.com/remora-proxy/remora/internal/hostname"
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// maxNames bounds the pools of an endpoint on a loop. Clients may ask for any name.
const maxNames = 64

// Pool is the connections to an endpoint that has proved one name.
type Pool interface {
	exchange.Upstream
	// Unused reports whether no connection carries a request, and no request waits for one.
	Unused() bool
}

// Pools is the Upstream of one endpoint with TLS, from one loop.
type Pools struct {
	service  *exchange.Service
	endpoint *exchange.Endpoint
	newPool  func(name string) Pool
	pools    map[string]Pool
	scratch  []byte // a name
	retired  bool
}

// New returns the pools of an endpoint, none at first.
func New(s *exchange.Service, e *exchange.Endpoint, newPool func(name string) Pool) *Pools {
	return &Pools{service: s, endpoint: e, newPool: newPool, pools: make(map[string]Pool)}
}

// Send implements exchange.Upstream.
func (s *Pools) Send(a *exchange.Attempt) {
	if p := s.For(a.Request().Authority); p != nil {
		p.Send(a)
		return
	}
	a.Failed(fault.Overloaded)
}

// For returns the pool for a request to authority, or nil if there are too many.
func (s *Pools) For(authority []byte) Pool {
	name := s.nameFor(authority)
	p := s.pools[string(name)]
	if p == nil {
		if !s.makeRoom() {
			return nil
		}
		p = s.newPool(string(name))
		if s.retired {
			p.Retire()
		}
		s.pools[string(name)] = p
	}
	return p
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

// makeRoom removes a pool without a request if there are maxNames, and reports whether there is
// room for another one.
func (s *Pools) makeRoom() bool {
	if len(s.pools) < maxNames {
		return true
	}
	for name, p := range s.pools {
		if p.Unused() {
			p.Retire()
			delete(s.pools, name)
			return true
		}
	}
	return false
}

// Retire implements exchange.Upstream.
func (s *Pools) Retire() {
	s.retired = true
	for _, p := range s.pools {
		p.Retire()
	}
}

// Connections implements exchange.Upstream.
func (s *Pools) Connections() (n int) {
	for _, p := range s.pools {
		n += p.Connections()
	}
	return n
}

// Largest implements exchange.Upstream.
func (s *Pools) Largest() (held, each int, h exchange.Holder) {
	for _, p := range s.pools {
		if n, e, holder := p.Largest(); holder != nil && n > held {
			held, each, h = n, e, holder
		}
	}
	return held, each, h
}
