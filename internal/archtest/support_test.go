package archtest

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// testSupport lists the packages that only tests and suites need. No command may carry them.
var testSupport = []string{
	"proxy/sim/...", "proxy/conformance/...", "proxy/proxytest/...", "proxy/reactor/backlogtest", "registry/registrytest", "internal/corpus", "internal/eventually", "internal/must",
	"internal/syncbuffer", "internal/testcerts", "internal/docgen", "internal/*test", "scripts/...", "e2e/...",
}

// TestNoTestSupportInCommands follows all imports of the commands.
func TestNoTestSupportInCommands(t *testing.T) {
	files := moduleSources(t)
	wrong, commands := supportInCommands(files)
	if commands < 2 {
		t.Errorf("found %d commands", commands)
	}
	for _, w := range wrong {
		t.Error(w)
	}
}

// supportInCommands returns a chain of imports for each package of testSupport that a
// command reaches, and the number of commands.
func supportInCommands(files []*source) (wrong []string, commands int) {
	imports := map[string][]string{}
	for _, f := range files {
		if f.isTest() {
			continue
		}
		imports[f.dir()] = append(imports[f.dir()], "") // a package without imports is there, too
		for _, spec := range f.tree.Imports {
			target, err := strconv.Unquote(spec.Path.Value)
			if err == nil && strings.HasPrefix(target, module+"/") {
				imports[f.dir()] = append(imports[f.dir()], strings.TrimPrefix(target, module+"/"))
			}
		}
	}
	for dir := range imports {
		if !matchesAny([]string{"cmd/..."}, dir) {
			continue
		}
		commands++
		for _, chain := range chains(imports, dir) {
			wrong = append(wrong, fmt.Sprintf("%s carries test support: %s", dir, strings.Join(chain, " → ")))
		}
	}
	slices.Sort(wrong)
	return wrong, commands
}

// chains returns the shortest way from a package to each package of testSupport.
func chains(imports map[string][]string, from string) (found [][]string) {
	ways := map[string][]string{from: {from}}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		at := queue[0]
		if at != from && isTestSupport(at) {
			found = append(found, ways[at])
			continue
		}
		for _, next := range imports[at] {
			if next != "" && ways[next] == nil {
				ways[next] = append(slices.Clone(ways[at]), next)
				queue = append(queue, next)
			}
		}
	}
	return found
}

func isTestSupport(dir string) bool {
	return slices.ContainsFunc(testSupport, func(pattern string) bool {
		ok, _ := path.Match(pattern, dir)
		return ok || matchesAny([]string{pattern}, dir)
	})
}

func TestSupportInCommands(t *testing.T) {
	tree := func(target string) []*source {
		return fixture(t, map[string]string{
			"cmd/x/main.go":          `package main; import "` + module + `/lab"`,
			"cmd/x/main_test.go":     `package main; import "` + module + `/proxy/sim"`,
			"lab/a.go":               `package lab; import "` + module + `/lab/b"`,
			"lab/b/b.go":             `package b; import "` + module + `/` + target + `"`,
			"scripts/x/main.go":      `package main; import "` + module + `/proxy/sim"`,
			target + "/a.go":         `package a`,
			"internal/leaktest/a.go": `package leaktest`,
		})
	}
	for target, want := range map[string]string{
		"lb":                "",
		"proxy/sim/mesh":    "cmd/x → lab → lab/b → proxy/sim/mesh",
		"proxy/proxytest":   "lab/b → proxy/proxytest",
		"internal/leaktest": "lab/b → internal/leaktest",
		"internal/corpus":   "lab/b → internal/corpus",
	} {
		wrong, _ := supportInCommands(tree(target))
		expectOne(t, target, wrong, want)
	}
}
