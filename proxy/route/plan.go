package route

import (
	"fmt"
	"reflect"

	"github.com/remora-proxy/remora/proxy/config"
)

// Plan is one route to one service, as each loop makes it.
type Plan struct {
	Index   int // in Config.Routes; -1: of listeners with a fixed service
	Service string
	Match   *config.Match
	Rewrite string
	Policy  *config.Policy
	weight  int // in its split
	Targets int // of the first of a split: how many routes, itself included; else 0

	// Before is the place of a route of the generation before that takes the
	// same requests to the same service, or -1; same reports whether nothing else
	// differs either.
	Before int
	Same   bool
}

// Plans lists the shares of a split one after another, and the routes of
// listeners with a fixed service last.
func Plans(cfg *config.Config) (plans []Plan) {
	for i := range cfg.Routes {
		c := &cfg.Routes[i]
		plan := Plan{Index: i, Match: &c.Match, Rewrite: c.Rewrite.Path}
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
	direct := map[string]bool{"": true}
	for i := range cfg.Listeners {
		if name := cfg.Listeners[i].Service; !direct[name] {
			direct[name] = true
			plans = append(plans, Plan{
				Index: -1, Service: name, Match: &config.Match{}, Policy: &cfg.Services[name].Policy,
			})
		}
	}
	return plans
}

// Compare finds for each plan the one before that it continues, if its service
// is kept.
func Compare(plans, before []Plan, kept func(service string) bool) {
	places := make(map[string]int, len(before))
	for i := range before {
		places[before[i].key()] = i
	}
	for i := range plans {
		r := &plans[i]
		r.Before = -1
		at, ok := places[r.key()]
		if !ok || !kept(r.Service) {
			continue
		}
		delete(places, r.key())
		old := &before[at]
		r.Before, r.Same = at, old.Rewrite == r.Rewrite && reflect.DeepEqual(old.Policy, r.Policy)
	}
}

// key tells which requests the route takes to which service.
func (r *Plan) key() string { return fmt.Sprintf("%t %q %q", r.Index < 0, r.Service, *r.Match) }
