// Package archtest checks the module's architecture: which way imports point,
// where each third-party library lives, what the core may not use, and how long
// a file may be. Each file has rules of one kind; those about imports are in
// rules_test.go. The tests run them on this module, and on small fixtures that show
// that each rule can fail.
package archtest

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// File is what the rules need to know about a file.
type File struct {
	Path    string // from the module's root, with slashes
	Imports []Import
	Uses    []Use // of package-level names, and go statements
}

// Import is one import of a file. The path of a package of the module is
// relative to its root: "proxy/config", and "." for the root.
type Import struct {
	Path string
	Own  bool
	Line int
}

// Use is a place that a rule may forbid: "time.Now", or "go" for a
// statement.
type Use struct {
	What string
	Line int
}

// Dir is the folder of the file: its package.
func (f *File) Dir() string { return path.Dir(f.Path) }

// IsTest reports whether the file is compiled for tests only.
func (f *File) IsTest() bool { return strings.HasSuffix(f.Path, "_test.go") }

// Read parses the Go files under root, the root of a module.
func Read(root, module string) ([]File, error) {
	texts, err := textFiles(root, ".go")
	if err != nil {
		return nil, err
	}
	var files []File
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		f, err := ReadFile(name, []byte(texts[name]), module)
		if err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}

// textFiles returns the texts of the files with this extension under root, the root of a
// module, by their paths from it. It leaves out testdata, hidden folders and nested modules.
func textFiles(root, ext string) (map[string]string, error) {
	texts := map[string]string{}
	err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name != root && skips(name) {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(name) != ext {
			return nil
		}
		rel, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		texts[filepath.ToSlash(rel)] = string(text)
		return err
	})
	return texts, err
}

// skips reports whether a folder holds no package of the module.
func skips(dir string) bool {
	base := filepath.Base(dir)
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return base == "testdata" || base == "out" || base == "bin" || strings.HasPrefix(base, ".") || err == nil
}

// ReadFile parses one file.
func ReadFile(name string, source []byte, module string) (File, error) {
	f := File{Path: name}
	fset := token.NewFileSet()
	tree, err := parser.ParseFile(fset, name, source, parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	line := func(n ast.Node) int { return fset.Position(n.Pos()).Line }
	names := map[string]string{} // of imports in this file, to their paths
	for _, spec := range tree.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return f, err
		}
		local := path.Base(target)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		names[local] = target
		if local == "." {
			f.Uses = append(f.Uses, Use{"a dot import", line(spec)}) // it would hide the uses below
		}
		own := target == module || strings.HasPrefix(target, module+"/")
		if own {
			target = path.Clean(strings.TrimPrefix(strings.TrimPrefix(target, module), "/"))
		}
		f.Imports = append(f.Imports, Import{Path: target, Own: own, Line: line(spec)})
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			f.Uses = append(f.Uses, Use{"go", line(n)})
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && names[x.Name] != "" {
				f.Uses = append(f.Uses, Use{names[x.Name] + "." + n.Sel.Name, line(n)})
			}
		}
		return true
	})
	return f, nil
}

// matchesAny reports whether a package is one of the patterns: a path, or a path
// with /... for it and all below, or with /* for the folders in it; "..." is all.
func matchesAny(patterns []string, pkg string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		if folder, isFolder := strings.CutSuffix(p, "/*"); isFolder && path.Dir(pkg) == folder {
			return true
		}
		tree, isTree := strings.CutSuffix(p, "...")
		tree = strings.TrimSuffix(tree, "/")
		return pkg == p || isTree && (tree == "" || pkg == tree || strings.HasPrefix(pkg, tree+"/"))
	})
}
