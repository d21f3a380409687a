package archtest

import (
	"fmt"
	"go/ast"
	"strings"
	"testing"
)

// protocolFolders list the packages whose types no other package may assert to.
var protocolFolders = []string{"proxy/upstream/...", "proxy/downstream/..."}

// TestNoSiblingTypes checks that nobody asks which protocol a session or an upstream
// speaks: an interface says what the asker needs.
func TestNoSiblingTypes(t *testing.T) {
	for _, w := range siblingTypes(moduleSources(t)) {
		t.Error(w)
	}
}

// siblingTypes returns one complaint for each type assertion, and each case of a type
// switch, to a type of another package of protocolFolders.
func siblingTypes(files []*source) (wrong []string) {
	for _, f := range files {
		if f.isTest() {
			continue
		}
		check := func(e ast.Expr) {
			qualified(f, e, func(target, name string, at ast.Node) {
				own, isOwn := strings.CutPrefix(target, module+"/")
				if isOwn && own != f.dir() && matchesAny(protocolFolders, own) {
					wrong = append(wrong, fmt.Sprintf(
						"%s: asks for the type %s of %s; make what it needs a method of an interface", f.at(at), name, own))
				}
			})
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeAssertExpr:
				if n.Type != nil {
					check(n.Type)
				}
			case *ast.TypeSwitchStmt:
				for _, clause := range n.Body.List {
					for _, e := range clause.(*ast.CaseClause).List {
						check(e)
					}
				}
			}
			return true
		})
	}
	return wrong
}

// TestSiblingTypesFixtures lets the rule pass and fail.
func TestSiblingTypesFixtures(t *testing.T) {
	const (
		down = `package a; import "` + module + `/proxy/downstream"; `
		up   = `package a; import uphttp "` + module + `/proxy/upstream/http"; `
	)
	for _, c := range []struct{ name, file, source, want string }{
		{"assertion", "proxy/a.go", up + `func f(x any) { _, _ = x.(uphttp.Conn) }`, "type Conn of proxy/upstream/http"},
		{"assertion to a pointer", "proxy/a.go", down + `func f(x any) { _, _ = x.(*downstream.Session) }`, "type Session of proxy/downstream"},
		{"type switch", "proxy/exchange/a.go", up + `func f(x any) { switch x.(type) { case int, *uphttp.Conn: } }`, "type Conn of proxy/upstream/http"},
		{"from a sibling", "proxy/upstream/link/a.go", up + `func f(x any) { switch y := x.(type) { case uphttp.Conn: _ = y } }`, "type Conn of proxy/upstream/http"},
		{"in a command", "cmd/remora/a.go", down + `func f(x any) { _ = x.(downstream.Streams) }`, "type Streams of proxy/downstream"},
		{"own type", "proxy/upstream/http/a.go", `package http; type Conn struct{}; func f(x any) { _ = x.(*Conn) }`, ""},
		{"other type", "proxy/a.go", `package a; import "io"; func f(x any) { _ = x.(io.Reader) }`, ""},
		{"switch on values", "proxy/a.go", up + `func f(x any) { switch x { case uphttp.Conn{}: } }`, ""},
		{"conversion", "proxy/a.go", up + `var x = uphttp.Kind(1)`, ""},
		{"test", "proxy/a_test.go", up + `func f(x any) { _ = x.(uphttp.Conn) }`, ""},
	} {
		expectOne(t, c.name, siblingTypes(fixture(t, map[string]string{c.file: c.source})), c.want)
	}
}
