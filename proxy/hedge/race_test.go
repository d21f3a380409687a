//go:build race

package hedge

// raceEnabled: the race detector allocates, so allocations are not counted.
const raceEnabled = true
