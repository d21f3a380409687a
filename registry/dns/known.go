package dns

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// errNoAddress is the error of a lookup that has found no address and no target.
var errNoAddress = errors.New("it has no address")

type name struct {
	addrs   []netip.Addr // sorted; kept while lookups fail
	targets []Target     // sorted; in place of addrs, if the name is that of SRV records
	six     []netip.Addr // sorted; those of IPv6 if addrs are of IPv4
	ofHost  bool         // addrs are from /etc/hosts
	ipv4Err error        // of the last lookup: why addrs may lack IPv4 addresses
	err     error        // of the last lookup; nil means that it has found addrs or targets
	due     time.Time    // time of the next lookup; zero means that there was none yet
	tries   int          // lookups without result, while the name is empty
}

func (n *name) empty() bool { return len(n.addrs) == 0 && len(n.targets) == 0 }

// Known is a Watcher's knowledge of host names.
type Known map[string]name

// Texts returns what is known of the names that have addresses or targets, for KnownFrom in another process.
func (k Known) Texts() map[string][]string {
	all := make(map[string][]string)
	for host, n := range k {
		for _, a := range n.addrs {
			all[host] = append(all[host], a.String())
		}
		if n.ofHost {
			all[host] = append(all[host], ofHostText)
		}
		for _, t := range n.targets {
			all[host] = append(all[host], fmt.Sprint(t.Addr, " ", t.Weight))
		}
	}
	return all
}

// ofHostText is a text of names whose addresses are from /etc/hosts. Processes that do not know the text leave it out.
const ofHostText = "hosts"

// KnownFrom returns the knowledge of another process, as returned by Texts. Its names are looked
// up again at once. What is no text of Texts is left out.
func KnownFrom(texts map[string][]string) Known {
	k := make(Known, len(texts))
	for host, of := range texts {
		var n name
		for _, text := range of {
			addr, weight, isTarget := strings.Cut(text, " ")
			if text == ofHostText {
				n.ofHost = true
			} else if !isTarget {
				if ip, err := netip.ParseAddr(addr); err == nil {
					n.addrs = append(n.addrs, ip)
				}
			} else if w, err := strconv.Atoi(weight); err == nil && w > 0 {
				n.targets = append(n.targets, Target{addr, w})
			}
		}
		n.addrs = usable(n.addrs)
		k[host] = n
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
