package dns

import "sync"

// Others are the second addresses of host names with one address of IPv4, which is their endpoint, and one
// of IPv6: where to connect if the first does not accept. Any goroutine may call its methods.
type Others struct {
	mu       sync.RWMutex
	services map[string]map[string]string // second addresses by first ones; services without any are missing
}

// Of returns the other address of the endpoint at addr of a service, or "".
func (o *Others) Of(service, addr string) string {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return o.services[service][addr]
}

// Empty reports whether there are none.
func (o *Others) Empty() bool {
	o.mu.RLock()
	defer o.mu.RUnlock()
	return len(o.services) == 0
}

func (o *Others) set(service string, all map[string]string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(all) == 0 {
		delete(o.services, service)
		return
	}
	if o.services == nil {
		o.services = make(map[string]map[string]string)
	}
	o.services[service] = all
}
