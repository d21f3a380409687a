package archtest

import (
	"fmt"
	"go/ast"
	"slices"
	"testing"
)

// parts lists, by folder, the types that divide a session, a service or a codec. Each part is a field of what it divides
// with the name of the type, or is returned by a method with that name.
var parts = map[string][]string{
	"protocol/http2":         {"reader", "heads", "bodies", "settings", "acks", "goodbye", "streams"},
	"proxy/downstream/dubbo": {"input", "calls", "output", "ending"},
	"proxy/downstream/http":  {"input", "timeouts", "expectation", "turn", "leaving", "tunnel", "redirect"},
	"proxy/downstream/http2": {"input", "calls", "output", "ending"},
	"proxy/downstream/link":  {"input", "calls", "leaving", "ending"},
	"proxy/upstream/link":    {"calls"},
	"proxy/upstream/http2":   {"handshake", "withdrawn", "partial"},
	"proxy/service":          {"Admission", "Budget", "Bounds", "stalls"},
}

// TestDoors checks that the parts call each other, and use no field of each other. A field that a part embeds is what
// the parts hand to each other.
func TestDoors(t *testing.T) {
	for _, w := range openDoors(moduleSources(t)) {
		t.Error(w)
	}
}

// openDoors returns one complaint for each field of a part that is selected through the whole.
func openDoors(files []*source) (wrong []string) {
	fields := map[string][]string{} // of "folder.part"
	for _, f := range files {
		for name, part := range structs(f) {
			if slices.Contains(parts[f.dir()], name) {
				fields[f.dir()+"."+name] = part
			}
		}
	}
	for _, f := range files {
		if f.isTest() || parts[f.dir()] == nil {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				from := sel.X
				if call, ok := from.(*ast.CallExpr); ok {
					from = call.Fun
				}
				part, ok := from.(*ast.SelectorExpr)
				if ok && slices.Contains(fields[f.dir()+"."+part.Sel.Name], sel.Sel.Name) {
					wrong = append(wrong, fmt.Sprintf("%s: uses the field %s of the part %s; call a method of it", f.at(n), sel.Sel.Name, part.Sel.Name))
				}
			}
			return true
		})
	}
	return wrong
}

// structs returns the names of the fields of each struct type in a file, without embedded ones.
func structs(f *source) map[string][]string {
	all := map[string][]string{}
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if spec, ok := n.(*ast.TypeSpec); ok {
			if s, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range s.Fields.List {
					for _, name := range field.Names {
						all[spec.Name.Name] = append(all[spec.Name.Name], name.Name)
					}
				}
			}
		}
		return true
	})
	return all
}

// TestDoorsFixtures lets the rule pass and fail.
func TestDoorsFixtures(t *testing.T) {
	const types = `package http; type shared struct{ b int }; type session struct { input input; turn turn }
type input struct { *session; *shared; a int }; type turn struct { *session }; `
	for _, c := range []struct{ name, source, want string }{
		{"field", `func (t *turn) f() { t.input.a = 1 }`, "field a of the part input"},
		{"field in the session", `func (s *session) f() int { return s.input.a }`, "field a of the part input"},
		{"field of a part from a method", `func (t *turn) f() int { return t.input().a }`, "field a of the part input"},
		{"own field", `func (in *input) f() { in.a = 1 }`, ""},
		{"method", `func (t *turn) f() { t.input.f() }; func (in *input) f() {}`, ""},
		{"what is handed over", `func (t *turn) f() int { return t.input.b }`, ""},
	} {
		expectOne(t, c.name, openDoors(fixture(t, map[string]string{"proxy/downstream/http/a.go": types + c.source})), c.want)
	}
}
