package docgen

import (
	"strings"
	"testing"
)

const page = `# Page

<!-- generated: a. b. -->
key | value
---|---
stale | row
<!-- end -->

Prose.

<!-- generated: a.long. -->
key | value
---|---
<!-- end -->
`

// TestFill: rows replace those of the page, under the longest prefix.
func TestFill(t *testing.T) {
	rows := []Row{{"b.1", []string{"b.1", "x"}}, {"a.1", []string{"a.1", "y"}}, {"a.long.1", []string{"a.long.1", "z"}}}
	got, err := Fill(page, rows)
	want := strings.Replace(page, "stale | row", "b.1 | x\na.1 | y", 1)
	want = strings.Replace(want, "key | value\n---|---\n<", "key | value\n---|---\na.long.1 | z\n<", 1)
	if err != nil || got != want {
		t.Errorf("%v\n%s", err, got)
	}
	if again, err := Fill(got, rows); err != nil || again != got {
		t.Errorf("filled again: %v\n%s", err, again)
	}
}

// TestFillErrors: a row without a table and a table without rows are errors.
func TestFillErrors(t *testing.T) {
	for _, c := range []struct{ name, page, key string }{
		{"no table", page, "c.1"},
		{"no row", page, "a.1"},
		{"no end", strings.ReplaceAll(page, "<!-- end -->", ""), "a.long.1"},
		{"two tables", page + page, "a.1"},
	} {
		if _, err := Fill(c.page, []Row{{c.key, nil}}); err == nil {
			t.Errorf("%s: no error", c.name)
		}
	}
}
