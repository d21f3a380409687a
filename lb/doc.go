// Package lb picks the endpoint that an attempt goes to, and keeps what is known
// of each endpoint's load and liveness. It sits between the exchange and the
// upstream connections.
//
// Everything here is pure: time (a loop's monotonic clock) and randomness are
// arguments, nothing is locked and nothing allocates, but for Update. A Set and
// its Endpoints belong to one loop; each loop has its own view of the same
// replicas, completed by what they report about the others' load.
package lb
