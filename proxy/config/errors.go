package config

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
)

// Error is one thing wrong with a file.
type Error struct {
	File   string // as given to Load or Parse
	Line   int    // from 1; 0: no position
	Column int    // from 1
	Path   string // of the key, as in services.compute.hedge.mode; "": the file
	Text   string // what is wrong and what was expected
}

// Error is "file:line:column: path: text", without the parts that are unknown.
func (e Error) Error() string {
	var b strings.Builder
	if e.File != "" {
		b.WriteString(e.File + ":")
	}
	if e.Line > 0 {
		b.WriteString(strconv.Itoa(e.Line) + ":" + strconv.Itoa(e.Column) + ":")
	}
	if b.Len() > 0 {
		b.WriteByte(' ')
	}
	if e.Path != "" {
		b.WriteString(e.Path + ": ")
	}
	b.WriteString(e.Text)
	return b.String()
}

// Errors is everything wrong with a file, in the order of position.
type Errors []Error

// Error is one line per error.
func (es Errors) Error() string {
	lines := make([]string, len(es))
	for i, e := range es {
		lines[i] = e.Error()
	}
	return strings.Join(lines, "\n")
}

// sort orders by position, then by path, so that output is the same every time.
func (es Errors) sort() {
	slices.SortStableFunc(es, func(a, b Error) int {
		return cmp.Or(
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
		)
	})
}
