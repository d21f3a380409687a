// Package adaptive finds how many requests an application can work on at once
// (max_concurrency: auto) from how long it takes to answer: a limit that is too
// high shows as a queue inside the application, and so as latency.
//
// It is pure: time comes with the measurements, and nothing is locked. The proxy
// measures, window by window, and has at most one goroutine in a Limit at a time.
// docs/decisions/0007-adaptive-concurrency.md says why this algorithm.
package adaptive
