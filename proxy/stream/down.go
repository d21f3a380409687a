package stream

import (
	"slices"
	"sync"

	"github.com/remora-proxy/remora/proxy/fault"
)

// endpointID is an endpoint of a service. The zero endpointID is none.
type endpointID struct{ service, addr string }

// downEndpoints are the endpoints that get no stream, since their health check fails. The zero value has none.
// Its methods may be called from any goroutine.
type downEndpoints struct {
	mu        sync.Mutex
	byService map[string][]string // addresses
}

// set replaces the endpoints of a service.
func (d *downEndpoints) set(service string, addrs []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case len(addrs) == 0:
		delete(d.byService, service)
	case d.byService == nil:
		d.byService = map[string][]string{service: addrs}
	default:
		d.byService[service] = addrs
	}
}

func (d *downEndpoints) has(id endpointID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.byService[id.service], id.addr)
}

// SetDown replaces the endpoints of a service that get no stream. It cuts the streams that they have.
func (s *Server) SetDown(service string, addrs []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down.set(service, addrs); len(addrs) == 0 {
		return
	}
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
