//go:build race

package accesslog

// raceEnabled reports whether the race detector is on. It allocates, so allocations
// are not counted.
const raceEnabled = true
