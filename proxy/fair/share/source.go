// Package share counts the places of each source in something bounded, and finds the source that must give a place
// to a newcomer. It is pure, so the core may use it.
package share

import "net/netip"

// Source is who has places. A peer may serve many clients, as the sidecar of a consumer does. What it says of them
// divides its own share, and no other.
type Source struct {
	Peer   netip.Addr // the loop.Source of a connection
	Client netip.Addr // the loop.Source of a client that the peer has named; the zero Addr means none
}
