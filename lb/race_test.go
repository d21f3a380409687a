//go:build race

package lb

// raceEnabled: the race detector allocates, so allocations are not counted.
const raceEnabled = true
