// Package hedge decides when a request gets a second attempt: after what delay
// (Delays), and whether one more attempt is affordable and useful (Service,
// Gate). When the hedge timer of a race fires, lb picks the endpoint of the hedge,
// and Decide allows it or names the gate that stops it.
//
// The idea is the hedged request of Dean and Barroso, "The Tail at Scale" (Communications of
// the ACM, 2013). Send the request to another replica once it has been in flight for longer
// than nearly all requests take, use the first good response and cancel the other attempt. Two
// replicas are seldom slow at the same moment, so a few per cent more load cut the tail.
//
// Three rules keep hedging safe. The delay follows the measured latency: a fixed
// delay that is a little too short doubles much of the load. The budget bounds
// the extra load whatever the estimate says. A quarter of the tokens is kept for
// stuck requests: where the ordinary slow requests spend the whole budget, a real
// stall still finds some.
//
// The calls for one request, in their order, on its route r and its service s:
//
//	s.Primary, r.Latencies.ClassOf,
//	r.Delays.DrawPaid, r.Delays.Of      the request begins, and its timer is set
//	s.Decide                            the timer fires; again after r.Delays.Again
//	r.Latencies.Observe or Censor       the primary has responded, or was given up
//	r.Latencies.Responded or Withdrew;
//	s.Done                              the hedge has responded, or was cancelled
//	r.Savings.Overtaken                 the hedge responded first
//	r.Savings.Judge or Unknown          the application has finished a hedged primary, or never will
//	s.Refund                            no application has begun the hedge
//
// The package is pure: time is an argument (a loop's monotonic clock), and there
// are no locks and no allocations per request. One Estimator serves one route on
// one loop, one Service serves one service on one loop. No other loop uses them.
//
//	policy.go     Policy, the settings
//	service.go    Service: the budget and the gates of a service
//	route.go      Route: joins the parts of a route, which follow
//	latencies.go  Latencies: how long attempts take; estimator.go Estimator, of primaries
//	together.go   Together: when the endpoints of a service were silent together
//	savings.go    Savings: what hedges have saved
//	delays.go     Delays: when a request is late: a time, a quantile, or the best delay (best.go)
//	heads.go      Heads: whether the first byte of a stream soon follows its head
//	shadow.go     ShadowMode: what hedges would do
//	report.go     what is reported of a route; effect.go Effect, in words
package hedge
