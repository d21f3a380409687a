package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/ast"
	"slices"
	"strconv"
	"strings"
)

// One test binary holds many changes, so that trying a change costs no compilation: mutant schemata (Untch, Offutt and Harrold,
// "Mutation analysis using mutant schemata", 1993). The source gets a copy of the function for each change, and the function calls
// the copy whose number an environment variable has.
//
// Each of these functions also notes in a file that it was called: a change is tried with the tests that call its function.
const (
	chooser   = "MUTATE_CHANGE"    // the environment variable; numbers count from 1
	chosen    = "mutateChange"     // the Go variable with its value, or 0
	copyOf    = "_change"          // stands between the name of the function and the number, in the name of the copy
	noter     = "MUTATE_CALLED"    // the environment variable with the path of the file, "" for none
	note      = "mutateCalled"     // the Go function that notes the number of a function in it
	extraFile = "mutate_change.go" // has the Go variable and the Go function
)

// extraSource returns the text of extraFile. Functions have numbers up to last.
func extraSource(pkg string, last int) []byte {
	return fmt.Appendf(nil, `package %[1]s

import (
	mutateos "os"
	mutatestrconv "strconv"
	mutateatomic "sync/atomic"
)

var (
	%[2]s, _    = mutatestrconv.Atoi(mutateos.Getenv(%[3]q))
	mutateFile, _  = mutateos.OpenFile(mutateos.Getenv(%[4]q), mutateos.O_WRONLY|mutateos.O_APPEND, 0)
	mutateNoted [%[5]d]mutateatomic.Bool
)

func %[6]s(number int) {
	if mutateFile != nil && !mutateNoted[number].Swap(true) {
		mutateFile.WriteString(mutatestrconv.Itoa(number) + "\n")
	}
}
`, pkg, chosen, chooser, noter, last+1, note)
}

// canCopy reports whether a copy of the function does what the function does. A copy is called by the function, so recover would
// do nothing in it.
func canCopy(fn *ast.FuncDecl) bool {
	can := fn.Name.Name != "_"
	ast.Inspect(fn, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && id.Name == "recover" {
			can = false
		}
		return can
	})
	if types := fn.Type.TypeParams; types != nil {
		can = can && !slices.Contains(namesOf(types), "_")
	}
	return can
}

// functionNumbers numbers the functions of changes, whose numbers count from 1: each has the number of its first change.
func functionNumbers(changes []*change) map[*ast.FuncDecl]int {
	numbers := make(map[*ast.FuncDecl]int)
	for i, c := range changes {
		if numbers[c.of] == 0 {
			numbers[c.of] = i + 1
		}
	}
	return numbers
}

// withCopies returns the source of a file with copies of its functions, for changes of this file by their numbers. The functions can be
// copied. They have numbers, too.
func withCopies(source []byte, changes map[int]*change, functions map[*ast.FuncDecl]int) []byte {
	of := make(map[*ast.FuncDecl][]int)
	for n, c := range changes {
		of[c.of] = append(of[c.of], n)
	}
	var edits []edit
	var copies bytes.Buffer
	for fn, numbers := range of {
		slices.Sort(numbers)
		edits = append(edits, called(fn, functions[fn], numbers)...)
		begin, name, end := offset(fn.Pos()), offset(fn.Name.End()), offset(fn.End())
		for _, n := range numbers {
			c := changes[n]
			// What the compiler says of the copy begins with the number.
			fmt.Fprintf(&copies, "\n//line %s%d:1\n%s%s%d", copyOf, n, source[begin:name], copyOf, n)
			fmt.Fprintf(&copies, "%s%s%s", source[name:c.start], c.text, source[c.end:end])
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return cmp.Compare(a.at, b.at) })
	var out bytes.Buffer
	at := 0
	for _, e := range edits {
		out.Write(source[at:e.at])
		out.WriteString(e.text)
		at = e.at + e.removed
	}
	out.Write(source[at:])
	out.Write(copies.Bytes())
	return out.Bytes()
}

// edit puts text in the place of bytes of a source.
type edit struct {
	at, removed int
	text        string
}

// called returns the edits that make a function note its number and call its copies. Parameters without names get some.
func called(fn *ast.FuncDecl, number int, numbers []int) (edits []edit) {
	named := func(fields *ast.FieldList) (names []string) {
		for _, field := range fields.List {
			if field.Names == nil {
				name := fmt.Sprintf("mutate%d", len(edits))
				names, edits = append(names, name), append(edits, edit{offset(field.Type.Pos()), 0, name + " "})
			}
			for _, id := range field.Names {
				name := id.Name
				if name == "_" {
					name = fmt.Sprintf("mutate%d", len(edits))
					edits = append(edits, edit{offset(id.Pos()), 1, name})
				}
				names = append(names, name)
			}
		}
		return names
	}
	callee, types := fn.Name.Name, ""
	if fn.Recv != nil {
		callee = named(fn.Recv)[0] + "." + callee
	}
	if fn.Type.TypeParams != nil {
		types = "[" + strings.Join(namesOf(fn.Type.TypeParams), ", ") + "]"
	}
	arguments := strings.Join(named(fn.Type.Params), ", ")
	if n := len(fn.Type.Params.List); n > 0 {
		if _, variadic := fn.Type.Params.List[n-1].Type.(*ast.Ellipsis); variadic {
			arguments += "..."
		}
	}
	var calls strings.Builder
	fmt.Fprintf(&calls, " %s(%d); switch %s {", note, number, chosen)
	for _, n := range numbers {
		call := callee + copyOf + strconv.Itoa(n) + types + "(" + arguments + ")"
		if fn.Type.Results != nil {
			fmt.Fprintf(&calls, " case %d: return %s;", n, call)
		} else {
			fmt.Fprintf(&calls, " case %d: %s; return;", n, call)
		}
	}
	calls.WriteString(" };")
	return append(edits, edit{offset(fn.Body.Lbrace) + 1, 0, calls.String()})
}

func namesOf(fields *ast.FieldList) (names []string) {
	for _, field := range fields.List {
		for _, id := range field.Names {
			names = append(names, id.Name)
		}
	}
	return names
}
