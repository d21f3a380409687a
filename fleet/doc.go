// Package fleet decides which revision of the overlay each sidecar of a fleet runs. It is pure: package fleet/store has
// the keys in etcd, package sidecar applies what is decided, and package cmd/remora/fleet has the commands.
//
// A revision is an overlay on the files of the sidecars (config.Overlay). It never changes. The head says which
// revision all sidecars run, and which one a roll-out gives to some of them. A change is
// refused if the head has changed since it was read: of two operators at once the second is refused.
//
//	head.go    the head and its changes: set, roll out, roll back
//	target.go  which sidecars a roll-out reaches
//	status.go  what a sidecar says of itself
//	guard.go   when a roll-out takes itself back; latency.go the latencies that it compares
package fleet
