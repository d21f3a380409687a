// Package forecast estimates what hedging would do to the latency and the load of a route, before a hedge is
// sent: shadow mode.
//
// # Model
//
// A hedge is a request to another endpoint, sent later. So it would have taken as long as a primary that was
// sent to another endpoint at about that time. A Shadow remembers the primaries of the last 2 s. For a share
// of the requests it replays when the loop would have decided, for several delays, with the budget and the
// gate useless that real hedges have, and what stuck requests have of both. If the other endpoint was slow, too, because
// all are slow together, the hedge gains nothing. The gates correlated and periodic need no replay for that reason.
//
// A request of another class stands for one of this class with a latency that is as many times as long as the classes
// differ. Where a primary that is overtaken would be reset, nobody would learn what its hedge has saved; the gate
// useless knows no more in the forecast.
//
// # Source
//
// To take the outcome of the nearest subject for the one that was not observed is nearest-neighbour matching
// (Rubin, "Matching to Remove Bias in Observational Studies", Biometrics 29, 1973). The match is by time. A
// primary is noted when it is sent: of those that have ended, most are quick.
//
// # Error
//
// P99 is within 15% of what hedging then brings, and the extra load within one percent of the requests, for
// random and common stalls, a slow replica, requests of two sizes, and stalls beyond the deadline (TestShadowForecast of
// proxy/exchange). From 3% of the requests the quantiles are within an eighth of those of all (TestSample). Not forecast
// is what the extra load of hedges does to other requests, and that a cancelled attempt frees its endpoint. If late
// requests have more to do than others of their class, hedges would be late, too: then the forecast gains too much.
//
// The package is pure: time is an argument. A Shadow belongs to one route on one loop, and takes 5 KiB for few
// late requests, at most 40 KiB.
package forecast
