package proxy

import (
	"strconv"

	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/route"
)

// Names of sets of rules.
func listenerRules(name string) string { return "listeners." + name }
func serviceRules(name string) string  { return "services." + name }
func routeRules(index int) string      { return "routes." + strconv.Itoa(index) }

// addRules makes the rules of listeners, services and routes. Those that have not changed keep
// their counts.
func (g *Generation) addRules() {
	g.rules = make(map[string]*allow.Set)
	add := func(name string, c *config.Allow) {
		if s := allow.NewSet(name, c, g.previous.rules[name]); s != nil {
			g.rules[name] = s
		}
	}
	for i := range g.cfg.Listeners {
		add(listenerRules(g.cfg.Listeners[i].Name), &g.cfg.Listeners[i].Allow)
	}
	for name, c := range g.cfg.Services {
		add(serviceRules(name), &c.Allow)
	}
	for i := range g.cfg.Routes {
		add(routeRules(i), &g.cfg.Routes[i].Allow)
	}
}

// addRates makes the rate limits of listeners and routes. Those that have not changed keep their
// buckets.
func (g *Generation) addRates() {
	add := func(name string, c *config.RateLimit) {
		switch old := g.previous.rates[name]; {
		case c.Rate == 0:
		case old != nil && old.Config == *c:
			g.rates[name] = old
		default:
			g.rates[name] = limit.NewKeyed(c)
		}
	}
	for i := range g.cfg.Listeners {
		add(listenerRules(g.cfg.Listeners[i].Name), &g.cfg.Listeners[i].RateLimit)
	}
	for i := range g.cfg.Routes {
		add(routeRules(i), &g.cfg.Routes[i].RateLimit)
	}
}

// RateOf implements exchange.RuleSets.
func (g *Generation) RateOf(plan *route.Plan) *limit.Keyed { return g.rates[routeRules(plan.Index)] }

// RulesOf implements exchange.RuleSets.
func (g *Generation) RulesOf(plan *route.Plan) allow.Rules {
	return allow.Rules{Route: g.rules[routeRules(plan.Index)], Service: g.rules[serviceRules(plan.Service)]}
}

// RulesOfStream returns the rules of streams of bytes from a listener to a service.
func (g *Generation) RulesOfStream(listener, service string) allow.Rules {
	return allow.Rules{Listener: g.rules[listenerRules(listener)], Service: g.rules[serviceRules(service)]}
}

// RuleCounts returns the number of calls of each rule.
func (g *Generation) RuleCounts() (all []allow.Count) {
	for _, s := range g.rules {
		all = s.Counts(all)
	}
	return all
}
