package stream

import (
	"slices"

	"github.com/remora-proxy/remora/proxy/fault"
)

// endpointID is an endpoint of a service. The zero endpointID is none.
type endpointID struct{ service, addr string }

// SetDown replaces the endpoints of a service that get no stream. It cuts the streams that they have.
func (s *Server) SetDown(service string, addrs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(addrs) == 0 {
		delete(s.down, service)
		return
	}
	s.down[service] = addrs
	cut := 0
	for p := range s.open {
		if of := p.endpointID(); of.service == service && slices.Contains(addrs, of.addr) {
			p.cut(fault.EndpointDown)
			cut++
		}
	}
	if cut > 0 {
		s.opt.Logger.Info("streams cut: the health check of their endpoint fails", "service", service, "streams", cut)
	}
}

func (s *Server) isDown(of endpointID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Contains(s.down[of.service], of.addr)
}

func (p *pair) endpointID() endpointID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.of
}
