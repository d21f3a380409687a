package main

import (
	"errors"
	"fmt"
	"io"
)

// execute runs one command line and returns its exit code.
func execute(args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.Execute()
	if err == nil {
		return 0
	}
	var failed failure
	isFailure := errors.As(err, &failed)
	if !errors.Is(err, reported{}) {
		fmt.Fprintf(stderr, "remora: %v\n", err)
	}
	if isFailure {
		return exitFailed
	}
	return exitUsage
}
