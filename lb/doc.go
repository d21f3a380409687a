// Package lb picks the endpoint for an attempt, and tracks the load and the health of each
// endpoint. A race asks it for the endpoint of each attempt, and says when the attempt has ended. The package knows no
// request, no registry and no protocol.
//
// All code is pure: time (a loop's monotonic clock) and randomness are arguments, nothing is
// locked, and only Update and Retune allocate. A Set and its Endpoints belong to one loop. Each loop has
// its own view of the same replicas, completed by their reports of the load from others.
//
//	set.go            Set, the settings, the endpoints and the picks
//	endpoint.go       Endpoint: its attempts, from Start to Finish or Drop
//	work.go           what is pending at an endpoint, and how long it has been silent; silent.go counts the silent ones
//	report.go         the load that an endpoint reports; capacity.go how many requests it serves at once
//	score.go          what picks compare endpoints by, in one table; recent.go and slowness.go are averages for that
//	policy.go         Policy, which chooses; policies.go the list of all
//	least_pending.go  the least load; random.go, round_robin.go, peak_ewma.go and consistent_hash.go are the others
//	peers.go          what is known of the endpoints of a set only together
//	group.go          the endpoints that a pick chooses from; zone.go picks near ones, subset.go has the ones of a sidecar
//	asked.go          picks by the answers of endpoints that were asked for their load
//	backoff.go        an endpoint that has no room gets no request for a while; excess.go: who declines more than others
//	eject.go          ejected endpoints, and their probes; slow_start.go the weight of endpoints that come back
package lb
