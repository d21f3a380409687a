package archtest

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
)

// TestStates checks that only become assigns a state, so that it can refuse an illegal change.
func TestStates(t *testing.T) {
	for _, w := range stateAssignments(moduleSources(t)) {
		t.Error(w)
	}
}

// stateAssignments returns one complaint for each assignment to a field of a state type outside of a
// function called become. A state type is an enum: its name ends in State or state, and
// it is an integer. A composite literal is no assignment.
func stateAssignments(files []*source) (wrong []string) {
	m := &checkedModule{sources: map[string][]*source{}, packages: map[string]*types.Package{}}
	m.info.Selections = map[*ast.SelectorExpr]*types.Selection{}
	for _, f := range files {
		if !f.isTest() {
			m.sources[f.dir()] = append(m.sources[f.dir()], f)
		}
	}
	for dir := range m.sources {
		m.check(dir)
	}
	for _, dir := range slices.Sorted(maps.Keys(m.sources)) {
		for _, f := range m.sources[dir] {
			wrong = append(wrong, m.assignments(f)...)
		}
	}
	return wrong
}

func (m *checkedModule) assignments(f *source) (wrong []string) {
	for _, d := range f.tree.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Name.Name == "become" {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			var assigned []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				assigned = n.Lhs
			case *ast.IncDecStmt:
				assigned = []ast.Expr{n.X}
			case *ast.UnaryExpr: // a pointer to the field may be written through
				if n.Op.String() == "&" {
					assigned = []ast.Expr{n.X}
				}
			}
			for _, e := range assigned {
				if sel, ok := ast.Unparen(e).(*ast.SelectorExpr); ok {
					if field := m.stateField(sel); field != "" {
						wrong = append(wrong, fmt.Sprintf("%s: assigns %s; only become may, so that it can refuse an illegal change", f.at(n), field))
					}
				}
			}
			return true
		})
	}
	return wrong
}

// stateField returns "folder.Type.field" for a selected field of a state type, else "".
func (m *checkedModule) stateField(sel *ast.SelectorExpr) string {
	s := m.info.Selections[sel]
	if s == nil || s.Kind() != types.FieldVal {
		return ""
	}
	named, ok := types.Unalias(s.Obj().Type()).(*types.Named)
	if !ok || !strings.HasSuffix(strings.ToLower(named.Obj().Name()), "state") {
		return ""
	}
	if basic, ok := named.Underlying().(*types.Basic); !ok || basic.Info()&types.IsInteger == 0 {
		return ""
	}
	owner := s.Recv()
	if p, ok := types.Unalias(owner).Underlying().(*types.Pointer); ok {
		owner = p.Elem()
	}
	// The type that declares the field, where others embed it.
	for _, i := range s.Index()[:len(s.Index())-1] {
		owner = owner.Underlying().(*types.Struct).Field(i).Type()
		if p, ok := types.Unalias(owner).Underlying().(*types.Pointer); ok {
			owner = p.Elem()
		}
	}
	name := "struct"
	if n, ok := types.Unalias(owner).(*types.Named); ok {
		name = n.Obj().Name()
	}
	return s.Obj().Pkg().Path() + "." + name + "." + s.Obj().Name()
}

// checkedModule is the module with types. Other modules and the standard library are
// empty packages, which saves seconds. An assignment through a value that only they can
// type, such as one from a sync.Pool without a conversion, is not seen.
type checkedModule struct {
	sources  map[string][]*source
	packages map[string]*types.Package
	info     types.Info
}

// Import implements types.Importer.
func (m *checkedModule) Import(target string) (*types.Package, error) {
	if dir, own := strings.CutPrefix(target, module+"/"); own && len(m.sources[dir]) > 0 {
		return m.check(dir), nil
	}
	if m.packages[target] == nil {
		m.packages[target] = types.NewPackage(target, path.Base(target))
		m.packages[target].MarkComplete()
	}
	return m.packages[target], nil
}

func (m *checkedModule) check(dir string) *types.Package {
	if p := m.packages[dir]; p != nil {
		return p
	}
	var trees []*ast.File
	for _, f := range m.sources[dir] {
		trees = append(trees, f.tree)
	}
	config := types.Config{Importer: m, Error: func(error) {}, FakeImportC: true}
	p, _ := config.Check(dir, m.sources[dir][0].fset, trees, &m.info)
	m.packages[dir] = p
	return p
}

func TestStatesFixtures(t *testing.T) {
	files := fixture(t, map[string]string{
		"a/a.go": `package a
			import "sync/atomic"
			type connState uint8
			type longState struct { n int }
			type Conn struct { state connState; long longState; other int; atomic.Bool }
			type wrapped struct { *Conn }
			func (c *Conn) become(s connState) { c.state = s }
			func New() *Conn { return &Conn{state: 1} }
			func (c *Conn) f(w wrapped) {
				c.state = 2
				c.state++
				p := &c.state
				w.state, c.other = *p, 1
				c.long = longState{}
			}`,
		"b/b.go": `package b
			import "` + module + `/c"
			func f(x *c.Exchange) { x.State = 1 }`,
		"c/c.go": `package c
			type State int
			type Exchange struct { State State }`,
		"c/c_test.go": `package c
			func f(x *Exchange) { x.State = 1 }`,
	})
	wrong := stateAssignments(files)
	for field, want := range map[string]int{"a.Conn.state": 4, "c.Exchange.State": 1} {
		n := 0
		for _, w := range wrong {
			if strings.Contains(w, "assigns "+field+";") {
				n++
			}
		}
		if n != want {
			t.Errorf("%d complaints about %s, want %d", n, field, want)
		}
	}
	if len(wrong) != 5 {
		t.Errorf("got %q", wrong)
	}
}
