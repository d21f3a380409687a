package proxy

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
)

// route is where a request goes, and the policy in force there. The latency estimate
// of hedging is the route's. Each share of a split is a route of its own, with its
// service's policy and an estimate of its own latency.
type route struct {
	index         int // in Config.Routes; -1: of listeners with a fixed service
	prefix        int // length of the path's prefix that rewrite takes the place of
	rewrite       []byte
	svc           *service
	timeout       time.Duration
	idempotent    bool
	retryAttempts int
	retryOn       retryOn
	hedging       *hedge.Route
	silence       lb.Census // of the service's endpoints
}

// retryOn is the parsed retry.on list.
type retryOn struct {
	connect, refused, reset, any5xx bool
	statuses                        []int
}

func newRoute(plan *routePlan, svc *service) *route {
	p := plan.policy
	r := &route{
		prefix: len(plan.match.Path), rewrite: []byte(plan.rewrite), svc: svc,
		timeout: p.Timeout, idempotent: p.Idempotent, retryAttempts: p.Retry.Attempts,
		hedging: hedge.NewRoute(hedgePolicy(&p.Hedge), svc.w.shared.loops),
	}
	for _, on := range p.Retry.On {
		switch on {
		case config.RetryConnect:
			r.retryOn.connect = true
		case config.RetryRefused:
			r.retryOn.refused = true
		case config.RetryReset:
			r.retryOn.reset = true
		case config.Retry5xx:
			r.retryOn.any5xx = true
		default:
			if code, err := strconv.Atoi(on); err == nil {
				r.retryOn.statuses = append(r.retryOn.statuses, code)
			}
		}
	}
	return r
}

func hedgePolicy(h *config.Hedge) hedge.Policy {
	p := hedge.Policy{
		Delay: h.Delay, Quantile: h.Quantile, MinDelay: h.MinDelay, MaxDelay: h.MaxDelay,
		Budget: h.Budget, Max: h.Max,
	}
	switch h.Mode {
	case config.HedgeOn:
		p.Mode = hedge.On
	case config.HedgeShadow:
		p.Mode = hedge.Shadow
	}
	return p
}

// rewritePath puts the route's rewrite in the place of the prefix that it
// matched.
func rewritePath(r *route, ex *exchange) {
	if len(r.rewrite) > 0 {
		ex.asked = ex.req.Path
		ex.path = append(append(ex.path[:0], r.rewrite...), ex.req.Path[r.prefix:]...)
		ex.req.Path = ex.path
	}
}

// retryStatus tells whether an answer with this status is to be retried.
func (r *route) retryStatus(status int) bool {
	return r.retryOn.any5xx && status >= 500 || slices.Contains(r.retryOn.statuses, status)
}

// router finds the route of a request on one loop.
type router struct {
	table  *routeTable       // shared by all loops
	routes []*route          // by the index of their plans
	direct map[string]*route // of listeners with a fixed service, by service
	rnd    *rand.PCG
}

// find returns the first route that matches, or nil; of a split, the one of the share
// that the request falls to.
func (r *router) find(req *protocol.Request) *route {
	plan, among := r.table.find(req)
	switch {
	case plan < 0:
		return nil
	case among != nil:
		plan = among.pick(r.rnd.Uint64())
	}
	return r.routes[plan]
}

// adopt makes the routes of plans, which lead to services. A route that has not
// changed is the old one; one of which only the policy has goes on with its latency
// estimate.
func (r *router) adopt(table *routeTable, plans []routePlan, services map[string]*service) {
	old := r.routes
	r.table, r.routes, r.direct = table, make([]*route, len(plans)), make(map[string]*route)
	for _, s := range services {
		s.routes = nil
	}
	for i := range plans {
		plan := &plans[i]
		made := adoptRoute(plan, old, services)
		made.index = plan.index
		made.svc.routes = append(made.svc.routes, made)
		r.routes[i] = made
		if plan.index < 0 {
			r.direct[plan.service] = made
		}
	}
	for _, gone := range old {
		if gone != nil { // its requests in flight may still add to its counts, which are then lost
			gone.svc.stats.Counts.Add(&gone.hedging.Counts)
		}
	}
}

// adoptRoute returns the route of a plan. It takes what the plan continues out of the
// old routes.
func adoptRoute(plan *routePlan, old []*route, services map[string]*service) *route {
	if plan.same {
		r := old[plan.former]
		old[plan.former] = nil
		return r
	}
	r := newRoute(plan, services[plan.service])
	if plan.former >= 0 {
		r.hedging.Estimator = old[plan.former].hedging.Estimator
	}
	return r
}
