package archtest

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/lb"
	"github.com/remora-proxy/remora/proxy/config"
)

// listFiles lists the places that may declare the names of protocols, registries and
// policies: patterns of packages, and files.
var listFiles = []string{"proxy/config", "proxy/protocols.go", "sidecar/registries.go", "lb/policies.go"}

// namesElsewhere lists the other files that may know such a name. It may only shrink.
var namesElsewhere = []struct{ path, why string }{
	{"sidecar/listeners.go", "package stream serves tcp listeners, and the engine all others; the core knows neither"},
	{"registry/health/follow.go", "it can't import config; only endpoints that speak http can be asked for a path"},
}

// listedNames returns the names of protocols, registries and policies in the
// configuration.
func listedNames() []string {
	return slices.Concat(config.Protocols, config.Registries(), lb.PolicyNames())
}

// TestListedNames checks that names of protocols, registries and policies are in the
// lists only.
func TestListedNames(t *testing.T) {
	files := moduleSources(t)
	if n := len(listedNames()); n < 10 {
		t.Fatalf("the configuration has %d names only", n)
	}
	for _, w := range namesOutsideLists(files) {
		t.Error(w)
	}
	if n := len(namesElsewhere); n > 3 {
		t.Errorf("%d exceptions, want at most 3", n)
	}
}

// namesOutsideLists returns one complaint for each place of the sidecar that declares,
// compares or looks up such a name outside the lists, or compares one of
// config.Protocol*, and for each exception that is not needed.
func namesOutsideLists(files []*source) (wrong []string) {
	names, needed := listedNames(), map[string]bool{}
	for _, f := range files {
		if f.isTest() || !inSidecar(f.dir()) || matchesAny(listFiles, f.dir()) {
			continue
		}
		isList := slices.Contains(listFiles, f.path)
		complain := func(n ast.Node, format string, args ...any) {
			if isElsewhere(f.path) {
				needed[f.path] = true
				return
			}
			wrong = append(wrong, f.at(n)+": "+fmt.Sprintf(format, args...)+
				"; make it a field of the list in proxy/protocols.go, sidecar/registries.go or lb/policies.go")
		}
		text := func(e ast.Expr) {
			if lit, ok := e.(*ast.BasicLit); ok && !isList && lit.Kind == token.STRING {
				if s, err := strconv.Unquote(lit.Value); err == nil && slices.Contains(names, s) {
					complain(lit, "%q is a name of a list", s)
				}
			}
		}
		compared := func(e ast.Expr) {
			text(e)
			qualified(f, e, func(target, name string, at ast.Node) {
				if target == module+"/proxy/config" && strings.HasPrefix(name, "Protocol") {
					complain(at, "compares config.%s", name)
				}
			})
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GenDecl:
				if n.Tok == token.CONST {
					for _, spec := range n.Specs {
						for _, value := range spec.(*ast.ValueSpec).Values {
							text(value)
						}
					}
				}
			case *ast.BinaryExpr:
				if n.Op == token.EQL || n.Op == token.NEQ {
					compared(n.X)
					compared(n.Y)
				}
			case *ast.CaseClause:
				for _, e := range n.List {
					compared(e)
				}
			case *ast.KeyValueExpr:
				text(n.Key)
			}
			return true
		})
	}
	for _, e := range namesElsewhere {
		if !needed[e.path] {
			wrong = append(wrong, e.path+" needs no exception")
		}
	}
	return wrong
}

// inSidecar reports whether a package is part of the sidecar.
func inSidecar(dir string) bool {
	return matchesAny([]string{"cmd/remora", "sidecar", "proxy/...", "protocol/...", "lb", "registry/..."}, dir) &&
		!matchesAny([]string{"proxy/sim/...", "proxy/proxytest", "proxy/conformance"}, dir)
}

func isElsewhere(path string) bool {
	for _, e := range namesElsewhere {
		if e.path == path {
			return true
		}
	}
	return false
}

// TestListedNamesFixtures lets the rule pass and fail.
func TestListedNamesFixtures(t *testing.T) {
	const head = `package a; import "` + module + `/proxy/config"; `
	for _, c := range []struct{ name, file, source, want string }{
		{"nothing", "proxy/a.go", `package a`, ""},
		{"constant", "proxy/stream/a.go", `package a; const proto = "dubbo"`, `"dubbo" is a name of a list`},
		{"comparison", "proxy/stream/a.go", `package a; func f(s string) bool { return s != "least_pending" }`, `"least_pending" is a name`},
		{"case", "cmd/remora/a.go", `package a; func f(s string) { switch s { case "etcd": } }`, `"etcd" is a name`},
		{"key of a map", "proxy/a.go", `package a; var m = map[string]int{"link": 1}`, `"link" is a name`},
		{"argument", "proxy/stream/a.go", `package a; func f() { dial("tcp") }`, ""},
		{"other string", "proxy/stream/a.go", `package a; const proto = "dubbo2"`, ""},
		{"comparison with config", "proxy/exchange/a.go", head + `func f(s string) bool { return s == config.ProtocolDubbo }`, "compares config.ProtocolDubbo"},
		{"case with config", "proxy/exchange/a.go", head + `func f(s string) { switch { case s == "x": }; switch s { case config.ProtocolTCP: } }`, "compares config.ProtocolTCP"},
		{"config by another name", "proxy/exchange/a.go",
			`package a; import c "` + module + `/proxy/config"; func f(s string) bool { return c.ProtocolHTTP == s }`, "compares config.ProtocolHTTP"},
		{"field of config", "proxy/exchange/a.go", head + `func f(s *config.Service) bool { return s.Protocol == "" }`, ""},
		{"value from config", "proxy/telemetry/accesslog/a.go", head + `var r = record{Protocol: config.ProtocolTCP}`, ""},
		{"list", "proxy/protocols.go", head + `const fallback = "http"; var m = map[string]int{config.ProtocolHTTP: 1, "link": 2}`, ""},
		{"comparison in a list", "proxy/protocols.go", head + `func f(s string) bool { return s == config.ProtocolDubbo }`, "compares config.ProtocolDubbo"},
		{"list of policies", "lb/policies.go", `package lb; var Policies = []NamedPolicy{{Name: "random"}}`, ""},
		{"list of registries", "sidecar/registries.go", `package main; var registries = map[string]int{"etcd": 1}`, ""},
		{"config itself", "proxy/config/a.go", `package config; func f(s string) bool { return s == "tcp" }`, ""},
		{"test", "proxy/exchange/a_test.go", `package a; const proto = "dubbo"`, ""},
		{"lab", "lab/a.go", `package a; const proto = "dubbo"`, ""},
		{"exception", "sidecar/listeners.go", head + `func f(s string) bool { return s == config.ProtocolTCP }`, ""},
		{"exception without need", "sidecar/listeners.go", `package main`, "sidecar/listeners.go needs no exception"},
	} {
		texts := map[string]string{ // so that each exception is needed
			"sidecar/listeners.go":      `package main; const p = "tcp"`,
			"registry/health/follow.go": `package health; const p = "http"`,
		}
		texts[c.file] = c.source
		expectOne(t, c.name, namesOutsideLists(fixture(t, texts)), c.want)
	}
}
