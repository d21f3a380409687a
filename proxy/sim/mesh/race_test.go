//go:build race

package mesh

// raceEnabled: under the race detector everything takes ten times as long.
const raceEnabled = true
