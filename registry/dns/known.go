package dns

import (
	"net/netip"
	"time"
)

// name is what is known of a host name.
type name struct {
	addrs []netip.Addr // sorted; kept while lookups fail
	lacks error        // of the last lookup: why addrs may lack IPv4 ones
	err   error        // of the last lookup
	due   time.Time    // when it is looked up again; zero: it has not been yet
	tries int          // that have found nothing, while there are no addrs
}

// Known is what a Watcher knows of host names.
type Known map[string]name

// Addrs are the addresses of the names that have some.
func (k Known) Addrs() map[string][]netip.Addr {
	all := make(map[string][]netip.Addr)
	for host, n := range k {
		if len(n.addrs) > 0 {
			all[host] = n.addrs
		}
	}
	return all
}

// KnownAs is what another process knows, as Addrs tells it: to be looked up again at once.
func KnownAs(addrs map[string][]netip.Addr) Known {
	k := make(Known, len(addrs))
	for host, a := range addrs {
		k[host] = name{addrs: usable(a)}
	}
	return k
}

// known is what o.Known has of host, unless that is too old: what was at its addresses may
// be another's by now.
func (o *Options) known(host string) name {
	if !time.Now().Before(o.until) {
		return name{}
	}
	n := o.Known[host]
	if n.err != nil || len(n.addrs) == 0 {
		n.due = time.Time{} // who reloads may have put right why
	}
	return n
}

// Known is a copy of what the watches that last know by now.
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
