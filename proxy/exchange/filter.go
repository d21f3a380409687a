package exchange

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Filter is a phase that a route adds to its requests, after they were admitted and before their
// first attempt. A filter belongs to one route on one loop. Streams pass no filter.
type Filter interface {
	// Request is called once for each request.
	Request(ex *Exchange) Next
	// End is called once after Request or OutcomeFilter.Failure, when the caller has its response
	// or has gone. A filter that holds ex forgets it.
	End(ex *Exchange)
	// Retire is called when the route is gone. Requests may still be in flight.
	Retire()
}

// Next is what a filter wants of a request, or of its failure.
type Next uint8

const (
	Continue Next = iota // to the next filter; behind the last one to the first attempt, or to the caller
	Wait                 // the filter calls Resume, Answer or Refuse later, unless End comes first
	Decided              // the filter has called Answer or Refuse
)

// FilterMaker returns the filter of a route on one loop, or nil if the route has none of its kind.
type FilterMaker func(at *FilterPlace) Filter

// FilterPlace is where a filter works.
type FilterPlace struct {
	Shard    *shard.Shard
	Pool     *Pool
	Route    *config.Route
	Service  *service.Service            // that the route, or its share, leads to
	Services map[string]*service.Service // all of the loop, by name

	Invalidates bool // another route to the service has a cache, and this one has none
}

// PeerNames are the names that the caller has proved; nil means none.
func (ex *Exchange) PeerNames() *identity.Names { return ex.caller.PeerNames() }

// Refuse gives the caller f. A filter calls it, and must not touch ex afterwards.
func (ex *Exchange) Refuse(f *fault.Failure) {
	ex.walk.turn(ex, ex.walk.inside-1)
	ex.fail(f)
}

// Answer gives the caller res, which it owns. A filter calls it, and must not touch ex afterwards.
// The breaker learns nothing of it.
func (ex *Exchange) Answer(res *race.Response) {
	if ex.service == nil { // EarlyFilter
		ex.Route.Service.Arrived(ex.began, ex.size())
	}
	ex.walk.turn(ex, max(1, ex.walk.inside)-1)
	ex.judge(fault.VerdictNone)
	if res.Source == nil && !res.GRPC { // it may be the filter's own
		res.ReadGRPC(&ex.Request)
	}
	ex.answerWith(nil, res)
}
