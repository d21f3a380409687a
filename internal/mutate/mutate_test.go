package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestChanges: the changes of a line, and what the line is with each.
func TestChanges(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string // "what: the line"
	}{
		{"if a < 3 && !b {", []string{"&& becomes ||: if a < 3 || !b {", "< becomes <=: if a <= 3 && !b {", "< becomes >=: if a >= 3 && !b {",
			"3 becomes 4: if a < 4 && !b {", "! removed: if a < 3 && b {"}},
		{"if b {", []string{"negated: if !(b) {"}},
		{"for i := 0; i < a; i++ {", []string{"0 becomes 1: for i := 1; i < a; i++ {", "< becomes <=: for i := 0; i <= a; i++ {",
			"< becomes >=: for i := 0; i >= a; i++ {", "++ becomes --: for i := 0; i < a; i-- {"}},
		{"a += 2", []string{"+= becomes -=: a -= 2", "removed: ", "2 becomes 3: a += 3"}},
		{"b = true", []string{"removed: ", "true becomes false: b = false"}},
		{"f(a)", []string{"removed: "}},
		{"x.log.Warn(a, 1)", nil},
		{"x.shard.Log.Warn(a, 1)", nil},
		{`panic("no")`, nil},
		{"c := a", nil},
		{"return 0, ErrNone", nil},
		{"return a < 1, errNone", nil},
		{`return 0, fmt.Errorf("no: %w", err)`, nil},
		{`return 0, errors.New("no")`, nil},
		{"return 0, err", []string{"0 becomes 1: return 1, err"}},
		{"return 0, list.New()", []string{"0 becomes 1: return 1, list.New()"}},
		{"return ErrNone == a", []string{"== becomes !=: return ErrNone != a"}},
	} {
		end := ""
		if strings.HasSuffix(c.line, "{") {
			end = "}\n"
		}
		source := "package p\n\nfunc F() {\n\t" + c.line + "\n" + end + "}\n"
		found, err := changesOf("p.go", []byte(source))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range found {
			if f.line != c.line || f.in != "F" || f.which != 1 {
				t.Errorf("%q: the change is named %v", c.line, f)
			}
			got = append(got, f.what+": "+strings.TrimSpace(strings.Split(string(f.apply([]byte(source))), "\n")[3]))
		}
		slices.Sort(got)
		slices.Sort(c.want)
		for i := range c.want {
			c.want[i] = strings.TrimSpace(c.want[i])
		}
		for i := range got {
			got[i] = strings.TrimSpace(got[i])
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%q:\n%q, want\n%q", c.line, got, c.want)
		}
	}
}

