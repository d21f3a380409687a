package dns

import (
	"context"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/remora-proxy/remora/internal/srvname"
	"github.com/remora-proxy/remora/registry"
)

// Target is a host of SRV records.
type Target struct {
	Addr   string // "host:port"; the host is resolved like any other name
	Weight int    // relative to the other targets, 1 to registry.MaxWeight
}

// lookupSRV returns the targets with the best priority. A name without a usable target has none: the service is
// "decidedly not available" (RFC 2782).
func (r resolver) lookupSRV(ctx context.Context, name string) (Answer, error) {
	seen := &messageRecord{host: name, lowest: -1, srv: true}
	_, records, err := r.recording(seen).LookupSRV(ctx, "", "", name)
	if len(records) > 0 {
		err = nil // only of the others: their names are no host names
	}
	a := Answer{Targets: targets(records)}
	_, a.TTL = seen.found()
	return a, err
}

// targets returns the targets of the records with the lowest priority number, sorted: a resolver shuffles its answer. A
// weight of 0, which means hardly any requests beside others, is 1.
func targets(records []*net.SRV) (all []Target) {
	usable := func(r *net.SRV) bool { return r.Target != "." && r.Port > 0 }
	best := uint16(1<<16 - 1)
	for _, r := range records {
		if usable(r) {
			best = min(best, r.Priority)
		}
	}
	for _, r := range records {
		if r.Priority == best && usable(r) {
			host := strings.ToLower(strings.TrimSuffix(r.Target, "."))
			all = append(all, Target{net.JoinHostPort(host, strconv.Itoa(int(r.Port))), max(int(r.Weight), 1)})
		}
	}
	slices.SortFunc(all, func(a, b Target) int { return strings.Compare(a.Addr, b.Addr) })
	return all[:min(len(all), maxAddrs)]
}

// listed returns the endpoints of the inner watcher, with the targets that known has in place of names of SRV records. The
// weight of an endpoint multiplies those of its targets. Targets beyond MaxListed are left out.
func (t *watch) listed(known map[string]name) []registry.Endpoint {
	if !slices.ContainsFunc(t.in.Endpoints, isSRV) {
		return t.in.Endpoints
	}
	var all []registry.Endpoint
	for _, e := range t.in.Endpoints {
		if !isSRV(e) {
			all = append(all, e)
			continue
		}
		for _, target := range known[e.Addr].targets {
			if len(all) >= registry.MaxListed {
				break
			}
			one := e
			one.Addr, one.Weight = target.Addr, min(e.Weight*target.Weight, registry.MaxWeight)
			all = append(all, one)
		}
	}
	return all
}

func isSRV(e registry.Endpoint) bool { return srvname.Is(e.Addr) }
