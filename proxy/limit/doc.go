// Package limit decides whether a request may pass: the rate limit, the circuit
// breaker, and the slots of an application with their automatic limit. All of them are
// limits of the process, so they are atomics. Time is passed in.
//
//	rate.go     Rate, a token bucket
//	keyed.go    Keyed: a token bucket for each client, path, or value of a header
//	breaker.go  Breaker: closed, open, half-open
//	slots.go    Slots: max_concurrency and the bound of the queue for it
//	auto.go     Auto: max_concurrency: auto, by package adaptive
//
// It knows nothing of requests: their queues are in proxy/service.
package limit
