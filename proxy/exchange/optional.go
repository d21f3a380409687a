package exchange

import (
	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/proxy/fault"
	"github.com/remora-proxy/remora/proxy/race"
)

// The interfaces of this file are optional: an exchange or a route asks by a type assertion.
//
//	interface      who has it                                 without it
//	InterimCaller  sessions of HTTP/1.1, HTTP/2 and links     interim responses are dropped
//	StartCaller    sessions of links                          AwaitStart is not called
//	OutcomeFilter  cache, collapse and fallback               the outcome passes the filter
//	EarlyFilter    the cache                                  filters see only requests that the service has admitted

// InterimCaller is a Caller that takes interim responses.
type InterimCaller interface {
	// Interim passes res (1xx but 101) on, ahead of Respond or Fail. res is valid until it returns. The
	// caller drops res if its peer knows no interim responses, or does not read.
	Interim(ex *Exchange, res *protocol.Response)
}

// StartCaller is a Caller that calls AwaitStart.
type StartCaller interface {
	// Started is called after AwaitStart, if the request that waited gets its slot.
	Started(ex *Exchange)
}

// OutcomeFilter is a Filter that sees the response or failure of a request before the caller does, and
// may replace it. Of several filters, the last one in the list sees it first. Only the filters before it
// see what a filter gives by Answer or Refuse.
type OutcomeFilter interface {
	Filter
	// Response returns what the caller gets: res, or a response in its place. It returns nil if
	// the filter has called Answer or Refuse, or will call one of them, unless End comes first.
	// Response owns a res that it does not return. Only lingering attempts are left.
	Response(ex *Exchange, res *race.Response) *race.Response
	// Failure is asked before the caller gets f, also if the service did not admit the request:
	// then Request was not called. After Wait, the filter calls Answer or Refuse, unless End comes
	// first.
	Failure(ex *Exchange, f *fault.Failure) Next
}

// EarlyFilter is a Filter that may answer requests which the service has not admitted. The other filters
// don't see these. A route has at most one.
type EarlyFilter interface {
	Filter
	// Early is called before Request. It reports whether the filter has called Answer.
	Early(ex *Exchange) bool
}
