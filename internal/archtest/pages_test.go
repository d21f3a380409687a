package archtest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestSecurityNamesTests checks that each test and script that SECURITY.md names exists,
// in the package that it names.
func TestSecurityNamesTests(t *testing.T) {
	text := must.ReadFile(t, "../../SECURITY.md")
	_, table, _ := strings.Cut(string(text), "| promise | shown by |")
	table, _, _ = strings.Cut(table, "\n\n")
	named := 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		before := named
		for _, n := range namesIn(cells[2], "") {
			named++
			switch {
			case strings.HasPrefix(n.name, "scripts/"):
				if _, err := os.Stat(filepath.Join("../..", n.name)); err != nil {
					t.Error(err)
				}
			case !declares(t, n.dir, n.name):
				t.Errorf("no %s in %s, which must show that%s", n.name, n.dir, cells[1])
			}
		}
		if named == before {
			t.Errorf("nothing shows that%s", cells[1])
		}
	}
	if named < 20 {
		t.Errorf("%d tests and scripts found in the table", named)
	}
}

// TestTestingNamesFuzzTargets checks that docs/testing.md lists every fuzz target with its
// package, and no other.
func TestTestingNamesFuzzTargets(t *testing.T) {
	text := must.ReadFile(t, "../../docs/testing.md")
	_, table, _ := strings.Cut(string(text), "| what is fed | targets |")
	table, _, _ = strings.Cut(table, "\n\n")
	named, dir := map[inPackage]bool{}, ""
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		for _, n := range namesIn(cells[2], dir) {
			named[n], dir = true, n.dir
		}
	}
	for _, n := range fuzzTargets(t) {
		if !named[n] {
			t.Errorf("docs/testing.md lacks %+v", n)
		}
		delete(named, n)
	}
	for n := range named {
		t.Errorf("docs/testing.md has %+v, which does not exist", n)
	}
}

// TestOSSFuzzBuildsTargets checks that oss-fuzz/build.sh names every fuzz target and no other, and only dictionaries that
// exist.
func TestOSSFuzzBuildsTargets(t *testing.T) {
	text := must.ReadFile(t, "../../oss-fuzz/build.sh")
	_, list, _ := strings.Cut(string(text), "targets='\n")
	list, _, _ = strings.Cut(list, "'\n")
	built := map[inPackage]bool{}
	for line := range strings.Lines(list) {
		words := strings.Fields(line)
		if len(words) < 2 || len(words) > 3 {
			t.Fatalf("want PACKAGE TARGET [DICTIONARY]: %q", line)
		}
		built[inPackage{words[0], words[1]}] = true
		if len(words) == 3 {
			must.ReadFile(t, filepath.Join("../../oss-fuzz/dictionaries", words[2]+".dict"))
		}
	}
	for _, n := range fuzzTargets(t) {
		if !built[n] {
			t.Errorf("oss-fuzz/build.sh lacks %+v", n)
		}
		delete(built, n)
	}
	for n := range built {
		t.Errorf("oss-fuzz/build.sh has %+v, which does not exist", n)
	}
}

// fuzzTargets lists all fuzz targets with their packages.
func fuzzTargets(t *testing.T) (all []inPackage) {
	target := regexp.MustCompile(`(?m)^func (Fuzz\w+)\(f \*testing\.F\)`)
	err := filepath.WalkDir("../..", func(path string, _ os.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		dir, err := filepath.Rel("../..", filepath.Dir(path))
		for _, m := range target.FindAllSubmatch(source, -1) {
			all = append(all, inPackage{filepath.ToSlash(dir), string(m[1])})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// inPackage is the name of a test, and the directory of its package.
type inPackage struct{ dir, name string }

// namesIn returns the names in a cell such as "`dir`: `A`, `B`; `other`: `C`". Names
// before the first directory belong to dir.
func namesIn(cell, dir string) (all []inPackage) {
	for _, m := range regexp.MustCompile("`([^`]+)`(:?)").FindAllStringSubmatch(cell, -1) {
		if m[2] == ":" {
			dir = m[1]
			continue
		}
		all = append(all, inPackage{dir, m[1]})
	}
	return all
}

// declares reports whether the tests of a package declare a function with this name.
func declares(t *testing.T, dir, name string) bool {
	files, _ := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	for _, file := range files {
		source := must.ReadFile(t, file)
		if bytes.Contains(source, []byte("\nfunc "+name+"(t *testing.T)")) || bytes.Contains(source, []byte("\nfunc "+name+"(f *testing.F)")) {
			return true
		}
	}
	return false
}
