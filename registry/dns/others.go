package dns

import (
	"slices"
	"sync"
)

// Others are the second addresses of host names with addresses of both families. Each address of IPv4 is an
// endpoint, whose second address is one of IPv6: where to connect if the first does not accept. Any goroutine
// may call its methods.
type Others struct {
	mu       sync.RWMutex
	services map[string][]seconds // of a service, the newest last; services without any are missing
}

// seconds are the second addresses of a service that one watch knows. While one watch replaces another,
// a service has two.
type seconds struct {
	of    *watch
	addrs map[string]string // by the first ones
}

// Of returns the other address of the endpoint at addr of a service, or "".
func (o *Others) Of(service, addr string) string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	for _, s := range slices.Backward(o.services[service]) {
		if other := s.addrs[addr]; other != "" {
			return other
		}
	}
	return ""
}

// Empty reports whether there are none.
func (o *Others) Empty() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.services) == 0
}

// set replaces those of a watch. Those of other watches stay.
func (o *Others) set(service string, of *watch, all map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remove(service, of)
	if len(all) == 0 {
		return
	}
	if o.services == nil {
		o.services = make(map[string][]seconds)
	}
	o.services[service] = append(o.services[service], seconds{of, all})
}

// forget removes those of a watch that has ended.
func (o *Others) forget(of *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for service := range o.services {
		o.remove(service, of)
	}
}

// remove removes those of a watch. o is locked.
func (o *Others) remove(service string, of *watch) {
	left := slices.DeleteFunc(o.services[service], func(s seconds) bool { return s.of == of })
	if len(left) == 0 {
		delete(o.services, service)
		return
	}
	o.services[service] = left
}
