package route

import (
	"fmt"
	"reflect"

	"github.com/remora-proxy/remora/proxy/config"
)

// Plan is one route to one service, or one that answers itself. Each loop makes a route of each
// plan.
type Plan struct {
	Index   int    // in Config.Routes; -1 for listeners with a fixed service
	Service string // its name; empty for a route that answers itself
	Match   *config.Match
	Route   *config.Route // an empty one for listeners with a fixed service
	Policy  *config.Policy
	Others  map[string]*config.Policy // of the services that get copies of requests, by name
	// Invalidates reports whether another route to the service has a cache, and this one has none.
	Invalidates bool
	weight      int // in its split
	Targets     int // for the first plan of a split the number of its plans, else 0

	// Before is the index of the plan of the previous generation that takes the
	// same requests to the same service, or -1. Same reports whether its policy and filters are
	// the same, and what its route does to messages. Compare sets both.
	Before int
	Same   bool
}

// TakesHTTP reports whether p is that of a route which takes HTTP requests.
func (p *Plan) TakesHTTP() bool { return p.Index >= 0 && p.Match.SNI == "" && !p.Match.OfDubbo() }

// Plans returns the plans of a configuration in the order of its routes. The plans of
// a split follow each other; those of listeners with a fixed service come last.
func Plans(cfg *config.Config) (plans []Plan) {
	for i := range cfg.Routes {
		c := &cfg.Routes[i]
		plan := Plan{Index: i, Match: &c.Match, Route: c}
		plan.Others = map[string]*config.Policy{}
		for _, to := range c.FilterServices() {
			plan.Others[to] = &cfg.Services[to].Policy
		}
		if len(c.Split) == 0 {
			plan.Service, plan.Policy = c.Service, &c.Policy
			plans = append(plans, plan)
			continue
		}
		plan.Targets = len(c.Split)
		for j := range c.Split {
			s := &c.Split[j]
			plan.Service, plan.Policy, plan.weight = s.Name, &s.Policy, s.Weight
			plans = append(plans, plan)
			plan.Targets = 0
		}
	}
	for i := range plans {
		p := &plans[i]
		p.Invalidates = !p.Route.Cache.Enabled() && cfg.Caches(p.Service)
	}
	direct := map[string]bool{"": true}
	for i := range cfg.Listeners {
		if name := cfg.Listeners[i].Service; !direct[name] {
			direct[name] = true
			plans = append(plans, Plan{
				Index: -1, Service: name, Match: &config.Match{}, Route: &config.Route{}, Policy: &cfg.Services[name].Policy,
				Invalidates: cfg.Caches(name),
			})
		}
	}
	return plans
}

// Compare sets Before and Same of all plans. A plan continues one of previous, those of the
// generation before, only if kept reports that its service is still the same.
func Compare(plans, previous []Plan, kept func(service string) bool) {
	indexes := make(map[string]int, len(previous))
	for i := range previous {
		indexes[previous[i].key()] = i
	}
	for i := range plans {
		p := &plans[i]
		p.Before = -1
		at, ok := indexes[p.key()]
		if !ok || !kept(p.Service) {
			continue
		}
		delete(indexes, p.key())
		old := &previous[at]
		p.Before, p.Same = at, sameActions(old.Route, p.Route) && reflect.DeepEqual(old.Policy, p.Policy) && sameFilters(old, p)
		for name := range p.Others {
			p.Same = p.Same && kept(name)
		}
	}
}

// sameActions reports whether two routes do the same to messages.
func sameActions(a, b *config.Route) bool {
	return a.Rewrite == b.Rewrite && a.Redirect == b.Redirect && reflect.DeepEqual(a.Respond, b.Respond) &&
		reflect.DeepEqual(a.RequestHeaders, b.RequestHeaders) && reflect.DeepEqual(a.ResponseHeaders, b.ResponseHeaders)
}

// sameFilters reports whether two plans have the same filters.
func sameFilters(a, b *Plan) bool {
	return a.Route.SameFilters(b.Route) && reflect.DeepEqual(a.Others, b.Others) && a.Invalidates == b.Invalidates
}

// key identifies plans that take the same requests to the same service.
func (p *Plan) key() string { return fmt.Sprintf("%t %q %#v", p.Index < 0, p.Service, *p.Match) }
