package archtest

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Check returns one complaint, with its reason, for each broken rule.
func Check(files []File) []string {
	var wrong []string
	for i := range files {
		f := &files[i]
		complain := func(line int, format string, args ...any) {
			wrong = append(wrong, fmt.Sprintf("%s:%d: %s", f.Path, line, fmt.Sprintf(format, args...)))
		}
		checkLayer(f, complain)
		checkHomes(f, complain)
		checkCore(f, complain)
	}
	return wrong
}

func checkLayer(f *File, complain func(int, string, ...any)) {
	i := slices.IndexFunc(layers, func(l layer) bool { return matchesAny(l.packages, f.Dir()) })
	if i < 0 {
		complain(1, "package %s has no place in the layers; add it to internal/archtest/rules_test.go", f.Dir())
		return
	}
	for _, imp := range f.Imports {
		// Tests may drive a package through any other.
		if !imp.Own || f.IsTest() || imp.Path == f.Dir() || matchesAny(layers[i].mayOf(f.Dir()), imp.Path) {
			continue
		}
		complain(imp.Line, "%s must not import %s: %s", f.Dir(), imp.Path, layers[i].why)
	}
}

// mayOf returns what the package pkg of the layer may import.
func (l *layer) mayOf(pkg string) []string {
	may := slices.Clone(l.may)
	for i := range may {
		may[i] = strings.ReplaceAll(may[i], "NAME", path.Base(pkg))
	}
	return may
}

func checkHomes(f *File, complain func(int, string, ...any)) {
	for _, imp := range f.Imports {
		first, _, _ := strings.Cut(imp.Path, "/")
		if imp.Own || !strings.Contains(first, ".") {
			continue // the module's own, or the standard library
		}
		i := slices.IndexFunc(homes, func(h home) bool { return strings.HasPrefix(imp.Path, h.library) })
		if i < 0 {
			complain(imp.Line, "%s has no home; a new library needs a reason, in internal/archtest/rules_test.go", imp.Path)
			continue
		}
		h := homes[i]
		atHome := matchesAny(h.packages, f.Dir()) ||
			f.IsTest() && (slices.Contains(h.packages, f.Dir()+"_test") || slices.Contains(h.packages, "_test"))
		if !atHome {
			complain(imp.Line, "%s lives in %s: %s", imp.Path, strings.Join(h.packages, ", "), h.why)
		}
	}
}
