//go:build !race

// Package racetest says whether the race detector is on. It is test support; no command
// may import it.
package racetest

// Enabled reports whether the race detector is on. The detector allocates, and takes many
// times the memory and the time.
const Enabled = false
