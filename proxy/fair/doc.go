// Package fair divides a bounded number of places among sources: an IPv4 address, or an IPv6 /64.
// A source that holds more places than others gives way to them, so no source can keep all.
package fair
