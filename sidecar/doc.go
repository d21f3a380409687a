// Package sidecar is the running sidecar. Run starts it (sidecar.go): its loops, registry clients,
// admin API, endpoint sources and listeners, in this order. reload.go applies a changed
// configuration, drain.go takes the sidecar out of use, and predecessor.go and successor.go are
// the two sides of a hot restart. Package proxy lists the stations of a request.
package sidecar
