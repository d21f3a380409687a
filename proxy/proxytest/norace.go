//go:build !race

package proxytest

// RaceEnabled reports whether the race detector is on.
const RaceEnabled = false
