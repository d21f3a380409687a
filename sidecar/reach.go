package sidecar

import (
	"cmp"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/remora-proxy/remora/internal/bindaddr"
	"github.com/remora-proxy/remora/proxy/admin"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/registry/reach"
)

// reaches are the rules for the addresses of endpoints, one for each registry. They last as long as the process, so that reloads do
// not reset their counts.
type reaches struct {
	rules map[string]*reach.Rule        // by the registry's name
	cfg   atomic.Pointer[config.Config] // in use
	next  atomic.Pointer[config.Config] // of a reload that is not done; it has the new services
	host  host
}

// start makes the rules.
func (r *reaches) start(cfg *config.Config, log *slog.Logger) {
	r.cfg.Store(cfg)
	r.rules = make(map[string]*reach.Rule)
	for _, of := range registries {
		r.rules[of.name] = reach.New(reach.Options{
			Source: of.name, Listed: of.listed, Local: of.local != nil && of.local(cfg), Allow: cfg.Registry.Opened(), Own: r.own, Logger: log,
		})
	}
}

// settle ends a start or a reload, whose outcome is that cfg is in use, with the sockets of bound. All endpoints are judged by these.
func (r *reaches) settle(cfg *config.Config, bound boundNames) {
	r.host.bound.Store(&bound)
	r.cfg.Store(cfg)
	r.next.Store(nil)
	for _, rule := range r.rules {
		rule.JudgeAgain()
	}
}

// own returns what an endpoint of a service is of this sidecar, for which it must not be used, or "".
func (r *reaches) own(service string, at netip.AddrPort) reach.Reason {
	cfg := r.cfg.Load()
	if next := r.next.Load(); next != nil && cfg.Services[service] == nil {
		cfg = next
	}
	switch {
	case cfg.IsAdmin(at, &r.host):
		return reach.Admin
	case cfg.ComesBack(service, at, &r.host):
		return reach.Loop
	}
	return ""
}

// boundNames are where sockets listen whose addresses in the configuration have host names, by these.
type boundNames map[string]netip.AddrPort

// add adds the first of the sockets at an address, which is the one at the address itself.
func (b boundNames) add(address string, sockets []net.Listener) {
	if _, isIP := bindaddr.Parse(address); isIP || len(sockets) == 0 {
		return
	}
	if at, ok := bindaddr.Parse(sockets[0].Addr().String()); ok {
		b[address] = at
	}
}

// boundNames returns where the admin API, the listeners in use and further ones listen.
func (s *Sidecar) boundNames(more ...*openListener) boundNames {
	all := make(boundNames)
	all.add(s.admin.address, s.admin.sockets)
	for _, l := range append(slices.Collect(maps.Values(s.listeners.byName)), more...) {
		all.add(l.address, l.sockets)
	}
	return all
}

// host is this host: the addresses of its interfaces, and where the sidecar listens. It is a config.Host.
type host struct {
	bound atomic.Pointer[boundNames]

	mu    sync.Mutex
	read  time.Time
	addrs map[netip.Addr]bool
}

// Bound implements config.Host.
func (h *host) Bound(address string) (at netip.AddrPort, ok bool) {
	if names := h.bound.Load(); names != nil {
		at, ok = (*names)[address]
	}
	return at, ok
}

// hostAddrsAge is how long the addresses count. A registry may have many endpoints about which it is asked.
const hostAddrsAge = time.Second

// IsOwn implements config.Host. It is false if the system does not say: systemd does not without AF_NETLINK in
// RestrictAddressFamilies.
func (h *host) IsOwn(addr netip.Addr) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if now := time.Now(); now.Sub(h.read) > hostAddrsAge {
		all, _ := net.InterfaceAddrs()
		h.read, h.addrs = now, make(map[netip.Addr]bool, len(all))
		for _, a := range all {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				h.addrs[p.Addr().Unmap()] = true
			}
		}
	}
	return h.addrs[addr]
}

// comesBack reports whether an endpoint of a service leads back to this sidecar, so that it must not be used.
func (r *reaches) comesBack(service, addr string) bool {
	at, err := netip.ParseAddrPort(addr)
	if err != nil { // a Unix socket
		return false
	}
	return r.own(service, netip.AddrPortFrom(at.Addr().Unmap().WithZone(""), at.Port())) != ""
}

// maxRefused limits the endpoints that the admin API shows of a registry.
const maxRefused = 100

// stats returns what the admin API shows.
func (r *reaches) stats() (st admin.RefusedStats) {
	for name, rule := range r.rules {
		for _, e := range rule.Refused(maxRefused) {
			st.Endpoints = append(st.Endpoints, admin.RefusedEndpoint{
				Source: name, Service: e.Service, Address: e.Address, Host: e.Host, Reason: string(e.Reason),
			})
		}
		for reason, n := range rule.Counts() {
			st.Counts = append(st.Counts, admin.RefusedCount{Source: name, Reason: string(reason), Endpoints: n})
		}
	}
	slices.SortStableFunc(st.Endpoints, func(a, b admin.RefusedEndpoint) int { return strings.Compare(a.Source, b.Source) })
	slices.SortFunc(st.Counts, func(a, b admin.RefusedCount) int {
		return cmp.Or(strings.Compare(a.Source, b.Source), strings.Compare(a.Reason, b.Reason))
	})
	return st
}
