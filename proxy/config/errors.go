package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Error is one error or warning of a file.
type Error struct {
	File    string // as given to Load or Parse
	Line    int    // from 1; 0 means no position
	Column  int    // from 1
	Path    string // path of the key, as in services.compute.hedge.mode; empty for the file
	Text    string // what is wrong, and what was expected
	Warning bool   // reports whether the file is valid all the same
	Fixed   bool   // reports whether an overlay may not set the key, whatever the value
}

// Error returns "file:line:column: path: text", without the parts that are unknown. A warning
// says so before its path.
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
	if e.Warning {
		at += "warning: "
	}
	if e.Path != "" {
		at += e.Path + ": "
	}
	return at + e.Text
}

// Errors are all errors in a file, or all warnings, in the order of their positions.
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
			cmp.Compare(a.File, b.File),
			cmp.Compare(a.Line, b.Line),
			cmp.Compare(a.Column, b.Column),
			cmp.Compare(a.Path, b.Path),
		)
	})
}

// expectedKeys suggests the key that was probably meant, or else lists all names.
func expectedKeys(names []string, key string) string {
	if hint := didYouMean(key, names); hint != "" {
		return strings.TrimPrefix(hint, "; ")
	}
	return "expected one of " + strings.Join(names, ", ")
}

// didYouMean returns "; did you mean x?" if one of the names is similar to given, or
// "".
func didYouMean(given string, names []string) string {
	best, bestDistance := "", max(2, len(given)/3)+1
	if len(given) > 64 || len(names) > maxCompared {
		return ""
	}
	if own := nameHere(given, names); own != "" {
		return "; did you mean " + own + "?"
	}
	for _, name := range names {
		if d := distance(given, name); d < bestDistance && d < len(name) {
			best, bestDistance = name, d
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}

// maxCompared bounds the names that a misspelt one is compared with: a file may have many of both.
const maxCompared = 256

// maxListed bounds the names that an error lists.
const maxListed = 8

// knownNames returns didYouMean, or else the first names.
func knownNames(given string, names []string) string {
	names = distinct(names)
	switch hint := didYouMean(given, names); {
	case hint != "":
		return hint
	case len(names) == 0:
		return "; there are none"
	case len(names) > maxListed:
		return fmt.Sprintf("; expected one of %s and %d more", strings.Join(names[:maxListed], ", "), len(names)-maxListed)
	}
	return "; expected one of " + strings.Join(names, ", ")
}

// distinct returns the names of a file that may have errors: two sections of one name, or one without a name.
func distinct(names []string) (all []string) {
	seen := map[string]bool{"": true}
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			all = append(all, name)
		}
	}
	return all
}

// distance returns the number of edits from a to b. A swap of neighbours is one edit.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
