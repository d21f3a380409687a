// Package class estimates the latency of requests by class. Late means something else for a request of
// 100 keys than for one of 10,000. If both share a route, the route's estimate is about the latency of the
// long requests: many of these are hedged for nothing, and the short ones wait too long for a hedge.
//
// # Model
//
// The latency of a request depends on its class: the size of its body in octaves, or a name that the
// caller gives. A class is described by its lower quartile and by the quantile of the delay. Classes of
// which both differ by less than 40% are alike, and share one estimate, made of all their requests. If all
// are alike, it is the route's, as it is for a class with too few requests. Classes that are alike also share the best
// delay, of package choice.
//
// A first attempt that was given up counts as slower than all others, as it does for a route.
//
// # Source
//
// Requests are parted by size so that short ones do not suffer from long ones, as by SITA
// (Harchol-Balter, Crovella and Murta, "On Choosing a Task Assignment Policy for a Distributed Server
// System", 1999). The effect was measured on the queue model, where a tenth of the requests takes 20
// times as long and replicas freeze: with classes the P99.9 of short requests is at most half, and there are
// no more hedges (go test ./proxy/sim/queues -run TestUnequal).
//
// # Error
//
// A quantile is within an eighth, a bucket, of that of the samples (TestQuantile). Sizes that make no
// difference cost nothing: P99.9 and the hedges are within a tenth of those without classes
// (TestEqualSizes).
//
// The package is pure: time is an argument. A Set belongs to one loop.
package class
