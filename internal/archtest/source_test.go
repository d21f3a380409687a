package archtest

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// source is one parsed Go file of the module, for the rules that need its syntax.
type source struct {
	path string // from the module's root, with slashes
	tree *ast.File
	fset *token.FileSet
}

// dir is the folder of the file.
func (s *source) dir() string { return path.Dir(s.path) }

// isTest reports whether the file is compiled for tests only.
func (s *source) isTest() bool { return strings.HasSuffix(s.path, "_test.go") }

// at returns the place of a node as "path:line".
func (s *source) at(n ast.Node) string {
	return s.path + ":" + strconv.Itoa(s.fset.Position(n.Pos()).Line)
}

// moduleSources returns the module's files, which it parses once for all rules.
func moduleSources(t *testing.T) []*source {
	t.Helper()
	files, err := parseModule()
	if err != nil {
		t.Fatal(err)
	}
	return files
}

var parseModule = sync.OnceValues(func() ([]*source, error) {
	const root = "../.."
	texts, err := textFiles(root, ".go")
	if err != nil {
		return nil, err
	}
	for name := range texts {
		// A file for another system would declare the same names again.
		ok, err := build.Default.MatchFile(filepath.Split(filepath.Join(root, name)))
		if err != nil {
			return nil, err
		}
		if !ok {
			delete(texts, name)
		}
	}
	return parseSources(texts)
})

// parseSources parses files by their paths, in the order of the paths.
func parseSources(texts map[string]string) ([]*source, error) {
	fset := token.NewFileSet()
	var all []*source
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		tree, err := parser.ParseFile(fset, name, texts[name], parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, &source{path: name, tree: tree, fset: fset})
	}
	return all, nil
}

// fixture parses a small module for the test of a rule.
func fixture(t *testing.T, texts map[string]string) []*source {
	t.Helper()
	all, err := parseSources(texts)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// receiver returns the name of the type that a method belongs to; "" for a function.
func receiver(f *ast.FuncDecl) string {
	if f.Recv == nil || len(f.Recv.List) == 0 {
		return ""
	}
	expr := f.Recv.List[0].Type
	for {
		switch e := expr.(type) {
		case *ast.StarExpr:
			expr = e.X
		case *ast.IndexExpr:
			expr = e.X
		case *ast.IndexListExpr:
			expr = e.X
		case *ast.Ident:
			return e.Name
		default:
			return ""
		}
	}
}

func TestReceiver(t *testing.T) {
	files := fixture(t, map[string]string{
		"a/a.go": "package a\nfunc f() {}\nfunc (T) a() {}\nfunc (t *T) b() {}\nfunc (t *T[K]) c() {}\nfunc (T[K, V]) d() {}",
	})
	for i, want := range []string{"", "T", "T", "T", "T"} {
		if got := receiver(files[0].tree.Decls[i].(*ast.FuncDecl)); got != want {
			t.Errorf("declaration %d: got %q, want %q", i, got, want)
		}
	}
}

// expectOne fails unless there is one complaint, with this text; for "" there must be none.
func expectOne(t *testing.T, name string, got []string, want string) {
	t.Helper()
	switch {
	case want == "" && len(got) > 0:
		t.Errorf("%s: got %q", name, got)
	case want != "" && (len(got) != 1 || !strings.Contains(got[0], want)):
		t.Errorf("%s: got %q, want one with %q", name, got, want)
	}
}
