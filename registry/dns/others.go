package dns

import (
	"maps"
	"sync"
)

// Others are the second addresses of host names with one address of IPv4, which is their endpoint, and one
// of IPv6: where to connect if the first does not accept. Any goroutine may call its methods.
type Others struct {
	mu       sync.RWMutex
	services map[string]seconds // services without any are missing
}

// seconds are the second addresses of a service.
type seconds struct {
	of    *watch            // the one that knows them
	addrs map[string]string // by the first ones
}

// Of returns the other address of the endpoint at addr of a service, or "".
func (o *Others) Of(service, addr string) string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.services[service].addrs[addr]
}

// Empty reports whether there are none.
func (o *Others) Empty() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.services) == 0
}

func (o *Others) set(service string, of *watch, all map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(all) == 0 {
		delete(o.services, service)
		return
	}
	if o.services == nil {
		o.services = make(map[string]seconds)
	}
	o.services[service] = seconds{of, all}
}

// forget removes those of a watch that has ended. Another may have taken its place.
func (o *Others) forget(of *watch) {
	o.mu.Lock()
	defer o.mu.Unlock()
	maps.DeleteFunc(o.services, func(_ string, s seconds) bool { return s.of == of })
}
