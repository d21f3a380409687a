// Package starter has what a new user starts a sidecar with: a file to edit (remora init), or flags in
// place of a file (remora run --listen ADDR --to ADDR).
package starter
