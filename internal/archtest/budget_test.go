package archtest

import (
	"fmt"
	"path"
	"regexp"
	"strings"
	"testing"
)

// budget is the number of words that pages may have together, as wc -w counts them, but for
// generated tables: these are looked up, not read.
type budget struct {
	name  string
	words int
	holds func(page string) bool
}

// budgets bound what a reader has to read. A page that grows takes the words from
// another page.
var budgets = []budget{
	{"README.md and docs", 34000, func(page string) bool { return page == "README.md" || path.Dir(page) == "docs" }},
	{"docs/decisions", 8300, func(page string) bool { return path.Dir(page) == "docs/decisions" }},
}

func TestPageBudgets(t *testing.T) {
	pages, err := readPages("../..")
	if err != nil {
		t.Fatal(err)
	}
	for _, over := range overBudget(pages, budgets) {
		t.Error(over)
	}
}

// maxGo and maxPython bound the lines of programs. Go is counted without tests and what only
// tests need. A feature that needs more raises the bound, with the reason in its commit.
const (
	maxGo     = 86_000
	maxPython = 4_600
)

func TestCodeBudgets(t *testing.T) {
	count := func(ext string, counts func(file string) bool) (lines int) {
		files, err := textFiles("../..", ext)
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range files {
			if counts(file) {
				lines += strings.Count(text, "\n")
			}
		}
		return lines
	}
	product := count(".go", func(file string) bool { return !strings.HasSuffix(file, "_test.go") && !isTestSupport(path.Dir(file)) })
	if product == 0 || product > maxGo {
		t.Errorf("%d lines of Go, at most %d", product, maxGo)
	}
	python := count(".py", func(string) bool { return true })
	if python == 0 || python > maxPython {
		t.Errorf("%d lines of Python, at most %d", python, maxPython)
	}
}

var generated = regexp.MustCompile(`(?s)<!-- generated.*?<!-- end -->`)

func overBudget(pages map[string]string, budgets []budget) (over []string) {
	for _, b := range budgets {
		sum, found := 0, 0
		for name, text := range pages {
			if b.holds(name) {
				sum += len(strings.Fields(generated.ReplaceAllString(text, "")))
				found++
			}
		}
		if found == 0 || sum > b.words {
			over = append(over, fmt.Sprintf("%s: %d words on %d pages, at most %d", b.name, sum, found, b.words))
		}
	}
	return over
}

func TestOverBudget(t *testing.T) {
	pages := map[string]string{"README.md": "one two", "docs/a.md": "| three | four |\n<!-- generated: five. -->five<!-- end -->", "docs/decisions/b.md": "six"}
	for words, want := range map[int]string{7: "", 6: "README.md and docs: 7 words on 2 pages, at most 6"} {
		tight := []budget{budgets[0]}
		tight[0].words = words
		if got := strings.Join(overBudget(pages, tight), " "); got != want {
			t.Errorf("%d words: got %q, want %q", words, got, want)
		}
	}
	if got := overBudget(nil, budgets); len(got) != len(budgets) {
		t.Errorf("without pages: %q", got)
	}
}
