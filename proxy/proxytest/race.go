//go:build race

package proxytest

// RaceEnabled: the race detector allocates, so allocations are not counted.
const RaceEnabled = true
