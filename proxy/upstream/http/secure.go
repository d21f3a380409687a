package http

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/fault"
)

// maxNames bounds the pools of an endpoint on a loop. Clients may ask for any name.
const maxNames = 64

// secure reaches one endpoint from one loop by TLS. It has a pool for each name that the
// endpoint must prove, so that no request uses a connection that was verified for another name.
type secure struct {
	service  *exchange.Service
	endpoint *exchange.Endpoint
	pools    map[string]*pool // by name
	scratch  []byte           // a name, in lower case
	retired  bool
}

func (s *secure) Send(a *exchange.Attempt) {
	name := s.nameFor(a)
	p := s.pools[string(name)]
	if p == nil {
		if !s.makeRoom() {
			a.Failed(fault.Overloaded)
			return
		}
		p = newPool(s.service, s.endpoint, string(name))
		p.retired = s.retired
		s.pools[p.name] = p
	}
	p.Send(a)
}

// nameFor returns the name that the endpoint must prove for a, valid until the next call.
func (s *secure) nameFor(a *exchange.Attempt) []byte {
	tls, name := &s.service.Config.TLS, s.scratch[:0]
	if tls.ByHost() {
		name = appendHost(name, a.Request().Authority)
	}
	if len(name) == 0 {
		name = append(name, tls.ServerName(s.endpoint.LB.Host, s.endpoint.LB.Addr)...)
	}
	s.scratch = name
	return name
}

// appendHost appends the host of "host:port" in lower case, without brackets.
func appendHost(dst, authority []byte) []byte {
	end := byte(':')
	if len(authority) > 0 && authority[0] == '[' {
		authority, end = authority[1:], ']'
	}
	for _, c := range authority {
		if c == end {
			break
		}
		if 'A' <= c && c <= 'Z' {
			c |= 0x20
		}
		dst = append(dst, c)
	}
	return dst
}

// makeRoom removes a pool without a request if there are maxNames, and reports whether there is
// room for another one.
func (s *secure) makeRoom() bool {
	if len(s.pools) < maxNames {
		return true
	}
	for name, p := range s.pools {
		if p.open == len(p.idle) {
			p.Retire()
			delete(s.pools, name)
			return true
		}
	}
	return false
}

func (s *secure) Retire() {
	s.retired = true
	for _, p := range s.pools {
		p.Retire()
	}
}

func (s *secure) Connections() (n int) {
	for _, p := range s.pools {
		n += p.open
	}
	return n
}

func (s *secure) Largest() (held, each int, h exchange.Holder) { return 0, 0, nil }
