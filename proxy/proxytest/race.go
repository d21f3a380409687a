//go:build race

package proxytest

// RaceEnabled reports whether the race detector is on. It allocates, so tests don't count
// allocations then.
const RaceEnabled = true
