//go:build libfuzzer

package testing

import (
	"flag"
	"runtime"
)

// LibFuzzer gets the function of a fuzz target from F.Fuzz.
var LibFuzzer func(fn any)

// InitLibFuzzer does what a program of tests does at its start.
func InitLibFuzzer() error {
	Init()
	cpuList = []int{runtime.GOMAXPROCS(0)}
	return flag.CommandLine.Parse(nil)
}
