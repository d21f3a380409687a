package registry

import "cmp"

// Limit bounds the endpoints of a service. What is in use stays: whoever writes more records into a registry can't push it out. The
// zero value bounds to MaxEndpoints. It is not safe for concurrent use.
type Limit struct {
	Most int // endpoints; 0 means MaxEndpoints

	isLogged bool
	last     []Endpoint // that Cut has returned
}

// Cut returns the endpoints of a service, at most as many as the limit: those that it has returned before, and the first of the
// others. endpoints are normalized, and nobody may change them afterwards. Cut calls warn, a method of slog.Logger, once others are
// left out, and not again until all fit.
func (l *Limit) Cut(endpoints []Endpoint, service string, warn func(msg string, args ...any)) []Endpoint {
	most := cmp.Or(l.Most, MaxEndpoints)
	isOver := len(endpoints) > most
	if isOver {
		if !l.isLogged {
			warn("service has too many endpoints; some are ignored", "service", service, "limit", most)
		}
		endpoints = l.choose(endpoints, most)
	}
	l.isLogged, l.last = isOver, endpoints
	return endpoints
}

// choose returns the endpoints that stay, and the first of the others.
func (l *Limit) choose(endpoints []Endpoint, most int) []Endpoint {
	used := make(map[string]bool, len(l.last))
	for i := range l.last {
		used[l.last[i].Addr] = true
	}
	room := most // for others
	for i := range endpoints {
		if used[endpoints[i].Addr] {
			room--
		}
	}
	chosen := make([]Endpoint, 0, most)
	for _, e := range endpoints {
		if !used[e.Addr] {
			if room == 0 {
				continue
			}
			room--
		}
		chosen = append(chosen, e)
	}
	return chosen
}
