package exchange

import (
	"github.com/remora-proxy/remora/proxy/config"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/identity"
	"github.com/remora-proxy/remora/proxy/race"
	"github.com/remora-proxy/remora/proxy/service"
	"github.com/remora-proxy/remora/proxy/shard"
)

// Caller is the downstream end of an exchange: the session that its request came from. Exactly
// one of Respond and Fail is called, once, unless the session called Cancel before.
type Caller interface {
	// Encode prepares what Respond sends, or returns why the caller can't have res. Respond or Fail of ex follows
	// before any other request is encoded, so the text may wait in memory that the loop's sessions share.
	Encode(ex *Exchange, res *race.Response) *fault.Failure
	// Respond owns res, which Encode has accepted.
	Respond(ex *Exchange, res *race.Response)
	Fail(ex *Exchange, f *fault.Failure)
	// OverShare reports whether ex must be refused, since its connection holds more
	// than its share of memory. OverShare is asked while memory is short.
	OverShare(ex *Exchange) bool
	// Concurrency counts the requests of the connection that are in flight at the service of ex, ex included. Counting
	// may stop at the number most. 0 means that ex is a copy, which no connection waits for. Concurrency is asked while
	// half of max_pending is taken.
	Concurrency(ex *Exchange, most int) int
	// Listener is where the connection came in.
	Listener() *Listener
	// RemoteAddr is the peer's "ip:port".
	RemoteAddr() string
	// PeerNames are the names that the peer has proved; nil means none.
	PeerNames() *identity.Names
	// Finished is called when the last attempt of a cancelled exchange has ended, but
	// not if Cancel reported that none was left.
	Finished(ex *Exchange)
}

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
