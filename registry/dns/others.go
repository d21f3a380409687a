package dns

import (
	"slices"
	"sync"
)

// Others has the second addresses of endpoints, for host names with addresses of both families: the first
// address is of IPv4, the second of IPv6. The second is where to connect if the first does not accept. Any
// goroutine may call its methods.
type Others struct {
	mu       sync.RWMutex
	services map[string][]secondAddrs // of a service, the newest last; services without any are missing
}

// secondAddrs are the second addresses of a service that one watch knows. While one watch replaces another,
// a service has two.
type secondAddrs struct {
	of    *watch
	addrs map[string]string // by the first ones
}

// Of returns the second address of the service's endpoint whose first address is addr, or "".
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

// Empty reports whether no endpoint has a second address.
func (o *Others) Empty() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.services) == 0
}

// set replaces the second addresses that a watch knows. Those of other watches stay.
func (o *Others) set(service string, of *watch, all map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.remove(service, of)
	if len(all) == 0 {
		return
	}
	if o.services == nil {
		o.services = make(map[string][]secondAddrs)
	}
	o.services[service] = append(o.services[service], secondAddrs{of, all})
}

// forget removes the second addresses of a watch that has ended.
func (o *Others) forget(of *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for service := range o.services {
		o.remove(service, of)
	}
}

// remove removes the second addresses of a service that a watch knows. o is locked.
func (o *Others) remove(service string, of *watch) {
	left := slices.DeleteFunc(o.services[service], func(s secondAddrs) bool { return s.of == of })
	if len(left) == 0 {
		delete(o.services, service)
		return
	}
	o.services[service] = left
}
