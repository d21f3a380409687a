//go:build race

package link

// raceEnabled is true because the race detector allocates.
const raceEnabled = true