// TestNames: of changes that are the same, each has a name of its own, with the type of its method.
func TestNames(t *testing.T) {
	found, err := changesOf("p.go", []byte("package p\n\nfunc (t *T[K]) F() { a(); a() }\n"))
	if err != nil || len(found) != 2 {
		t.Fatalf("%v, %v", found, err)
	}
	line := "func (t *T[K]) F() { a(); a() }"
	for i, want := range []string{"p.go: (*T).F: removed: " + line, "p.go: (*T).F: removed (2): " + line} {
		if got := found[i].String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestEquivalentsFormat(t *testing.T) {
	for _, c := range []struct {
		text string
		ok   bool
	}{
		{"# why\n\nchange\n\treason\n", true},
		{"change\n", false},
		{"change\nanother\n\treason\n", false},
		{"\treason\n", false},
		{"change\n\treason\nchange\n\treason\n", false},
	} {
		if _, err := equivalents(c.text); (err == nil) != c.ok {
			t.Errorf("%q: %v", c.text, err)
		}
	}
}

// TestEquivalentsExist: equivalent.txt names only changes of the code as it is now.
func TestEquivalentsExist(t *testing.T) {
	known, err := equivalents(equivalentText)
	if err != nil {
		t.Fatal(err)
	}
	module := filepath.Join("..", "..")
	of := make(map[string][]string) // the names of all changes, by file
	for name := range known {
		file, _, _ := strings.Cut(name, ": ")
		if _, ok := of[file]; !ok {
			source, err := os.ReadFile(filepath.Join(module, file))
			if err != nil {
				t.Fatal(err)
			}
			all, err := changesOf(file, source)
			if err != nil {
				t.Fatal(err)
			}
			for _, c := range all {
				of[file] = append(of[file], c.String())
			}
		}
		if !slices.Contains(of[file], name) {
			t.Errorf("equivalent.txt: no such change: %s", name)
		}
	}
}

// TestMeasure measures a package whose test notices two of three changes. A second run takes the verdicts of the
// first, unless a test has changed.
func TestMeasure(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":    "module m\n\ngo 1.26\n",
		"p.go":      "package m\n\nfunc Least(a, b int) int {\n\tif a < b {\n\t\treturn a\n\t}\n\treturn b\n}\n\nfunc Both(a, b bool) bool { return a && b }\n",
		"p_test.go": "package m\n\nimport \"testing\"\n\nfunc TestBoth(t *testing.T) {\n\tif Least(1, 2) != 1 || Both(true, false) {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		must.WriteFile(t, filepath.Join(dir, name), text)
	}
	p := pack{module: dir, folder: ".", name: "m", files: []string{"p.go"}}
	file := filepath.Join(dir, "log")
	measured := func() *score {
		t.Helper()
		j, err := openJournal(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.measure(context.Background(), 1, 0, 2, j, map[string]string{})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for range 2 {
		// With <= the result is the same: it is an equivalent change that nobody has named yet.
		want := []string{"p.go: Least: < becomes <=: if a < b {"}
		if s := measured(); s.noticed != 2 || !slices.Equal(s.survivors, want) || s.enough() {
			t.Errorf("%v", s)
		}
		must.WriteFile(t, filepath.Join(dir, "go.mod"), "") // no test can run
	}
	must.WriteFile(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
	must.WriteFile(t, filepath.Join(dir, "p_test.go"), "package m\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) {}\n")
	if s := measured(); s.noticed != 0 || len(s.survivors) != 3 {
		t.Errorf("after a change of the tests: %v", s)
	}
}

// TestTesters measures a package without tests of its own. The verdicts are those of its tester, and are taken again once the
// tester has changed.
func TestTesters(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":      "module m\n\ngo 1.26\n",
		"p/p.go":      "package p\n\nfunc Both(a, b bool) bool { return a && b }\n",
		"q/q_test.go": "package q\n\nimport (\n\t\"testing\"\n\n\t\"m/p\"\n)\n\nfunc TestBoth(t *testing.T) {\n\tif p.Both(true, false) {\n\t\tt.Fail()\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		must.WriteFile(t, filepath.Join(dir, name), text)
	}
	p := pack{module: dir, folder: "p", name: "p", files: []string{"p.go"}, testers: []string{"q"}}
	for _, want := range []int{1, 0} {
		j, err := openJournal(filepath.Join(dir, "log"))
		if err != nil {
			t.Fatal(err)
		}
		s, err := p.measure(context.Background(), 1, 0, 1, j, nil)
		if err != nil || s.noticed != want || len(s.survivors) != 1-want {
			t.Fatalf("%v, %v, want %d noticed", s, err, want)
		}
		must.WriteFile(t, filepath.Join(dir, "q", "q_test.go"), "package q\n\nimport \"testing\"\n\nfunc TestNothing(*testing.T) {}\n")
	}
}

// TestTestersExist: testers names only packages that packagesOf lists, and folders with tests.
func TestTestersExist(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	for folder, of := range testers {
		all, err := packagesOf([]string{folder})
		if err != nil || len(all) != 1 || !slices.Equal(all[0].testers, of) {
			t.Errorf("%s: %v, %v", folder, all, err)
		}
		for _, tester := range of {
			if tests, err := filepath.Glob(filepath.Join(tester, "*_test.go")); err != nil || len(tests) == 0 {
				t.Errorf("%s has no tests for %s", tester, folder)
			}
		}
	}
}
