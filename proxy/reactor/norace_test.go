//go:build !race

package reactor

// raceEnabled tells the tests that the race detector allocates on its own.
const raceEnabled = false
