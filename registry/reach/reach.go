// Package reach decides which addresses the endpoints of a registry may have. Who writes into a registry says where requests
// go, but not that they go to what only this host should reach: its loopback, the link, metadata services, or the sidecar
// itself. Such endpoints are left out, counted and logged. The others stay.
//
// Package dns asks, for all registries, once names have become addresses. The rule:
//
//   - Addresses of the kinds of package special are refused, but for reserved and translated ones, which are networks
//     of their owners.
//   - Loopback is permitted if the registry itself is there, as on a developer's machine.
//   - Listeners of this sidecar are refused to the services that their requests go to, and its admin API to all.
//   - An entry of Options.Allow opens an address, if its network is as narrow as the special one.
//   - An address that the configuration or a local file lists is permitted. The addresses of a listed name are judged, unless
//     /etc/hosts has them.
package reach

import (
	"cmp"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/remora-proxy/remora/internal/special"
	"github.com/remora-proxy/remora/registry"
)

// Reason is why an endpoint is refused. It is stable: a label in metrics, and in the log.
type Reason string

// Reasons besides the kinds of package special.
const (
	Loop  Reason = "loop"  // a listener of this sidecar, whose requests go to the service
	Admin Reason = "admin" // the admin API of this sidecar
)

// Code of the line in the log.
const Code = "endpoint-refused"

// Options configures a Rule. The zero value is usable.
type Options struct {
	Source string // name of the registry

	// Listed says that what the source has is from the configuration or a file of this host. Only addresses from DNS
	// are asked about.
	Listed bool

	Local bool           // the registry is on a loopback address
	Allow []netip.Prefix // opens special addresses

	// Own returns Loop, Admin or "" for an endpoint of a service. nil means always "". It is called from several goroutines.
	Own func(service string, at netip.AddrPort) Reason

	Logger *slog.Logger // nil means no logs
}

// Rule is the rule for one registry. A nil Rule permits all. Its methods may be called from any goroutine.
type Rule struct {
	opt Options

	mu      sync.Mutex
	watches map[*Watch]struct{}
	counts  map[Reason]uint64
}

// New returns a Rule.
func New(opt Options) *Rule {
	opt.Logger = cmp.Or(opt.Logger, slog.New(slog.DiscardHandler))
	return &Rule{opt: opt, watches: make(map[*Watch]struct{}), counts: make(map[Reason]uint64)}
}

// Listed is Options.Listed. It is false for a nil Rule.
func (r *Rule) Listed() bool { return r != nil && r.opt.Listed }

// Refused is an endpoint that is refused now.
type Refused struct {
	Service string `json:"service"`
	Address string `json:"address"`
	Host    string `json:"host,omitempty"` // the name that led to the address
	Reason  Reason `json:"reason"`
}

// Refused returns some of the endpoints that are refused now, at most n, by service and address.
func (r *Rule) Refused(n int) (all []Refused) {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watches {
		for _, e := range w.refused {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b Refused) int {
		return cmp.Or(cmp.Compare(a.Service, b.Service), cmp.Compare(a.Address, b.Address), cmp.Compare(a.Host, b.Host))
	})
	all = slices.Compact(all) // a service may have two watches for a while
	return all[:min(len(all), n)]
}

// JudgeAgain has all watches ask again, after Options.Own has changed its mind.
func (r *Rule) JudgeAgain() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for w := range r.watches {
		w.again()
	}
}

// Counts returns how many endpoints were refused. One that comes again counts again.
func (r *Rule) Counts() map[Reason]uint64 {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.counts)
}

// Watch returns the Rule for a watch of a service. again is called, from any goroutine and while the Rule is locked, once
// Permitted must be called again with the same list. It must not block. The caller must close the Watch.
func (r *Rule) Watch(service string, again func()) *Watch {
	if r == nil {
		return nil
	}
	w := &Watch{rule: r, service: service, again: again}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watches[w] = struct{}{}
	return w
}

// maxTold limits the addresses that a Watch remembers as logged. Others are not logged.
const maxTold = 1024

// Watch applies the rule to the endpoints of one watch of a service. A nil Watch permits all. One goroutine at a time may call
// Permitted.
type Watch struct {
	rule    *Rule
	service string
	again   func()
	refused map[string]Refused  // by address, of the last list; guarded by rule.mu
	told    map[string]struct{} // addresses that were logged
}

// Permitted returns the endpoints that are permitted, the list itself if all are. Their addresses are "ip:port" or Unix sockets.
// ofHost reports whether the source itself lists the address of an endpoint, or a name that has the address in /etc/hosts.
func (w *Watch) Permitted(endpoints []registry.Endpoint, ofHost func(*registry.Endpoint) bool) []registry.Endpoint {
	if w == nil {
		return endpoints
	}
	var refused map[string]Refused
	for i := range endpoints {
		e := &endpoints[i]
		if reason := w.rule.Check(w.service, e.Addr, w.rule.opt.Listed && ofHost(e)); reason != "" {
			if refused == nil {
				refused = make(map[string]Refused)
			}
			refused[e.Addr] = Refused{Service: w.service, Address: e.Addr, Host: e.Host, Reason: reason}
		}
	}
	w.note(refused)
	if len(refused) == 0 {
		return endpoints
	}
	return slices.DeleteFunc(slices.Clone(endpoints), func(e registry.Endpoint) bool {
		_, is := refused[e.Addr]
		return is
	})
}

// Check returns why an address is refused to a service, or "". ofHost is what the function of Permitted returns.
func (r *Rule) Check(service, addr string, ofHost bool) Reason {
	if r == nil || r.opt.Listed && ofHost {
		return ""
	}
	at, err := netip.ParseAddrPort(addr)
	if err != nil { // a Unix socket, which only the configuration can list
		return ""
	}
	o := &r.opt
	at = netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())
	n, isSpecial := special.Of(at.Addr())
	opened := func(p netip.Prefix) bool { return p.Contains(at.Addr()) && n.Opens(p) }
	switch {
	case !isSpecial, n.Kind == special.Reserved, n.Kind == special.Translated:
	case n.Kind == special.Loopback && o.Local:
	case !slices.ContainsFunc(o.Allow, opened):
		return Reason(n.Kind)
	}
	if o.Own == nil {
		return ""
	}
	return o.Own(service, at)
}

// note records what is refused now, and counts and logs what was not before.
func (w *Watch) note(refused map[string]Refused) {
	w.rule.mu.Lock()
	defer w.rule.mu.Unlock()
	for addr, e := range refused {
		if w.refused[addr].Reason == e.Reason {
			continue
		}
		w.rule.counts[e.Reason]++
		if _, was := w.told[addr]; !was && len(w.told) < maxTold {
			if w.told == nil {
				w.told = make(map[string]struct{})
			}
			w.told[addr] = struct{}{}
			w.rule.opt.Logger.Warn("endpoint refused: a registry must not lead there", "code", Code, "reason", string(e.Reason),
				"source", w.rule.opt.Source, "service", w.service, "address", addr, "host", e.Host)
		}
	}
	w.refused = refused
}

// Close ends the watch.
func (w *Watch) Close() {
	if w == nil {
		return
	}
	w.rule.mu.Lock()
	defer w.rule.mu.Unlock()
	delete(w.rule.watches, w)
}
