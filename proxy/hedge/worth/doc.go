// Package worth measures what the hedges of a route save, and lets fewer decisions hedge if that is little:
// the gate useless.
//
// # Model
//
// A hedge is one more request for the replicas, even if it harms none. Where requests are late because they
// have more to do, or just miss the delay, hedges win now and then, but by little. Where all replicas are
// slow alike, no hedge wins. The application finishes most primaries that a hedge has overtaken, and the
// sidecar sees when. So the latency with and without the hedge is known, and no request has to go without
// hedges for the measurement. If hedged requests become shorter by less than 1/96 of their sum, only one
// decision in 8 may hedge, and then one in 64.
//
// Some overtaken primaries end early: an endpoint of HTTP/2 reads a reset, or the primary has not left its queue. What
// their hedges saved is unknown. If only the primaries that came first were judged in such a time, hedges would seem to
// save nothing. So those are judged only if it is known what the latest hedge that came first has saved: in the long run
// the same part of both.
//
// # Source
//
// Comparing an outcome with what would have happened to the same subject without the treatment is Rubin's
// causal model (Journal of Educational Psychology 66, 1974). The levels are a multiplicative decrease.
//
// # Error
//
// Lognormal latencies of sigma 0.5 become 1/42 shorter, and P99.9 falls by a tenth. If a tenth of the requests
// takes ten times as long, they become 1/250 shorter, and P99.9 does not fall. The bound is between. With even
// latencies one decision in 64 hedges after 5,000 requests, and once one in ten hedges saves 18 ms, all
// decisions do (TestGateSteps).
//
// The package is pure. A Gate belongs to one route on one loop.
package worth
