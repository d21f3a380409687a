package exchange

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/allow"
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/hedge"
	"github.com/remora-proxy/remora/proxy/limit"
	"github.com/remora-proxy/remora/proxy/route"
)

// Route is where a request goes, and the policy that applies to it. It has its own
// latency estimate. Each share of a split is a Route with the policy of its service.
type Route struct {
	index   int            // in Config.Routes; -1 means of listeners with a fixed service
	Rewrite *route.Rewrite // nil means no rewrite
	Edits   *route.Edits   // nil means no edits
	Answer  *route.Answer  // nil means that a service responds
	Service *Service       // nil with Answer
	Policy
	idempotent bool
	batch      bool
	rules      allow.Rules     // of the route and its service
	ruled      bool            // there is one
	Rate       *limit.Keyed    // nil means no limit
	filters    []Filter        // in order; nil means none
	outcomes   []OutcomeFilter // of filters, with nil for the others; nil means none
	early      EarlyFilter     // of filters; nil means none
}

// Policy is how the requests of a route race.
type Policy struct {
	Timeout       time.Duration // of a request
	retryAttempts int
	retryOn       retryOn
	tryTimeout    time.Duration // of each attempt; 0 means none
	hedging       *hedge.Route
	classHeader   string    // the header that names the class of a request, in lower case; "" means none
	silence       lb.Census // of the service's endpoints
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

// retryOn is the parsed retry.on list.
type retryOn struct {
	connect, refused, reset, any5xx bool
	statuses                        []int
	codes                           uint32 // of gRPC: bit n stands for the code n
}

// NewRoute returns a route of a plan to a service on its loop.
func NewRoute(plan *route.Plan, svc *Service) *Route {
	p := plan.Policy
	if svc == nil {
		return &Route{
			Rewrite: route.NewRewrite(plan), Edits: route.NewEdits(plan), Answer: route.NewAnswer(plan), Policy: Policy{Timeout: p.Timeout},
		}
	}
	r := &Route{
		Rewrite: route.NewRewrite(plan), Edits: route.NewEdits(plan), Service: svc,
		idempotent: p.Idempotent, batch: p.Priority == config.PriorityBatch,
		Policy: Policy{
			Timeout: p.Timeout, retryAttempts: p.Retry.Attempts, tryTimeout: p.Retry.PerTryTimeout,
			hedging: hedge.NewRoute(hedgePolicy(&p.Hedge), svc.Shard.Process.Loops),
		},
	}
	if class := p.Hedge.Class; class != config.ClassSize && class != config.ClassNone {
		r.classHeader = strings.ToLower(class)
	}
	on := p.Retry.On
	r.retryOn = retryOn{
		connect: slices.Contains(on, config.RetryConnect), refused: slices.Contains(on, config.RetryRefused),
		reset: slices.Contains(on, config.RetryReset), any5xx: slices.Contains(on, config.Retry5xx),
	}
	for _, name := range on {
		if code, err := strconv.Atoi(name); err == nil {
			r.retryOn.statuses = append(r.retryOn.statuses, code)
		}
		if code, ok := protocol.GRPCCodeNamed(name); ok {
			r.retryOn.codes |= 1 << code
		}
	}
	if r.retryOn.hasCode(protocol.GRPCUnknown) {
		r.retryOn.codes |= 1 << protocol.GRPCOther
	}
	return r
}

func hedgePolicy(h *config.Hedge) hedge.Policy {
	p := hedge.Policy{
		Delay: h.Delay, Quantile: h.Quantile, MinDelay: h.MinDelay, MaxDelay: h.MaxDelay,
		Budget: h.Budget, Max: h.Max, OneClass: h.Class == config.ClassNone, Sample: h.Sample,
	}
	switch h.Mode {
	case config.HedgeOn:
		p.Mode = hedge.On
	case config.HedgeShadow:
		p.Mode = hedge.Shadow
	}
	return p
}

// respond gives the caller of ex the answer of r, which leads to no service.
func (r *Route) respond(ex *Exchange) {
	ex.Route = r
	res := ex.pool.Answer(r.Answer, &ex.Request)
	ex.shard.Stats.Answered(r.Answer.Redirects)
	ex.answerWith(nil, res)
}

// ServiceName returns the name of the service that r leads to, which may be none.
func (r *Route) ServiceName() string {
	if r.Service == nil {
		return ""
	}
	return r.Service.Config.Name
}

// hasCode reports whether the list names a code of gRPC.
func (on *retryOn) hasCode(c protocol.GRPCCode) bool { return on.codes>>c&1 != 0 }

// hasResponse reports whether the list names the HTTP status of res, or its code of gRPC.
func (on *retryOn) hasResponse(res *Response) bool {
	return on.any5xx && res.Status >= 500 || slices.Contains(on.statuses, res.Status) || res.grpc && on.hasCode(res.code)
}
