// Package hedge decides when a request gets a second attempt: how late is late
// (Estimator), and whether one more attempt is affordable and of use (Service,
// Gate). It sits between the exchange's hedge timer and the lb pick.
//
// The idea is the hedged request of Dean and Barroso, "The Tail at Scale"
// (Communications of the ACM, 2013): send the request to another replica once
// it has been out for longer than nearly all requests take, take the first good
// answer and cancel the other. A few per cent more load cut the tail, because
// two replicas are seldom slow at the same moment.
//
// Three things keep it safe. The delay follows the measured latency, where a
// fixed one set a little too low doubles a good part of the load. The budget
// bounds extra load whatever the estimate says. And the quantile leaves room
// under the budget: at 0.95 with a budget of 5% the ordinary slow requests spend
// every token and a real stall finds none; at 0.97 two fifths are left for it.
//
// Everything here is pure: time is an argument (a loop's monotonic clock),
// nothing is locked and nothing allocates. One Estimator serves one route on one
// loop, one Service serves one service on one loop; no other loop touches them.
package hedge
