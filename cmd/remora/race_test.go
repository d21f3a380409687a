//go:build race

package main

// buildFlags: the program is built as its tests are.
var buildFlags = []string{"-race"}
