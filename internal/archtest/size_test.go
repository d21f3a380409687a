package archtest

import (
	"fmt"
	"go/ast"
	"strconv"
	"strings"
	"testing"
)

// packageFiles counts the files of each package that are no tests.
func packageFiles(files []*source) tallies {
	found := tallies{}
	for _, f := range files {
		if !f.isTest() {
			found.add(f.dir(), f.path)
		}
	}
	return found
}

// structFields counts the fields of each struct type that has a name.
func structFields(files []*source) tallies {
	found := tallies{}
	for _, f := range files {
		if f.isTest() {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for range max(1, len(field.Names)) { // an embedded field has no name
						found.add(f.dir()+"."+spec.Name.Name, f.at(spec))
					}
				}
			}
			return true
		})
	}
	for _, t := range found {
		t.where = t.where[:1]
	}
	return found
}

// methodFiles counts the files that the methods of each type are in.
func methodFiles(files []*source) tallies {
	found := tallies{}
	for _, f := range files {
		if f.isTest() {
			continue
		}
		here := map[string]bool{}
		for _, d := range f.tree.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || receiver(fn) == "" || here[receiver(fn)] {
				continue
			}
			here[receiver(fn)] = true
			found.add(f.dir()+"."+receiver(fn), f.path)
		}
	}
	return found
}

func TestSize(t *testing.T) {
	texts := map[string]string{}
	for i := range 21 {
		texts[fmt.Sprintf("a/%d.go", i)] = "package a\nfunc (t *T[K]) m" + strconv.Itoa(i) + "() {}\nfunc (U) n() {}"
	}
	texts["a/0.go"] += "\ntype T[K any] struct { " + strings.Repeat("a, b int; ", 12) + "X }\ntype U struct{}"
	texts["a/a_test.go"] = "package a\ntype big struct { " + strings.Repeat("a, b int; ", 20) + "}\nfunc (U) q() {}"
	files := fixture(t, texts)
	expectCount(t, "files without tests", packageFiles(files), "a", 21)
	expectCount(t, "fields, one embedded", structFields(files), "a.T", 25)
	expectCount(t, "fields of a test", structFields(files), "a.big", 0)
	expectCount(t, "files of methods", methodFiles(files), "a.T", 21)
	expectCount(t, "files of methods", methodFiles(files), "a.U", 21)
	got := compare(map[string]tallies{"package": packageFiles(files)}, nil)
	expectOne(t, "package", got, "package a has 21, and the limit is 20")
}
