// Package adaptive finds how many requests an application can work on at the same
// time (max_concurrency: auto) from its latency. A limit that is too high causes a
// queue inside the application, and so latency.
//
// It sets the number of slots that admission gives to requests. The package is
// pure: time comes with the measurements, and there are no locks. The core measures
// in windows, and at most one goroutine uses a Limit at a time.
// docs/decisions/0007-adaptive-concurrency.md explains the algorithm.
package adaptive
