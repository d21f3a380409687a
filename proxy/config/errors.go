package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one error in a file.
type Error struct {
	File   string // as given to Load or Parse
	Line   int    // from 1; 0 means no position
	Column int    // from 1
	Path   string // path of the key, as in services.compute.hedge.mode; empty for the file
	Text   string // what is wrong, and what was expected
}

// Error returns "file:line:column: path: text", without the parts that are unknown.
func (e Error) Error() string {
	at := ""
	if e.File != "" {
		at = e.File + ":"
	}
	if e.Line > 0 {
		at += fmt.Sprintf("%d:%d:", e.Line, e.Column)
	}
	if at != "" {
		at += " "
	}
	if e.Path != "" {
		at += e.Path + ": "
	}
	return at + e.Text
}

// Errors are all errors in a file, in the order of their positions.
type Errors []Error

// Error returns one line for each error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// sort sorts by position, then by path, so that the output is deterministic.
func (es Errors) sort() {
	slices.SortStableFunc(es, func(a, b Error) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
		)
	})
}
