//go:build !race

package proxytest

const RaceEnabled = false
