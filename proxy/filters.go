package proxy

import (
	"github.com/remora-proxy/remora/proxy/exchange"
	"github.com/remora-proxy/remora/proxy/filter/cache"
	"github.com/remora-proxy/remora/proxy/filter/collapse"
	"github.com/remora-proxy/remora/proxy/filter/fallback"
	"github.com/remora-proxy/remora/proxy/filter/injection"
	"github.com/remora-proxy/remora/proxy/filter/mirror"
	"github.com/remora-proxy/remora/proxy/route"
	"github.com/remora-proxy/remora/proxy/service"
)

// filters is the list of all filters. A request passes them from top to bottom, and its outcome from bottom to top. A
// new filter is one folder in proxy/filter, and one line here.
var filters = []exchange.FilterMaker{
	fallback.New, // sees an outcome last
	cache.New,    // filters behind it see only requests that are sent
	collapse.New, // before injection, so that delayed requests are collapsed, too
	injection.New,
	mirror.New, // of what is sent, so after injection
}

// filtersOf returns the filters of a new route on w's loop.
func (w *Worker) filtersOf(plan *route.Plan, services map[string]*service.Service) (all []exchange.Filter) {
	at := &exchange.FilterPlace{
		Shard: w.shard, Pool: w.host.Pool, Route: plan.Route, Service: services[plan.Service], Services: services,
		Invalidates: plan.Invalidates,
	}
	for _, maker := range filters {
		if f := maker(at); f != nil {
			all = append(all, f)
		}
	}
	return all
}
