// Package limit decides who may pass: the rate limit, the circuit breaker, and the
// slots in front of an application with their automatic limit. All of them are limits
// of the process, so they are atomics; time is passed in.
//
//	rate.go     a token bucket
//	breaker.go  closed, open, half-open
//	slots.go    max_concurrency and the bound of the queue for it
//	auto.go     max_concurrency: auto, by package adaptive
//
// It knows nothing of requests: queues belong to proxy/exchange.
package limit
