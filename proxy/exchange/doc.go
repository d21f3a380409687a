// Package exchange is the life of a request, from the moment it is complete until the
// last of its attempts is over. It gives exactly one response.
//
//	exchange.go   Begin: the phases, the deadline, the one response
//	request.go    the request, its memory, and abandoning it for that; response.go the same for a response
//	interim.go    interim responses, ahead of the one response
//	filters.go    what filters see and replace; the copies that they send
//	policy.go     the route's policy; router.go finds the route on one loop
//	admission.go  a slot of the service, or the queue for one
//	attempt.go    pick an endpoint, send, and end
//	state.go      the states of an exchange and of an attempt
//	hedge.go      the hedge timer and the gates
//	retry.go      win, wait, retry or fail
//	record.go     counters and access log; tracing.go spans
//	service.go    one service on one loop, and its endpoints; shared.go what all loops share
//	sessions.go   what keeps the requests of a session at one endpoint
//	lease.go      a stream's place at a service; source.go where its bytes come from
//	ports.go      the interfaces: Caller, of sessions; Upstream and Carrier, of upstreams
//	pool.go       the free lists of one loop
//
// It knows no protocol by name, no session and no connection type.
package exchange
