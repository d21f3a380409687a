// Package exchange is the life of a request, from the moment it is complete until the
// last of its attempts is over. It gives exactly one response.
//
//	phases.go     the list of phases, from Begin to the one response; checks.go what a request must pass first
//	exchange.go   what an exchange has; request.go the request, and its memory
//	filter.go     what filters are, and what they may do; walk.go the way through them; copies.go the requests they send
//	route.go      a route and its policy; router.go finds it on one loop; listener.go where requests come in
//	end.go        the ways to end, and what is given back in which order; state.go the states
//	consent.go    whether a request may be sent a second time
//	affinity.go   the sticky session of a request, and the endpoint that it is pinned to
//	record.go     counters and access log; tracing.go the span
//	caller.go     who waits for the response; optional.go what only some callers and filters can do
//	pool.go       the free lists of one loop
//
// Package race has the attempts, and package service what requests of a service share. An exchange
// knows no protocol by name, no session and no connection.
package exchange
