package archtest

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestFileLists checks the lists of files in package comments. A package with a list names all its files, or says of
// the others what they are (*.go): a reader trusts the list. A package of the product with many files has a list.
func TestFileLists(t *testing.T) {
	for _, w := range fileLists(moduleSources(t)) {
		t.Error(w)
	}
}

// listFrom is the number of files from which a package of the product has a list.
const listFrom = 8

// laboratory has the folders that are no part of the product.
var laboratory = regexp.MustCompile(`^(lab|e2e|cmd/remora-lab|scripts|proxy/conformance)(/|$)`)

// named finds the names of Go files in a comment.
var named = regexp.MustCompile(`\b[\w.]+\.go\b`)

// fileLists returns a complaint for each file that a list lacks, and for each name in a list that has no file. Files for
// one system, such as x_linux.go, may go by the name of their first part. doc.go goes without saying.
func fileLists(files []*source) (wrong []string) {
	have, comment := map[string][]string{}, map[string]string{}
	for _, f := range files {
		if f.isTest() || strings.Contains(f.dir(), "testdata") {
			continue
		}
		have[f.dir()] = append(have[f.dir()], path.Base(f.path))
		if f.tree.Doc != nil {
			comment[f.dir()] += f.tree.Doc.Text()
		}
	}
	for _, dir := range slices.Sorted(maps.Keys(have)) {
		listed, inLaboratory := named.FindAllString(comment[dir], -1), laboratory.MatchString(dir)
		if len(listed) == 0 {
			if len(have[dir]) >= listFrom && !inLaboratory {
				wrong = append(wrong, fmt.Sprintf("%s: %d files, and the package comment does not list them", dir, len(have[dir])))
			}
			continue
		}
		for _, name := range have[dir] {
			if inLaboratory || strings.Contains(comment[dir], "\t*.go") {
				break
			}
			stem, _, _ := strings.Cut(strings.TrimSuffix(name, ".go"), "_")
			if name != "doc.go" && !slices.Contains(listed, name) && !slices.Contains(listed, stem+".go") {
				wrong = append(wrong, fmt.Sprintf("%s: the list of the package comment lacks %s", dir, name))
			}
		}
		for _, name := range listed {
			is := func(other string) bool {
				return other == name || strings.HasPrefix(other, strings.TrimSuffix(name, ".go")+"_")
			}
			if !slices.ContainsFunc(have[dir], is) {
				wrong = append(wrong, fmt.Sprintf("%s: the package comment names %s, which is not there", dir, name))
			}
		}
	}
	return wrong
}

func TestFileListsFixtures(t *testing.T) {
	wrong := fileLists(fixture(t, map[string]string{
		"a/doc.go": `// Package a is listed.
			//
			//	b.go  one
			//	d.go  gone
			package a`,
		"a/b.go":         "package a",
		"a/c.go":         "package a",
		"a/b_linux.go":   "package a",
		"a/c_test.go":    "package a",
		"rest/a.go":      "// Package rest names some.\n//\n//\tb.go  one\n//\t*.go  others\npackage rest",
		"rest/b.go":      "package rest",
		"few/a.go":       "// Package few has no list.\npackage few",
		"many/1.go":      "package many",
		"many/2.go":      "package many",
		"many/3.go":      "package many",
		"many/4.go":      "package many",
		"many/5.go":      "package many",
		"many/6.go":      "package many",
		"many/7.go":      "package many",
		"many/8.go":      "package many",
		"many/9_test.go": "package many",
	}))
	want := []string{
		"a: the list of the package comment lacks c.go",
		"a: the package comment names d.go, which is not there",
		"many: 8 files, and the package comment does not list them",
	}
	if !slices.Equal(wrong, want) {
		t.Errorf("got %q, want %q", wrong, want)
	}
}
