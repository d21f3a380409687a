//go:build race

package lb

// raceEnabled is true because the race detector allocates, so allocations are not
// counted.
const raceEnabled = true
