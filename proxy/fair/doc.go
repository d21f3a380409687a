// Package fair divides a bounded number of places among peers, each an IPv4 address or an IPv6 /64, and the
// places of a peer among the clients that it names. A source that holds more places than others gives way to
// them, so no source can keep all.
package fair
