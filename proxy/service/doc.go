// Package service is what all requests of a service share: its endpoints, and the bounds, slots and budgets
// of its requests. It knows no request.
//
//	service.go      one service on one loop
//	endpoint.go     what is added to an endpoint: its upstream, and counters
//	report.go       descriptions for reports
//	shared.go       what all loops share
//	bounds.go       max_pending, rate_limit and breaker: whether a request may pass
//	sessions.go     how requests with something in common are kept at one endpoint
//	admission.go    a slot of the service, or the queue for one; slots.go how a free slot finds a request
//	budget.go       tokens of retries and replays, and what costs none
//	probes.go       picks by answers to probes, where requests are rare
//	stalls.go       whether all endpoints are silent together
//	connections.go  the interface of connections to an endpoint
package service
