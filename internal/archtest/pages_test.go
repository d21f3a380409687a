package archtest

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestSecurityNamesTests: each test and script that SECURITY.md names as what shows
// a promise is there, in the package that it names.
func TestSecurityNamesTests(t *testing.T) {
	text, err := os.ReadFile("../../SECURITY.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| promise | shown by |")
	table, _, _ = strings.Cut(table, "\n\n")
	word, named := regexp.MustCompile("`([^`]+)`(:?)"), 0
	for line := range strings.Lines(table) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 || strings.HasPrefix(cells[1], "---") {
			continue
		}
		dir, before := "", named
		for _, m := range word.FindAllStringSubmatch(cells[2], -1) {
			switch name := m[1]; {
			case m[2] == ":":
				dir = name
			case strings.HasPrefix(name, "scripts/"):
				named++
				if _, err := os.Stat(filepath.Join("../..", name)); err != nil {
					t.Error(err)
				}
			default:
				named++
				if !declares(t, dir, name) {
					t.Errorf("there is no %s in %s, which is to show that%s", name, dir, cells[1])
				}
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

// declares tells whether the tests of a package have a function with this name.
func declares(t *testing.T, dir, name string) bool {
	files, _ := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(source, []byte("\nfunc "+name+"(t *testing.T)")) || bytes.Contains(source, []byte("\nfunc "+name+"(f *testing.F)")) {
			return true
		}
	}
	return false
}
