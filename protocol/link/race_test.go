//go:build race

package link

// raceEnabled: the race detector allocates.
const raceEnabled = true
