package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// core lists the packages that do no I/O: what they do with a request depends only on
// the driver's events, so that a failing simulation can be replayed exactly.
var core = []string{
	"proxy", "proxy/loop", "proxy/fault", "proxy/limit/...", "proxy/allow", "proxy/identity", "proxy/forwarded", "proxy/shard", "proxy/route", "proxy/filter/...", "proxy/caching/...", "proxy/exchange", "proxy/race", "proxy/service", "proxy/fair/share", "proxy/fifo", "proxy/mux/...",
	"proxy/upstream/...", "proxy/downstream/...", "proxy/hedge/...", "proxy/telemetry/stats", "proxy/telemetry/trace", "lb/...", "protocol/...",
}

// coreFiles are files of the core in packages that do I/O elsewhere.
var coreFiles = []string{"proxy/telemetry/accesslog/log.go", "proxy/telemetry/accesslog/stream.go"}

// isCore reports whether a file belongs to the core.
func isCore(name string) bool {
	return matchesAny(core, path.Dir(name)) || slices.Contains(coreFiles, name)
}

const coreWhy = "the core gets time and connections from its loop alone, so that the simulator can replay it"

// notInCore lists what the core may not import or use.
var notInCore = []string{
	"net", "net/http", "os", "os/signal", "syscall", "sync", "log", "log/slog",
	"time.Now", "time.Since", "time.Until", "time.Sleep", "time.After", "time.AfterFunc", "time.NewTimer",
	"time.NewTicker", "time.Tick", "go", "a dot import",
}

// besideCore lists files that do I/O in packages that the core imports. The core may
// not use what they declare.
var besideCore = []struct{ path, why string }{
	{"proxy/config/load.go", "the command reads the file; the core gets the structs"},
	{"proxy/telemetry/accesslog/output.go", "the writer's goroutine opens the log; the core gets a queue"},
	{"internal/atomicfile/atomicfile.go", "the command writes files; the core gets what was read"},
	{"registry/address.go", "it splits addresses with package net, and does no I/O"},
	{"registry/cache.go", "the command stores snapshots in files; the core gets snapshots"},
	{"registry/condition.go", "the command shows how sources do; the core gets snapshots"},
	{"registry/tally.go", "as condition.go, of which it is a part"},
	{"registry/share.go", "the command shares watches, on goroutines; the core gets snapshots"},
}

func checkCore(f *File, complain func(int, string, ...any)) {
	if f.IsTest() || !isCore(f.Path) {
		return
	}
	for _, imp := range f.Imports {
		if slices.Contains(notInCore, imp.Path) {
			complain(imp.Line, "%s must not import %s: %s", f.Dir(), imp.Path, coreWhy)
		}
	}
	for _, use := range f.Uses {
		if slices.Contains(notInCore, use.What) {
			complain(use.Line, "%s must not use %s: %s", f.Dir(), use.What, coreWhy)
		}
	}
}

// TestCoreReach follows all imports of the core.
func TestCoreReach(t *testing.T) {
	files := moduleSources(t)
	wrong := coreReach(files)
	for _, w := range wrong {
		t.Error(w)
	}
}

// coreReach returns one complaint for each file that the core reaches through imports
// of the module and that imports one of notInCore, for each use of a declaration of
// besideCore by the core, and for each file that needs no place in besideCore.
func coreReach(files []*source) (wrong []string) {
	byDir := map[string][]*source{}
	for _, f := range files {
		if !f.isTest() {
			byDir[f.dir()] = append(byDir[f.dir()], f)
		}
	}
	ways := map[string]string{} // from a package of the core, to each that it reaches
	var queue []string
	for _, f := range files { // in the order of paths
		if dir := f.dir(); matchesAny(core, dir) && ways[dir] == "" && !f.isTest() {
			ways[dir] = dir
			queue = append(queue, dir)
		}
	}
	needed := map[string]bool{}
	for ; len(queue) > 0; queue = queue[1:] {
		dir := queue[0]
		for _, f := range byDir[dir] {
			for _, target := range importsOf(f) {
				own, isOwn := strings.CutPrefix(target, module+"/")
				switch {
				case isOwn && ways[own] == "":
					ways[own] = ways[dir] + " → " + own
					queue = append(queue, own)
				case isOwn || !slices.Contains(notInCore, target):
				case isBesideCore(f.path):
					needed[f.path] = true
				default:
					wrong = append(wrong, fmt.Sprintf("%s imports %s, and the core reaches it: %s; %s", f.path, target, ways[dir], coreWhy))
				}
			}
		}
	}
	for _, e := range besideCore {
		if !needed[e.path] {
			wrong = append(wrong, fmt.Sprintf("%s needs no place in besideCore", e.path))
		}
	}
	return append(wrong, usesBesideCore(files)...)
}

