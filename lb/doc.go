// Package lb picks the endpoint for an attempt, and tracks the load and the health of each
// endpoint. An exchange asks it for an endpoint and hands the attempt to an upstream connection.
// The package knows neither of them, no registry and no protocol.
//
// All code is pure: time (a loop's monotonic clock) and randomness are arguments, nothing is
// locked, and only Update allocates. A Set and its Endpoints belong to one loop. Each loop has
// its own view of the same replicas, completed by their reports of the load from others.
package lb
