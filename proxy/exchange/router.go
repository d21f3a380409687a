package exchange

import (
	"math/rand/v2"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/hedge/forecast"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
)

// Router finds the route of a request on one loop.
type Router struct {
	table  *route.Table      // shared by all loops
	routes []*Route          // by the index of the plan
	Fixed  map[string]*Route // of listeners with a fixed service, by service

	Guarded bool // a route has rules that are enforced, so requests that may name its host must be read

	Rand  *rand.PCG
	quota forecast.Quota

	// Filters returns the filters of a new route.
	Filters func(plan *route.Plan, services map[string]*service.Service) []Filter
}

// Find returns the first route that matches, or nil. Of a split it draws one of the shares.
func (r *Router) Find(req *protocol.Request) *Route {
	plan, among := r.table.Find(req)
	switch {
	case plan < 0:
		return nil
	case among != nil:
		plan = among.Pick(r.Rand.Uint64())
	}
	return r.routes[plan]
}

// RuleSets are the rules and rate limits of a configuration.
type RuleSets interface {
	// RulesOf returns the rules of a plan's route and service.
	RulesOf(plan *route.Plan) allow.Rules
	// RateOf returns the rate limit of a plan's route, or nil.
	RateOf(plan *route.Plan) *limit.Keyed
	// Guarded reports whether a route of HTTP has rules that are enforced.
	Guarded() bool
}

// TakesHost reports whether a request to the host of an authority may have a route, see
// route.Table.
func (r *Router) TakesHost(authority []byte) bool { return r.table.TakesHost(authority) }

// Guard says whether requests to a host meet rules, so that nothing for it may go round its routes.
type Guard uint8

// The values of Guard.
const (
	Unguarded   Guard = iota
	GuardedAll        // by a route that takes all hosts
	GuardedName       // by a route that names the host
)

// GuardOf returns the Guard of the host of an authority. Rules that are not enforced do not count, nor
// those that a request with the route met, which may be nil, meets in any case.
func (r *Router) GuardOf(authority []byte, met *Route) (g Guard) {
	var own allow.Rules
	if met != nil {
		own = met.rules
	}
	r.table.EachOfHost(authority, func(plan int, named bool) bool {
		if r.guards(plan, &own) {
			g = max(g, GuardedAll)
			if named {
				g = GuardedName
			}
		}
		return g < GuardedName
	})
	return g
}

// guards reports whether the route whose first plan has an index has other rules than own. Each share of
// a split has those of its service.
func (r *Router) guards(plan int, own *allow.Rules) bool {
	for _, made := range r.routes[plan:] {
		if made.index != r.routes[plan].index {
			return false
		}
		if made.rules.Route.Enforced() && made.rules.Route != own.Route || made.rules.Service.Enforced() && made.rules.Service != own.Service {
			return true
		}
	}
	return false
}

// Adopt makes the routes of plans, which lead to services. An unchanged route stays as
// it is. A route of which only the policy changed keeps its latency estimate.
func (r *Router) Adopt(table *route.Table, plans []route.Plan, services map[string]*service.Service, rules RuleSets) {
	old := r.routes
	r.table, r.routes, r.Fixed = table, make([]*Route, len(plans)), make(map[string]*Route)
	r.Guarded = rules.Guarded()
	for _, s := range services {
		s.Routes = nil
	}
	for i := range plans {
		plan := &plans[i]
		made := r.adopt(plan, old, services)
		made.index = plan.Index
		made.rules = rules.RulesOf(plan)
		made.ruled = made.rules.Given()
		made.Rate = rules.RateOf(plan)
		r.routes[i] = made
		if made.Service == nil {
			continue
		}
		if shadow := made.HedgeRoute.Shadow; shadow != nil {
			shadow.Bound(&r.quota)
		}
		made.Service.Routes = append(made.Service.Routes, service.HedgedRoute{Route: made.HedgeRoute, Index: made.index})
		if plan.Index < 0 {
			r.Fixed[plan.Service] = made
		}
	}
	for _, gone := range old {
		if gone != nil && gone.Service != nil { // counts of its requests in flight are lost
			gone.Service.RetireRoute(gone.HedgeRoute)
			for _, f := range gone.filters {
				f.Retire()
			}
		}
	}
}

// adopt returns the route of a plan. A route that stays is taken out of old.
func (r *Router) adopt(plan *route.Plan, old []*Route, services map[string]*service.Service) *Route {
	if plan.Same {
		kept := old[plan.Before]
		old[plan.Before] = nil
		return kept
	}
	made := NewRoute(plan, services[plan.Service])
	if made.Service == nil {
		return made
	}
	made.setFilters(r.Filters(plan, services))
	if plan.Before >= 0 {
		made.HedgeRoute.Inherit(old[plan.Before].HedgeRoute)
	}
	return made
}