// usesBesideCore returns one complaint for each use of a declaration of besideCore in
// another package of the core.
func usesBesideCore(files []*source) (wrong []string) {
	declares := map[string]string{} // "import path.Name", to the file
	for _, f := range files {
		if !isBesideCore(f.path) {
			continue
		}
		for _, decl := range f.tree.Decls {
			for _, name := range namesOf(decl) {
				declares[module+"/"+f.dir()+"."+name] = f.path
			}
		}
	}
	for _, f := range files {
		if f.isTest() || !isCore(f.path) {
			continue
		}
		qualified(f, f.tree, func(target, name string, at ast.Node) {
			if file := declares[target+"."+name]; file != "" {
				wrong = append(wrong, fmt.Sprintf("%s: uses %s of %s; %s", f.at(at), name, file, coreWhy))
			}
		})
	}
	return wrong
}

func isBesideCore(name string) bool {
	for _, e := range besideCore {
		if e.path == name {
			return true
		}
	}
	return false
}

// importsOf returns the import paths of a file.
func importsOf(f *source) (targets []string) {
	for _, spec := range f.tree.Imports {
		if target, err := strconv.Unquote(spec.Path.Value); err == nil {
			targets = append(targets, target)
		}
	}
	return targets
}

// namesOf returns the names that a declaration adds to its package.
func namesOf(decl ast.Decl) (names []string) {
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Recv == nil {
			names = append(names, d.Name.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch s := spec.(type) {
			case *ast.TypeSpec:
				names = append(names, s.Name.Name)
			case *ast.ValueSpec:
				for _, id := range s.Names {
					names = append(names, id.Name)
				}
			}
		}
	}
	return names
}

// qualified calls visit for each use of a package-level name of an imported package
// below n: the import path and the name.
func qualified(f *source, n ast.Node, visit func(target, name string, at ast.Node)) {
	paths := map[string]string{} // by the name in this file
	for _, spec := range f.tree.Imports {
		target, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		local := path.Base(target)
		if spec.Name != nil {
			local = spec.Name.Name
		}
		paths[local] = target
	}
	ast.Inspect(n, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && paths[x.Name] != "" && token.IsExported(s.Sel.Name) {
				visit(paths[x.Name], s.Sel.Name, s)
			}
		}
		return true
	})
}

// TestCoreReachFixtures lets the rule pass and fail.
func TestCoreReachFixtures(t *testing.T) {
	for name, c := range map[string]struct {
		texts map[string]string
		want  string
	}{
		"nothing": {nil, ""},
		"through a package beside the core": {map[string]string{
			"proxy/certs/a.go": `package certs; import "sync"`,
			"proxy/a.go":       `package proxy; import "` + module + `/proxy/certs"`,
		}, "proxy/certs/a.go imports sync, and the core reaches it: proxy → proxy/certs"},
		"through two": {map[string]string{
			"lb/a.go":            `package lb; import "` + module + `/registry/dns"`,
			"registry/dns/a.go":  `package dns; import "` + module + `/internal/mint"`,
			"internal/mint/a.go": `package mint; import "os"`,
		}, "lb → registry/dns → internal/mint"},
		"in the same package": {map[string]string{
			"proxy/limit/a.go": `package limit; import "log/slog"`,
		}, "proxy/limit/a.go imports log/slog"},
		"in a test": {map[string]string{
			"proxy/limit/a_test.go": `package limit; import "os"`,
		}, ""},
		"of a package that the core does not import": {map[string]string{
			"proxy/reactor/a.go": `package reactor; import "net"`,
		}, ""},
		"beside an exception": {map[string]string{
			"proxy/config/b.go": `package config; import "os"`,
		}, "proxy/config/b.go imports os"},
		"use of an exception": {map[string]string{
			"proxy/a.go": `package proxy; import "` + module + `/proxy/config"; var c = config.Load("")`,
		}, "uses Load of proxy/config/load.go"},
		"use by a file of the core": {map[string]string{
			"proxy/telemetry/accesslog/log.go": `package accesslog; import r "` + module + `/registry"; var c r.Cache`,
		}, "uses Cache of registry/cache.go"},
		"use beside the core": {map[string]string{
			"cmd/remora/a.go": `package main; import "` + module + `/proxy/config"; var c = config.Load("")`,
		}, ""},
		"an exception without need": {map[string]string{
			"registry/address.go": `package registry`,
		}, "registry/address.go needs no place"},
	} {
		texts := map[string]string{ // so that each exception is needed
			"proxy/exchange/a.go": `package exchange; import ("` + module + `/proxy/config"; "` + module + `/registry")`,
			"proxy/shard/a.go":    `package shard; import "` + module + `/proxy/telemetry/accesslog"`,

			"proxy/config/load.go":                `package config; import "os"; func Load(string) *os.File { return nil }`,
			"proxy/telemetry/accesslog/output.go": `package accesslog; import "os"`,
			"registry/address.go":                 `package registry; import "net"`,
			"registry/cache.go":                   `package registry; import ("os"; "` + module + `/internal/atomicfile"); type Cache struct{}`,
			"internal/atomicfile/atomicfile.go":   `package atomicfile; import "os"`,
			"registry/condition.go":               `package registry; import "sync"`,
			"registry/share.go":                   `package registry; import "sync"`,
			"registry/tally.go":                   `package registry; import "sync"`,
		}
		for path, text := range c.texts {
			texts[path] = text
		}
		expectOne(t, name, coreReach(fixture(t, texts)), c.want)
	}
}
