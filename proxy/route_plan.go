package proxy

import (
	"fmt"
	"reflect"

	"github.com/remora-proxy/remora/proxy/config"
)

// routePlan is one route to one service, as each loop makes it.
type routePlan struct {
	index   int // in Config.Routes; -1: of listeners with a fixed service
	service string
	match   *config.Match
	rewrite string
	policy  *config.Policy
	weight  int // in its split
	shares  int // of the first of a split: how many routes, itself included; else 0

	// former is the place of a route of the generation before that takes the
	// same requests to the same service, or -1; same reports whether nothing else
	// differs either.
	former int
	same   bool
}

// planRoutes lists the shares of a split one after another, and the routes of
// listeners with a fixed service last.
func planRoutes(cfg *config.Config) (plans []routePlan) {
	for i := range cfg.Routes {
		c := &cfg.Routes[i]
		plan := routePlan{index: i, match: &c.Match, rewrite: c.Rewrite.Path}
		if len(c.Split) == 0 {
			plan.service, plan.policy = c.Service, &c.Policy
			plans = append(plans, plan)
			continue
		}
		plan.shares = len(c.Split)
		for j := range c.Split {
			s := &c.Split[j]
			plan.service, plan.policy, plan.weight = s.Name, &s.Policy, s.Weight
			plans = append(plans, plan)
			plan.shares = 0
		}
	}
	direct := map[string]bool{"": true}
	for i := range cfg.Listeners {
		if name := cfg.Listeners[i].Service; !direct[name] {
			direct[name] = true
			plans = append(plans, routePlan{
				index: -1, service: name, match: &config.Match{}, policy: &cfg.Services[name].Policy,
			})
		}
	}
	return plans
}

// compareRoutes finds for each plan the one before that it continues, if its service
// is kept.
func compareRoutes(plans, before []routePlan, kept func(service string) bool) {
	places := make(map[string]int, len(before))
	for i := range before {
		places[before[i].key()] = i
	}
	for i := range plans {
		r := &plans[i]
		r.former = -1
		at, ok := places[r.key()]
		if !ok || !kept(r.service) {
			continue
		}
		delete(places, r.key())
		old := &before[at]
		r.former, r.same = at, old.rewrite == r.rewrite && reflect.DeepEqual(old.policy, r.policy)
	}
}

// key tells which requests the route takes to which service.
func (r *routePlan) key() string { return fmt.Sprintf("%t %q %q", r.index < 0, r.service, *r.match) }
