// Package queues runs consumers and replicas with queues on virtual time, with the real
// balancing (lb) and hedging (proxy/hedge), and nothing else: no network stack, no codecs.
// A run of 100,000 requests takes 30 ms, so that thousands of cases can be tried.
// Only tests use it.
package queues
