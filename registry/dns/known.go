package dns

import (
	"net/netip"
	"time"
)

type name struct {
	addrs   []netip.Addr // sorted; kept while lookups fail
	six     []netip.Addr // sorted; those of IPv6 if addrs are of IPv4
	ipv4Err error        // of the last lookup: why addrs may lack IPv4 addresses
	err     error        // of the last lookup
	due     time.Time    // time of the next lookup; zero means that there was none yet
	tries   int          // lookups without result, while addrs is empty
}

// Known is a Watcher's knowledge of host names.
type Known map[string]name

// Addrs returns the addresses of all names that have some.
func (k Known) Addrs() map[string][]netip.Addr {
	all := make(map[string][]netip.Addr)
	for host, n := range k {
		if len(n.addrs) > 0 {
			all[host] = n.addrs
		}
	}
	return all
}

// KnownFrom returns the knowledge of another process, as returned by Addrs. Its names are looked
// up again at once.
func KnownFrom(addrs map[string][]netip.Addr) Known {
	k := make(Known, len(addrs))
	for host, a := range addrs {
		k[host] = name{addrs: usable(a)}
	}
	return k
}

// known returns what o.Known has for host, unless that is too old: the addresses may belong to
// another host by now.
func (o *Options) known(host string) name {
	if !time.Now().Before(o.until) {
		return name{}
	}
	n := o.Known[host]
	if n.err != nil || len(n.addrs) == 0 {
		n.due = time.Time{} // the cause may have been fixed before the reload
	}
	return n
}

// Known returns a copy of the knowledge of all running watches.
func (w *Watcher) Known() Known {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := make(Known)
	for t := range w.watches {
		t.mu.Lock()
		for host, n := range t.names {
			if len(n.addrs) > 0 || len(all[host].addrs) == 0 {
				all[host] = n
			}
		}
		t.mu.Unlock()
	}
	return all
}
