package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
)

// change is one small change of a file.
type change struct {
	file  string // path in the module
	in    string // the function, with the type of its receiver
	line  string // text of the line on which the change begins, without indentation
	what  string // such as "&& becomes ||"
	which int    // of those that are the same in all of the above, from 1

	start, end int           // the bytes that text replaces
	text       string        // "" removes them
	of         *ast.FuncDecl // the function
}

// String names the change in logs and in equivalent.txt. It stays the same while its function does.
func (c *change) String() string {
	which := ""
	if c.which > 1 {
		which = fmt.Sprintf(" (%d)", c.which)
	}
	return fmt.Sprintf("%s: %s: %s%s: %s", c.file, c.in, c.what, which, c.line)
}

// apply returns the source with the change.
func (c *change) apply(source []byte) []byte {
	return bytes.Join([][]byte{source[:c.start], []byte(c.text), source[c.end:]}, nil)
}

// operators are what may stand for an operator.
var operators = map[token.Token][]token.Token{
	token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.LSS: {token.LEQ, token.GEQ}, token.GEQ: {token.GTR, token.LSS},
	token.GTR: {token.GEQ, token.LEQ}, token.LEQ: {token.LSS, token.GTR},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.QUO},
	token.AND: {token.OR}, token.OR: {token.AND}, token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN}, token.OR_ASSIGN: {token.AND_ASSIGN},
	token.INC: {token.DEC}, token.DEC: {token.INC},
	token.BREAK: {token.CONTINUE}, token.CONTINUE: {token.BREAK},
}

// changesOf returns all changes of a file. Some of them don't compile.
func changesOf(file string, source []byte) ([]*change, error) {
	syntax, err := parser.ParseFile(token.NewFileSet(), file, source, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	f := finder{file: file, source: source, seen: make(map[string]int)}
	for _, decl := range syntax.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.of, f.in = fn, nameOf(fn)
			ast.Inspect(fn.Body, f.visit)
		}
	}
	return f.found, nil
}

// nameOf returns the name of a function, such as "(*T).F".
func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	of, star := fn.Recv.List[0].Type, ""
	if p, ok := of.(*ast.StarExpr); ok {
		of, star = p.X, "*"
	}
	switch generic := of.(type) {
	case *ast.IndexExpr:
		of = generic.X
	case *ast.IndexListExpr:
		of = generic.X
	}
	return fmt.Sprintf("(%s%s).%s", star, of.(*ast.Ident).Name, fn.Name.Name)
}

// finder collects the changes of one file.
type finder struct {
	file   string
	source []byte
	of     *ast.FuncDecl  // the present function
	in     string         // its name
	seen   map[string]int // how many changes have the same name
	found  []*change
}

// offset returns how many bytes are before a position, in a file that is parsed with a file set of its own.
func offset(p token.Pos) int { return int(p) - 1 }

// add notes that text may replace the source between two positions.
func (f *finder) add(what string, from, to token.Pos, text string) {
	c := &change{file: f.file, in: f.in, what: what, start: offset(from), end: offset(to), text: text, of: f.of}
	begin := bytes.LastIndexByte(f.source[:c.start], '\n') + 1
	line, _, _ := bytes.Cut(f.source[begin:], []byte("\n"))
	c.line = strings.TrimSpace(string(line))
	name := c.String()
	f.seen[name]++
	c.which = f.seen[name]
	f.found = append(f.found, c)
}

// replace notes what may stand for an operator at a position.
func (f *finder) replace(at token.Pos, op token.Token) {
	for _, other := range operators[op] {
		f.add(op.String()+" becomes "+other.String(), at, at+token.Pos(len(op.String())), other.String())
	}
}

func (f *finder) remove(n ast.Node) { f.add("removed", n.Pos(), n.End(), "") }

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.ExprStmt:
		if logs(n.X) {
			return false
		}
		f.remove(n)
	case *ast.BinaryExpr:
		f.replace(n.OpPos, n.Op)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			f.add("! removed", n.OpPos, n.OpPos+1, "")
		}
	case *ast.ReturnStmt:
		if last := len(n.Results) - 1; last > 0 && isError(n.Results[last]) {
			ast.Inspect(n.Results[last], f.visit)
			return false
		}
	case *ast.IncDecStmt:
		f.replace(n.TokPos, n.Tok)
	case *ast.AssignStmt:
		f.replace(n.TokPos, n.Tok)
		if n.Tok != token.DEFINE {
			f.remove(n)
		}
	case *ast.BranchStmt:
		if n.Label == nil {
			f.replace(n.TokPos, n.Tok)
		}
	case *ast.IfStmt:
		f.condition(n.Cond)
	case *ast.Ident:
		if other := map[string]string{"true": "false", "false": "true"}[n.Name]; other != "" {
			f.add(n.Name+" becomes "+other, n.Pos(), n.End(), other)
		}
	case *ast.BasicLit:
		if i, err := strconv.ParseInt(n.Value, 0, 64); n.Kind == token.INT && err == nil {
			f.add(fmt.Sprintf("%s becomes %d", n.Value, i+1), n.Pos(), n.End(), strconv.FormatInt(i+1, 10))
		}
	}
	return true
}

// condition negates a condition without an operator of its own.
func (f *finder) condition(cond ast.Expr) {
	switch cond.(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr:
		return
	}
	source := f.source[offset(cond.Pos()):offset(cond.End())]
	f.add("negated", cond.Pos(), cond.End(), "!("+string(source)+")")
}

// isError reports whether a result is surely an error: then the results beside it mean nothing.
func isError(result ast.Expr) bool {
	switch x := result.(type) {
	case *ast.Ident:
		return strings.HasPrefix(x.Name, "Err") || strings.HasPrefix(x.Name, "err") && x.Name != "err"
	case *ast.CallExpr:
		if fn, ok := x.Fun.(*ast.SelectorExpr); ok {
			of, ok := fn.X.(*ast.Ident)
			return ok && (of.Name == "fmt" && fn.Sel.Name == "Errorf" || of.Name == "errors" && fn.Sel.Name == "New")
		}
	}
	return false
}

// logs reports whether an expression calls a method of a logger, or panics: what they say is for people.
func logs(x ast.Expr) bool {
	call, ok := x.(*ast.CallExpr)
	if !ok {
		return false
	}
	if fn, ok := call.Fun.(*ast.Ident); ok {
		return fn.Name == "panic"
	}
	method, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch of := method.X.(type) {
	case *ast.Ident:
		return of.Name == "log"
	case *ast.SelectorExpr:
		return of.Sel.Name == "log" || of.Sel.Name == "Log"
	}
	return false
}
