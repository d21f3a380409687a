//go:build race

package accesslog

// raceEnabled: the race detector allocates, so allocations are not counted.
const raceEnabled = true
