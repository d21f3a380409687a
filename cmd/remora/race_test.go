//go:build race

package main

// buildFlags build the program with the race detector, like its tests.
var buildFlags = []string{"-race"}
