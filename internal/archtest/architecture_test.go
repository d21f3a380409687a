package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

const architecturePage = "../../docs/ARCHITECTURE.md"

// TestArchitecture checks the files and folders that docs/ARCHITECTURE.md names, and
// that its lists have the steps of a request in the order of proxy/doc.go.
func TestArchitecture(t *testing.T) {
	page := must.ReadFile(t, architecturePage)
	doc := must.ReadFile(t, "../../proxy/doc.go")
	for _, name := range missingPaths(string(page), existsInModule) {
		t.Errorf("docs/ARCHITECTURE.md names %s, which does not exist", name)
	}
	for _, wrong := range stepOrder(string(page), string(doc)) {
		t.Error(wrong)
	}
}

func existsInModule(name string) bool {
	_, err := os.Stat(filepath.Join("../..", filepath.FromSlash(name)))
	return err == nil
}

var (
	codeBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	codeSpan  = regexp.MustCompile("`([^`\n]+)`")
	pathName  = regexp.MustCompile(`^[a-z][\w-]*(/[\w.-]+)*(\.\w+)?$`)
	boxPath   = regexp.MustCompile(`\b[a-z]\w*(?:/\w+)+(?:\.go)?`)
	numbered  = regexp.MustCompile(`(?m)^\d+\. .*\n(?:   .*\n)*`)
	docLine   = regexp.MustCompile(`(?m)^//\t([a-z]\S*(?:, /\w+)*)  `)
)

// missingPaths returns the files and folders in backticks that do not exist. In the
// first column of a table each name is a path; elsewhere a path has a "/" or ends in
// ".go". In a picture, a path may begin below proxy.
func missingPaths(page string, exists func(string) bool) (missing []string) {
	for _, block := range codeBlock.FindAllString(page, -1) {
		for _, name := range boxPath.FindAllString(block, -1) {
			if !exists(name) && !exists("proxy/"+name) {
				missing = append(missing, name)
			}
		}
	}
	for line := range strings.Lines(codeBlock.ReplaceAllString(page, "")) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), "|")
		for _, m := range codeSpan.FindAllStringSubmatch(line, -1) {
			inTable := strings.HasPrefix(line, "| ") && strings.Contains(first, m[0])
			isPath := pathName.MatchString(m[1]) && (inTable || strings.Contains(m[1], "/") || strings.HasSuffix(m[1], ".go"))
			if isPath && !exists(m[1]) {
				missing = append(missing, m[1])
			}
		}
	}
	return missing
}

// stepOrder compares the numbered lists of a page with the steps in the package
// comment of proxy: each step's folders come up in the lists, in the same order.
func stepOrder(page, doc string) (wrong []string) {
	steps := stepsOf(doc)
	if len(steps) < 5 {
		return []string{fmt.Sprintf("the package comment of proxy lists %d steps", len(steps))}
	}
	var order []int // indexes of steps, by their first appearance
	for _, item := range numbered.FindAllString(page, -1) {
		for _, m := range codeSpan.FindAllStringSubmatch(item, -1) {
			i := stepOf(steps, strings.TrimPrefix(m[1], "proxy/"))
			if i >= 0 && !slices.Contains(order, i) {
				order = append(order, i)
			}
		}
	}
	for i, folders := range steps {
		switch {
		case !slices.Contains(order, i):
			wrong = append(wrong, fmt.Sprintf("no list of the page has the step %s", folders[0]))
		case len(wrong) == 0 && order[i] != i:
			wrong = append(wrong, fmt.Sprintf("the page has %s where proxy/doc.go has %s", steps[order[i]][0], folders[0]))
		}
	}
	return wrong
}

// stepsOf returns the folders of each step, from a line such as
// "downstream/http, /link  bytes to a request".
func stepsOf(doc string) (steps [][]string) {
	_, list, _ := strings.Cut(doc, "of a request, one folder each")
	list, _, _ = strings.Cut(list, "In this package")
	for _, m := range docLine.FindAllStringSubmatch(list, -1) {
		var folders []string
		for i, name := range strings.Split(m[1], ", ") {
			if i > 0 {
				name = path.Dir(folders[0]) + name
			}
			folders = append(folders, name)
		}
		steps = append(steps, folders)
	}
	return steps
}

// stepOf returns the step of a file: the one with the longest folder that holds
// it, or -1.
func stepOf(steps [][]string, file string) int {
	best, longest := -1, 0
	for i, folders := range steps {
		for _, folder := range folders {
			if strings.HasPrefix(file, folder+"/") && len(folder) > longest {
				best, longest = i, len(folder)
			}
		}
	}
	return best
}

func TestMissingPaths(t *testing.T) {
	exists := func(name string) bool {
		return slices.Contains([]string{"lb", "lb/set.go", "proxy/route", "proxy/route/table.go"}, name)
	}
	for page, want := range map[string]string{
		"`lb/set.go` and `Begin`, `retry.on`, `a b`":    "",
		"`lb/pick.go` picks":                            "lb/pick.go",
		"`set.go` picks":                                "set.go",
		"| `lb`, `hedge` | `other` |\n":                 "hedge",
		"```\n app ─▶ route/table.go ─▶ lb/set.go\n```": "",
		"```\n app ─▶ router/table.go\n```":             "router/table.go",
	} {
		if got := strings.Join(missingPaths(page, exists), " "); got != want {
			t.Errorf("%q: missing %q, want %q", page, got, want)
		}
	}
}

func TestStepOrder(t *testing.T) {
	const doc = "// The steps of a request, one folder each:\n//\n//\tdown/http, /link  bytes\n//\tdown  headers\n" +
		"//\troute  which\n//\tlimit  who\n//\tup/http  bytes\n//\n// In this package:\n//\n//\tworker.go  a loop\n"
	const (
		down  = "1. `proxy/down/link/a.go` reads. `proxy/down/b.go`\n   adds.\n"
		route = "2. `proxy/route/t.go`, with `lb/a.go`.\n"
		limit = "3. `proxy/limit/r.go` and `proxy/route/u.go`.\n"
		up    = "4. `proxy/up/http/c.go`, then `proxy/down/http/d.go`.\n"
	)
	for _, c := range []struct{ name, page, want string }{
		{"in order", down + route + limit + up, ""},
		{"in two lists", down + route + "\ntext\n\n" + limit + up, ""},
		{"two exchanged", down + limit + route + up, "the page has limit where proxy/doc.go has route"},
		{"one lacks", down + route + up, "no list of the page has the step limit"},
	} {
		got := stepOrder(c.page, doc)
		switch {
		case c.want == "" && len(got) > 0, c.want != "" && (len(got) == 0 || got[0] != c.want):
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
	if got := stepOrder(down, "// Package proxy\n"); len(got) != 1 {
		t.Errorf("without steps: %q", got)
	}
}
