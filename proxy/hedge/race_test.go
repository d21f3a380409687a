//go:build race

package hedge

// raceEnabled reports whether the race detector is on. It allocates, so tests of
// allocations are skipped.
const raceEnabled = true
