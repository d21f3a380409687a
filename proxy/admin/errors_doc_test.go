package admin

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol/dubbo"
	"github.com/remora-proxy/remora/protocol/link"
)

const errorsPage = "../../docs/errors.md"

// TestErrorsPage: docs/errors.md has every code that a caller, another sidecar, a
// log or a metric may show, with its status and text, and no other.
func TestErrorsPage(t *testing.T) {
	page, err := os.ReadFile(errorsPage)
	if err != nil {
		t.Fatal(err)
	}
	codes := declaredCodes(t)
	for status := range 256 {
		if s := dubbo.Status(status); s.Code() != "" && (status == 0 || s.Code() != "dubbo-unknown-status") {
			codes = append(codes, fmt.Sprintf("| `%s` | %d | ", s.Code(), s.HTTP()))
		}
		if name := link.Reason(status).String(); name != "unknown" {
			codes = append(codes, fmt.Sprintf("| `%s` | %d | ", name, status))
		}
	}
	seen := make([]bool, len(codes))
	for _, line := range strings.Split(string(page), "\n") {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		i := slices.IndexFunc(codes, func(code string) bool { return strings.HasPrefix(line, code) })
		if i < 0 {
			t.Errorf("docs/errors.md has a code, status or text that is not there:\n%s", line)
			continue
		}
		seen[i] = true
	}
	for i, code := range codes {
		if !seen[i] {
			t.Errorf("docs/errors.md lacks a row that begins\n%s", code)
		}
	}
}

// declaredCodes are how the rows of the codes in the source begin.
func declaredCodes(t *testing.T) (rows []string) {
	t.Helper()
	for _, pattern := range []string{
		"../fault/*.go", "../certs/*.go", "../reactor/*.go", "../stream/*.go", "../../cmd/remora/*.go",
		"../../protocol/http1/*.go", "../../protocol/dubbo/*.go", "../../protocol/link/*.go",
	} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			if !strings.HasSuffix(file, "_test.go") {
				rows = append(rows, codesIn(t, file)...)
			}
		}
	}
	slices.Sort(rows)
	return slices.Compact(rows)
}

// codesIn looks for the literals of Failure and Error, for constants named as codes,
// and for what is logged as a code.
func codesIn(t *testing.T, file string) (rows []string) {
	t.Helper()
	tree, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tree, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CompositeLit:
			if name, ok := n.Type.(*ast.Ident); ok && (name.Name == "Failure" || name.Name == "Error") {
				rows = append(rows, rowOf(n)...)
			}
		case *ast.ValueSpec:
			name := n.Names[0].Name
			isCode := strings.HasPrefix(name, "Code") || strings.HasPrefix(name, "refused")
			if code := literals(n.Values); isCode && len(code) == 1 {
				rows = append(rows, fmt.Sprintf("| `%s` | – | ", code[0]))
			}
		case *ast.CallExpr:
			args := literals(n.Args)
			if i := slices.Index(args, "code"); i >= 0 && i+1 < len(args) && args[i+1] != "" {
				rows = append(rows, fmt.Sprintf("| `%s` | – | ", args[i+1]))
			}
		}
		return true
	})
	return rows
}

// rowOf is the row of a Failure or Error whose code and text are written out; what
// stands in it that is no literal is left out.
func rowOf(n *ast.CompositeLit) []string {
	var parts []string
	for _, part := range n.Elts {
		if pair, ok := part.(*ast.KeyValueExpr); ok {
			part = pair.Value
		}
		if text := literals([]ast.Expr{part})[0]; text != "" {
			parts = append(parts, text)
		}
	}
	switch {
	case len(parts) == 2 && !isNumber(parts[1]):
		return []string{fmt.Sprintf("| `%s` | – | %s | ", parts[0], parts[1])}
	case len(parts) == 3:
		return []string{fmt.Sprintf("| `%s` | %s | %s | ", parts[0], parts[1], parts[2])}
	}
	return nil
}

func isNumber(text string) bool {
	_, err := strconv.Atoi(text)
	return err == nil
}

// literals are the values of strings and numbers, "" for what is none.
func literals(exprs []ast.Expr) []string {
	values := make([]string, len(exprs))
	for i, expr := range exprs {
		lit, ok := expr.(*ast.BasicLit)
		if !ok {
			continue
		}
		values[i] = lit.Value
		if text, err := strconv.Unquote(lit.Value); err == nil {
			values[i] = text
		}
	}
	return values
}
