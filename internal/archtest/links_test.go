package archtest

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode"
)

// TestLinks checks the relative links of the pages: each leads to a file or folder of
// the repository, and each anchor to a heading or an id of its page.
func TestLinks(t *testing.T) {
	pages, err := readPages("../..")
	if err != nil {
		t.Fatal(err)
	}
	broken, links := brokenLinks(pages, existsInModule)
	for _, b := range broken {
		t.Error(b)
	}
	if len(pages) < 20 || links < 100 {
		t.Errorf("found %d pages with %d relative links", len(pages), links)
	}
}

// readPages returns the Markdown pages at the root and below docs, by their paths.
func readPages(root string) (map[string]string, error) {
	pages := map[string]string{}
	for _, pattern := range []string{"*.md", "docs/*.md", "docs/*/*.md", "docs/*/*/*.md"} {
		names, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				return nil, err
			}
			rel, err := filepath.Rel(root, name)
			if err != nil {
				return nil, err
			}
			pages[filepath.ToSlash(rel)] = string(text)
		}
	}
	return pages, nil
}

var (
	linkTarget = regexp.MustCompile(`\]\(([^()\s]+)\)`)
	heading    = regexp.MustCompile(`(?m)^#{1,6} (.*)$`)
	htmlID     = regexp.MustCompile(`<a id="([^"]+)">`)
	headLink   = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)
)

// brokenLinks returns the relative links of pages that lead nowhere, and the number of
// relative links. Anchors are checked if they lead to one of the pages.
func brokenLinks(pages map[string]string, exists func(string) bool) (broken []string, links int) {
	for name, page := range pages {
		for _, m := range linkTarget.FindAllStringSubmatch(withoutCode(page), -1) {
			file, anchor, anchored := strings.Cut(m[1], "#")
			if strings.Contains(file, ":") { // a URL
				continue
			}
			links++
			target := name
			if file != "" {
				target = path.Join(path.Dir(name), file)
			}
			text, isPage := pages[target]
			switch {
			case !isPage && !exists(target):
				broken = append(broken, fmt.Sprintf("%s: no file %s", name, m[1]))
			case anchored && isPage && !slices.Contains(anchorsOf(text), anchor):
				broken = append(broken, fmt.Sprintf("%s: no heading for %s", name, m[1]))
			}
		}
	}
	slices.Sort(broken)
	return broken, links
}

func withoutCode(page string) string {
	return codeSpan.ReplaceAllString(codeBlock.ReplaceAllString(page, ""), "")
}

// anchorsOf returns the anchors of a page, as GitHub makes them of its headings: lower
// case, without punctuation, blanks as "-", and a number at repetitions.
func anchorsOf(page string) (anchors []string) {
	page = codeBlock.ReplaceAllString(page, "")
	for _, m := range heading.FindAllStringSubmatch(page, -1) {
		anchor := strings.Map(func(r rune) rune {
			switch {
			case r == ' ':
				return '-'
			case r == '-' || r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r):
				return unicode.ToLower(r)
			}
			return -1
		}, headLink.ReplaceAllString(m[1], "$1"))
		unique := anchor
		for n := 1; slices.Contains(anchors, unique); n++ {
			unique = anchor + "-" + strconv.Itoa(n)
		}
		anchors = append(anchors, unique)
	}
	for _, m := range htmlID.FindAllStringSubmatch(page, -1) {
		anchors = append(anchors, m[1])
	}
	return anchors
}

func TestBrokenLinks(t *testing.T) {
	exists := func(name string) bool { return name == "scripts" || name == "docs/x.yaml" }
	other := "# It's `a.b`, [see](b.md)\n\n## Twice\n\n## Twice\n\n<a id=\"own\"></a>\n\n```\n# code\n```\n"
	for link, want := range map[string]string{
		"b.md":             "",
		"b.md#its-ab-see":  "",
		"b.md#twice-1":     "",
		"b.md#own":         "",
		"#a":               "",
		"x.yaml#any":       "",
		"../scripts/":      "",
		"https://x.test/y": "",
		"c.md":             "docs/a.md: no file c.md",
		"b.md#code":        "docs/a.md: no heading for b.md#code",
		"b.md#twice-2":     "docs/a.md: no heading for b.md#twice-2",
		"#b":               "docs/a.md: no heading for #b",
		"../x.yaml":        "docs/a.md: no file ../x.yaml",
	} {
		pages := map[string]string{"docs/a.md": "# A\n[l](" + link + ") and `[c](code.md)`\n", "docs/b.md": other}
		broken, _ := brokenLinks(pages, exists)
		if got := strings.Join(broken, " "); got != want {
			t.Errorf("%s: got %q, want %q", link, got, want)
		}
	}
}
