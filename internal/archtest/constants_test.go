package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// decide lists the packages whose constants decide something: when to hedge, which endpoint.
var decide = []string{"lb/...", "proxy/hedge/..."}

// untested lists constants without a test, with the reason.
var untested = map[string]string{
	"lb.golden":      "it is part of a hash",
	"lb.loadFade":    "each request reads it, and no value from 50 ms to 1 s makes a difference",
	"lb.maxFull":     "it keeps sums finite",
	"lb.maxWeight":   "it bounds what a registry says",
	"lb.rampPending": "it is a mark",

	"lb/log2.bias":     "it is part of the format of floats",
	"lb/log2.mantissa": "it is part of the format of floats",

	"lb/probe.Asked":      "package lb tests it",
	"lb/probe.poolMost":   "it bounds memory",
	"lb/probe.recentMost": "it is the length of an array",
	"lb/spare.levels":     "it is the length of an array",

	"proxy/hedge/choice.bounds":       "it is the length of an array",
	"proxy/hedge/choice.perDoubling":  "it follows from shift",
	"proxy/hedge/choice.shift":        "arrays depend on it",
	"proxy/hedge/class.classBuckets":  "it is the length of an array",
	"proxy/hedge/class.classShift":    "arrays depend on it",
	"proxy/hedge/class.maxClassName":  "it bounds what a request says",
	"proxy/hedge/class.maxClasses":    "it is the length of an array",
	"proxy/hedge/class.smallBits":     "arrays depend on it",
	"proxy/hedge/forecast.maxEvery":   "it keeps twice the number from overflow",
	"proxy/hedge/forecast.maxNoted":   "it bounds memory",
	"proxy/hedge/forecast.maxWatched": "it bounds memory",
	"proxy/hedge/forecast.minNoted":   "it is the first length of a slice that grows",
	"proxy/hedge/forecast.never":      "it is a mark",

	"proxy/hedge/forecast.timelineUnit":    "it is part of a format",
	"proxy/hedge/forecast.tookPending":     "it is a mark",
	"proxy/hedge/forecast.tookUnavailable": "it is a mark",
	"proxy/hedge/histogram.Buckets":        "it is the length of an array",
	"proxy/hedge/histogram.linear":         "it follows from subBits",
	"proxy/hedge/histogram.subBits":        "arrays depend on it",
	"proxy/hedge/histogram.topBits":        "arrays depend on it",
}

// TestConstantsHaveTests checks that there is a test of each constant that decides something, which shows what happens at twice
// and at half of it. See package modeltest.
func TestConstantsHaveTests(t *testing.T) {
	for _, w := range constantsWithoutTest(moduleSources(t), untested) {
		t.Error(w)
	}
}

// constantsWithoutTest returns a complaint for each constant whose name begins no text in a test of its package, such as
// "name: what happens", and that is not excused; and for each excuse that is not needed.
func constantsWithoutTest(files []*source, excused map[string]string) (wrong []string) {
	tested := map[string]bool{}
	for _, f := range files {
		if f.isTest() {
			for _, text := range texts(f) {
				name, _, _ := strings.Cut(text, ": ")
				tested[f.dir()+"."+name] = true
			}
		}
	}
	seen := map[string]bool{}
	for _, f := range files {
		if f.isTest() || !matchesAny(decide, f.dir()) {
			continue
		}
		for _, name := range numbers(f) {
			full := f.dir() + "." + name.Name
			seen[full] = true
			switch excuse := excused[full]; {
			case !tested[full] && excuse == "":
				wrong = append(wrong, fmt.Sprintf("%s: no test shows what happens at twice and at half of %s", f.at(name), name.Name))
			case tested[full] && excuse != "":
				wrong = append(wrong, fmt.Sprintf("%s: %s has a test, and an excuse", f.at(name), name.Name))
			}
		}
	}
	for full := range excused {
		if !seen[full] {
			wrong = append(wrong, full+" has an excuse, and is not there")
		}
	}
	slices.Sort(wrong)
	return wrong
}

// texts returns the string literals of a file.
func texts(f *source) (all []string) {
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if text, err := strconv.Unquote(lit.Value); err == nil {
				all = append(all, text)
			}
		}
		return true
	})
	return all
}

// numbers returns the names of the numbers of a file that do not change: its constants, but for enumerations, the variables
// that are given a number, and the fields of a type that is named constants.
func numbers(f *source) (names []*ast.Ident) {
	for _, d := range f.tree.Decls {
		d, ok := d.(*ast.GenDecl)
		if !ok || enumerates(d) {
			continue
		}
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.ValueSpec:
				if d.Tok == token.CONST || slices.ContainsFunc(s.Values, isNumber) {
					names = append(names, s.Names...)
				}
			case *ast.TypeSpec:
				if fields, ok := s.Type.(*ast.StructType); ok && s.Name.Name == "constants" {
					for _, field := range fields.Fields.List {
						names = append(names, field.Names...)
					}
				}
			}
		}
	}
	return names
}

// enumerates reports whether a declaration has iota.
func enumerates(d *ast.GenDecl) (found bool) {
	ast.Inspect(d, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		found = found || ok && id.Name == "iota"
		return true
	})
	return found
}

// isNumber reports whether an expression is made of numbers, units such as time.Second, and conversions.
func isNumber(x ast.Expr) bool {
	switch x := x.(type) {
	case *ast.BasicLit:
		return x.Kind != token.STRING
	case *ast.SelectorExpr:
		pkg, ok := x.X.(*ast.Ident)
		return ok && pkg.Name == "time"
	case *ast.BinaryExpr:
		return isNumber(x.X) && isNumber(x.Y)
	case *ast.CallExpr:
		to, ok := x.Fun.(*ast.Ident)
		return ok && to.Name == "float64" && isNumber(x.Args[0])
	}
	return false
}

func TestConstantsHaveTestsFixtures(t *testing.T) {
	wrong := constantsWithoutTest(fixture(t, map[string]string{
		"lb/a.go": `package lb
			const tested, lone = 1, 2
			var (
				wait  = 2 * time.Second
				life  = float64(5 * time.Second)
				count int = 3
				table = []int{1}
				name  = "a"
			)
			const (
				first = iota
				second
			)
			type constants struct { half time.Duration }`,
		"lb/a_test.go": `package lb
			var _ = []string{"tested: more or less", "wait", "tested too"}`,
		"lb/b/b.go":      "package b\nconst excused, other = 1, 2",
		"lb/b/b_test.go": "package b\nvar _ = `other: less`",
		"proxy/c.go":     "package proxy\nconst free = 1",
	}), map[string]string{"lb/b.excused": "it is a mark", "lb/b.other": "it is a mark", "lb/b.gone": "it is a mark"})
	want := []string{
		"lb/a.go:14: no test shows what happens at twice and at half of half",
		"lb/a.go:2: no test shows what happens at twice and at half of lone",
		"lb/a.go:5: no test shows what happens at twice and at half of life",
		"lb/a.go:6: no test shows what happens at twice and at half of count",
		"lb/b.gone has an excuse, and is not there",
		"lb/b/b.go:2: other has a test, and an excuse",
	}
	if !slices.Equal(wrong, want) {
		t.Errorf("got %q, want %q", wrong, want)
	}
}
