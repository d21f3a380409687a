package archtest

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// TestDocComments checks that the comment of an exported name starts with the name.
func TestDocComments(t *testing.T) {
	for _, w := range docComments(moduleSources(t)) {
		t.Error(w)
	}
}

// docComments returns one complaint for each comment of an exported declaration that starts with
// another word than the name.
func docComments(files []*source) (wrong []string) {
	for _, f := range files {
		if f.isTest() {
			continue
		}
		check := func(doc *ast.CommentGroup, name *ast.Ident) {
			if doc == nil || !name.IsExported() {
				return
			}
			words := strings.Fields(doc.Text()) // none: directives alone
			if len(words) > 0 && strings.TrimRight(words[0], ",.:;") != name.Name {
				wrong = append(wrong, fmt.Sprintf("%s: the comment of %s starts with %q", f.at(name), name.Name, words[0]))
			}
		}
		for _, d := range f.tree.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if r := receiver(d); r == "" || ast.IsExported(r) {
					check(d.Doc, d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						doc := s.Doc
						if doc == nil && !d.Lparen.IsValid() {
							doc = d.Doc
						}
						check(doc, s.Name)
					case *ast.ValueSpec:
						doc := s.Doc
						if doc == nil && !d.Lparen.IsValid() {
							doc = d.Doc
						}
						check(doc, s.Names[0])
					}
				}
			}
		}
	}
	return wrong
}

func TestDocCommentsFixtures(t *testing.T) {
	wrong := docComments(fixture(t, map[string]string{
		"a/a.go": `package a
			// Open opens.
			func Open() {}
			// This closes.
			func Close() {}
			// unexported.
			func x() {}
			// T is a thing.
			type T struct{}
			// whose method
			func (T) M() {}
			// whose method
			func (t) M() {}
			// Limits of streams.
			const (
				// of streams
				Max = 1
				Min = 2
			)
			func NoComment() {}`,
		"a/a_test.go": `package a
			// this
			func Helper() {}`,
	}))
	if len(wrong) != 3 || !strings.Contains(wrong[0], "Close starts with \"This\"") {
		t.Errorf("got %q, want complaints about Close, M and Max", wrong)
	}
}
