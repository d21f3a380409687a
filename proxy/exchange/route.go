package exchange

import (
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
)

// Route is where a request goes, and the policy that applies to it. It has its own
// latency estimate. Each share of a split is a Route with the policy of its service.
type Route struct {
	index   int              // in Config.Routes; -1 means of listeners with a fixed service
	Rewrite *route.Rewrite   // nil means no rewrite
	Edits   *route.Edits     // nil means no edits
	Answer  *route.Answer    // nil means that a service responds
	Service *service.Service // nil with Answer
	race.Policy
	consent  consent
	once     bool // no request is sent twice
	batch    bool
	rules    allow.Rules     // of the route and its service
	ruled    bool            // there is one
	Rate     *limit.Keyed    // nil means no limit
	filters  []Filter        // in order; nil means none
	outcomes []OutcomeFilter // of filters, with nil for the others; nil means none
	early    EarlyFilter     // of filters; nil means none
}

// setFilters gives a new route its filters.
func (r *Route) setFilters(all []Filter) {
	r.filters = all
	for i, f := range all {
		if e, ok := f.(EarlyFilter); ok {
			r.early = e
		}
		if o, ok := f.(OutcomeFilter); ok {
			if r.outcomes == nil {
				r.outcomes = make([]OutcomeFilter, len(all))
			}
			r.outcomes[i] = o
		}
	}
}

// NewRoute returns a route of a plan to a service on its loop.
func NewRoute(plan *route.Plan, svc *service.Service) *Route {
	p := plan.Policy
	if svc == nil {
		return &Route{
			Rewrite: route.NewRewrite(plan), Edits: route.NewEdits(plan), Answer: route.NewAnswer(plan), Policy: race.Policy{Timeout: p.Timeout},
		}
	}
	return &Route{
		Rewrite: route.NewRewrite(plan), Edits: route.NewEdits(plan), Service: svc,
		consent: newConsent(p.Idempotent), batch: p.Priority == config.PriorityBatch, Policy: race.NewPolicy(p, svc.Shard.Process.Loops),
	}
}

// respond gives the caller of ex the answer of r, which leads to no service.
func (r *Route) respond(ex *Exchange) {
	ex.Route = r
	res := ex.pool.Answer(r.Answer, &ex.Request)
	ex.shard.Stats.CountAnswer(r.Answer.Redirects)
	ex.answerWith(nil, res)
}

// ServiceName returns the name of the service that r leads to, which may be none.
func (r *Route) ServiceName() string {
	if r.Service == nil {
		return ""
	}
	return r.Service.Config.Name
}
