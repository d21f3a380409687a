package main

import (
	"context"
	"path/filepath"
	"slices"
	"testing"

	"github.com/remora-proxy/remora/internal/must"
)

// TestCopies: changes of functions of each shape are noticed, and only changes that a test covers.
func TestCopies(t *testing.T) {
	const source = `package m

type pair[K comparable] struct{ a, b K }

func (p *pair[K]) same() bool { return p.a == p.b }

type number int

func (number) one() int { return 1 }

func sum[_ any, N int | int64](_ N, all ...N) (n N) {
	for _, each := range all {
		n = n + each
	}
	return n
}

func count[K comparable](all []K) int { return 0 + len(all) }

func second(_ int, b int) int { return b * 2 }

func pick(int, string) int { return 7 }

func last(n int, all ...int) int { return all[len(all)-n] }

var started int

func init() { started++ }

func safe(f func()) (failed bool) {
	defer rescue(&failed)
	f()
	return false
}

func rescue(failed *bool) {
	if recover() != nil {
		*failed = true
	}
}

func inlined(n int) *int { n += 1; return &n }

func unseen() bool { return true }
`
	const tests = `package m

import "testing"

func TestAll(t *testing.T) {
	p := pair[string]{"a", "a"}
	if !p.same() || number(0).one() != 1 || sum[bool](1, 2, 3) != 5 || count([]string{"a"}) != 1 || second(1, 3) != 6 {
		t.Error("wrong")
	}
	if pick(1, "") != 7 || last(1, 2, 3) != 3 || started != 1 || !safe(func() { panic(1) }) || safe(func() {}) {
		t.Error("wrong")
	}
}

func TestAllocations(t *testing.T) {
	sink := 0
	if n := testing.AllocsPerRun(10, func() { sink += *inlined(1) }); n > 0 || sink != 11*2 { // it runs once before
		t.Error(n, sink)
	}
}
`
	dir := t.TempDir()
	must.WriteFile(t, filepath.Join(dir, "go.mod"), "module m\n\ngo 1.26\n")
	must.WriteFile(t, filepath.Join(dir, "m.go"), source)
	must.WriteFile(t, filepath.Join(dir, "m_test.go"), tests)
	p := pack{module: dir, folder: ".", name: "m", files: []string{"m.go"}}
	all, err := p.changes()
	if err != nil {
		t.Fatal(err)
	}
	verdicts := make([]verdict, len(all))
	err = try(context.Background(), &p, all, 2, func(c *change, v verdict) error {
		verdicts[slices.Index(all, c)] = v
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		want := noticed
		switch {
		case c.in == "unseen":
			want = survived
		case c.what == "removed" && c.line == "n = n + each": // each is not used then
			want = uncompiled
		}
		if verdicts[i] != want {
			t.Errorf("%v: %s, want %s", c, verdicts[i], want)
		}
	}
}

// TestCallers: only tests that call the function are tried. The quick ones are first, as many as compute for a second together, and
// one in any case.
func TestCallers(t *testing.T) {
	const function = 7
	calls := map[int]bool{function: true}
	name := func(tests []*test) (names string) {
		for _, each := range tests {
			names += each.name
		}
		return names
	}
	for _, c := range []struct {
		tests              []*test
		quick, slow, alone string
	}{
		{nil, "", "", ""},
		{[]*test{{name: "a", calls: map[int]bool{1: true}, cpu: quickly}, {name: "b", calls: calls, cpu: quickly}}, "b", "", ""},
		{[]*test{{name: "a", calls: calls, cpu: quickly / 2}, {name: "b", calls: calls, cpu: quickly / 2}, {name: "c", calls: calls, cpu: 1}}, "ab", "c", ""},
		{[]*test{{name: "a", calls: calls, cpu: quickly + 1}, {name: "b", calls: calls, cpu: quickly + 2}}, "a", "b", ""},
		{[]*test{{name: "a", calls: calls, cpu: quickly, alone: true}, {name: "b", calls: calls, cpu: quickly}}, "b", "", "a"},
	} {
		quick, slow, alone := (&binary{tests: c.tests}).callers(function)
		if name(quick) != c.quick || name(slow) != c.slow || name(alone) != c.alone {
			t.Errorf("%s, %s, %s, want %s, %s, %s", name(quick), name(slow), name(alone), c.quick, c.slow, c.alone)
		}
	}
}
