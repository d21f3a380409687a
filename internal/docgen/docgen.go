// Package docgen keeps the tables of pages under docs equal to the code. The test of
// a package builds the rows from its definitions, and Check compares them with the
// page, or writes them there.
//
// A table stands between two marker lines. The first names the prefixes of the keys
// whose rows belong there; the header of the table is written by hand:
//
//	<!-- generated: limits. timeouts. -->
//	key | values
//	---|---
//	`limits.message` | size
//	<!-- end -->
package docgen

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"strings"
	"testing"
)

const (
	opening = "<!-- generated: "
	closing = "<!-- end -->"
)

// Row is one line of a table.
type Row struct {
	Key   string   // compared with the prefixes of the markers; the longest match wins
	Cells []string // the line, cell by cell
}

// String returns the line, which Markdown takes for a row of at least two cells without
// a "|" around it. The caller must escape a "|" in a cell.
func (r Row) String() string { return strings.Join(r.Cells, " | ") }

// Check fails t unless the tables of a page hold exactly rows. With update it writes
// them there instead.
func Check(t *testing.T, page string, rows []Row, update bool) {
	t.Helper()
	old, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	filled, err := Fill(string(old), rows)
	switch {
	case err != nil:
		t.Fatalf("%s: %v", page, err)
	case filled == string(old):
	case update:
		if err := os.WriteFile(page, []byte(filled), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s differs from the code; run go generate\n%s", page, difference(string(old), filled))
	}
}

// Fill returns page with rows between its markers, each under its longest prefix and
// in the given order.
func Fill(page string, rows []Row) (string, error) {
	lines := strings.Split(page, "\n")
	tables := map[string][]string{} // by prefix; all prefixes of a marker share the first one's
	first := map[string]string{}
	for _, line := range lines {
		for i, prefix := range prefixes(line) {
			if first[prefix] != "" {
				return "", fmt.Errorf("the prefix %s stands in two markers", prefix)
			}
			first[prefix] = prefixes(line)[0]
			if i == 0 {
				tables[prefix] = []string{}
			}
		}
	}
	for _, r := range rows {
		longest := ""
		for prefix := range first {
			if strings.HasPrefix(r.Key, prefix) && len(prefix) > len(longest) {
				longest = prefix
			}
		}
		if longest == "" {
			return "", fmt.Errorf("no table for %s", r.Key)
		}
		tables[first[longest]] = append(tables[first[longest]], r.String())
	}
	var out []string
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		p := prefixes(lines[i])
		if len(p) == 0 {
			continue
		}
		if len(tables[p[0]]) == 0 {
			return "", fmt.Errorf("no row for the table %s", p[0])
		}
		end := i
		for end < len(lines) && lines[end] != closing {
			end++
		}
		if end == len(lines) || end < i+3 {
			return "", fmt.Errorf("the table %s lacks its header or %s", p[0], closing)
		}
		out = append(append(out, lines[i+1:i+3]...), tables[p[0]]...)
		i = end - 1
	}
	return strings.Join(out, "\n"), nil
}

// prefixes returns those of a line that opens a table, none of any other line.
func prefixes(line string) []string {
	line, ok := strings.CutPrefix(line, opening)
	if !ok {
		return nil
	}
	return strings.Fields(strings.TrimSuffix(line, "-->"))
}

// difference names the lines that only one of two pages has.
func difference(old, filled string) string {
	var out strings.Builder
	only := func(sign, in, notIn string) {
		has := map[string]bool{}
		for line := range strings.Lines(notIn) {
			has[line] = true
		}
		for line := range strings.Lines(in) {
			if !has[line] {
				out.WriteString(sign + line)
			}
		}
	}
	only("- ", old, filled)
	only("+ ", filled, old)
	return out.String()
}

// Parse parses a Go file with its comments.
func Parse(t *testing.T, file string) *ast.File {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// Text returns the comment above a definition, else the one behind it, as one line.
func Text(doc, comment *ast.CommentGroup) string {
	if doc == nil {
		doc = comment
	}
	return strings.Join(strings.Fields(doc.Text()), " ")
}
