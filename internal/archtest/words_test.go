package archtest

import (
	"bufio"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// idioms lists phrases that have a plainer one.
var idioms = []struct{ pattern, instead string }{
	{`tells? (whether|that)`, "reports whether"},
	{`\bbe it\b`, "whether … or"},
	{`those (who|that) wait`, "waiting requests"},
	{`what is here`, "the noun: buffered bytes, open streams"},
	{`hangs? on`, "depends on"},
	{`sees to it`, "the verb: ensures, checks"},
	{`is to be`, "must, or may"},
	{`(who|what) (comes|waits)`, "the noun: new requests, waiting requests"},
}

// compiledIdioms has a regular expression for each idiom.
var compiledIdioms = sync.OnceValue(func() (all []*regexp.Regexp) {
	for _, i := range idioms {
		all = append(all, regexp.MustCompile(`(?i)`+i.pattern))
	}
	return all
})

// idiomsIn counts each idiom in the comments of all files. A phrase may go on in the
// next line of its comment.
func idiomsIn(files []*source) tallies {
	found := tallies{}
	for _, f := range files {
		for _, group := range f.tree.Comments {
			text := strings.Join(strings.Fields(group.Text()), " ")
			for i, expression := range compiledIdioms() {
				for range expression.FindAllStringIndex(text, -1) {
					found.add(idioms[i].pattern+" → "+idioms[i].instead, f.at(group))
				}
			}
		}
	}
	return found
}

// words maps the names of words.txt, in lower case, to the better ones: "replier", or
// "exchange.from" for a field or method of a type.
var words = sync.OnceValues(func() (map[string]string, error) {
	file, err := os.Open("words.txt")
	if err != nil {
		return nil, err
	}
	defer file.Close()
	all := map[string]string{}
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		old, better, ok := strings.Cut(line, " ")
		if old = strings.ToLower(old); !ok || all[old] != "" {
			return nil, fmt.Errorf("words.txt: %q is not a new line of two names", line)
		}
		all[old] = strings.TrimSpace(better)
	}
	return all, lines.Err()
})

// wordsIn counts the declarations of names that words.txt has, in all files. Case does
// not matter: a name keeps its meaning when it is exported.
func wordsIn(files []*source) tallies {
	known, err := words()
	found := tallies{}
	if err != nil {
		found.add(err.Error(), "words.txt")
		return found
	}
	for _, f := range files {
		declared(f.tree, func(name string, id *ast.Ident) {
			if better := known[strings.ToLower(name)]; better != "" {
				found.add(strings.ToLower(name)+" → "+better, f.at(id))
			}
		})
	}
	return found
}

// declared calls visit for each name that a file declares: "name", and for the members
// of a type "type.name" as well.
func declared(tree *ast.File, visit func(name string, id *ast.Ident)) {
	owner := map[*ast.FieldList]string{} // of the fields of a struct, the methods of an interface
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			visit(n.Name.Name, n.Name)
			if r := receiver(n); r != "" {
				visit(r+"."+n.Name.Name, n.Name)
			}
		case *ast.TypeSpec:
			visit(n.Name.Name, n.Name)
			switch t := n.Type.(type) {
			case *ast.StructType:
				owner[t.Fields] = n.Name.Name
			case *ast.InterfaceType:
				owner[t.Methods] = n.Name.Name
			}
		case *ast.ValueSpec:
			for _, id := range n.Names {
				visit(id.Name, id)
			}
		case *ast.FieldList:
			for _, field := range n.List {
				for _, id := range field.Names {
					visit(id.Name, id)
					if owner[n] != "" {
						visit(owner[n]+"."+id.Name, id)
					}
				}
			}
		case *ast.AssignStmt:
			if n.Tok == token.DEFINE {
				for _, e := range n.Lhs {
					if id, ok := e.(*ast.Ident); ok {
						visit(id.Name, id)
					}
				}
			}
		case *ast.RangeStmt:
			if n.Tok == token.DEFINE {
				for _, e := range []ast.Expr{n.Key, n.Value} {
					if id, ok := e.(*ast.Ident); ok {
						visit(id.Name, id)
					}
				}
			}
		}
		return true
	})
}

// docComments counts the comments of exported declarations that start with another word
// than the name, by packages.
func docComments(files []*source) tallies {
	found := tallies{}
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
				found.add(f.dir(), f.at(name))
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
	return found
}

func TestIdioms(t *testing.T) {
	for _, c := range []struct {
		comment string
		want    int
	}{
		{"// open reports whether a stream may begin.", 0},
		{"// open tells whether a stream may begin.", 1},
		{"// Tells\n// whether a stream may begin. It tells that, too.", 2},
		{"/* A frame is to be sent. */", 1},
		{"// It was to bear with.", 0},
		{"// be it, and it hangs on\n// what waits and who comes", 4},
	} {
		files := fixture(t, map[string]string{"a/a_test.go": "package a\n\n" + c.comment + "\nvar x = \"tells whether\"\n"})
		n := 0
		for _, found := range idiomsIn(files) {
			n += found.n
		}
		if n != c.want {
			t.Errorf("%q has %d idioms, want %d", c.comment, n, c.want)
		}
	}
}

func TestWords(t *testing.T) {
	known, err := words()
	if err != nil {
		t.Fatal(err)
	}
	if known["replier"] == "" || known["exchange.from"] == "" {
		t.Fatal("words.txt lacks the names of this test")
	}
	found := wordsIn(fixture(t, map[string]string{
		"a/a.go": `package a
			type replier interface { From() }
			type Exchange struct { from replier }
			func (e Exchange) From() {}
			func f(replier replier, from int) { for _, Replier := range x { replier := 1; var replier int; use(replier) } }`,
	}))
	expectCount(t, "type, parameter, range, :=, var; no use", found, "replier → "+known["replier"], 5)
	expectCount(t, "field, method; no other from", found, "exchange.from → "+known["exchange.from"], 2)
	if len(found) != 2 {
		t.Errorf("found %d names, want 2", len(found))
	}
}

func TestDocComments(t *testing.T) {
	found := docComments(fixture(t, map[string]string{
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
	expectCount(t, "Close, M, Max", found, "a", 3)
}
