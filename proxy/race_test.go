//go:build race

package proxy_test

// raceEnabled: the race detector allocates, so allocations are not counted.
const raceEnabled = true
