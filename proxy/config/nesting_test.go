package config

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// TestNesting checks each way to nest at the bound and one level past it.
func TestNesting(t *testing.T) {
	blockMappings := func(depth int) string {
		var b strings.Builder
		for i := range depth - 1 {
			fmt.Fprintf(&b, "\n%sa: ", strings.Repeat(" ", i))
		}
		return b.String() + "{}"
	}
	tests := []struct {
		name  string
		text  func(depth int) string
		where string // of the first level past the bound
	}{
		{"flow sequences", func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }, "1:33"},
		{"flow mappings", func(n int) string { return strings.Repeat("{a: ", n-1) + "{}" + strings.Repeat("}", n-1) }, "1:129"},
		{"block sequences", func(n int) string { return strings.Repeat("- ", n-1) + "[]" }, "1:65"},
		{"block mappings", blockMappings, "33:35"},
		{"siblings in flow style", func(n int) string {
			return "[" + strings.Repeat("[], {}, ", 100) + strings.Repeat("[", n-1) + strings.Repeat("]", n)
		}, "1:833"},
		{"siblings in block style", func(n int) string {
			return strings.Repeat("- - a: [x]\n    b: {c: [y]}\n", 100) + strings.Repeat("- ", n-1) + "[]"
		}, "201:65"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if err := parseError(tc.text(maxDepth)); strings.Contains(err, "nested more") {
				t.Errorf("at the bound: %s", err)
			}
			if err, want := parseError(tc.text(maxDepth+1)), "deep.yaml:"+tc.where+": nested more than 32 deep"; err != want {
				t.Errorf("past the bound: %q, want %q", err, want)
			}
		})
	}
}

// TestNestedAnchors: a value with an anchor counts as two levels.
func TestNestedAnchors(t *testing.T) {
	text := func(n int) string {
		var b strings.Builder
		for i := range n - 1 {
			fmt.Fprintf(&b, "[&a%d ", i)
		}
		return b.String() + "[]" + strings.Repeat("]", n-1)
	}
	if err := parseError("[" + text(maxDepth/2) + "]"); strings.Contains(err, "nested more") {
		t.Errorf("at the bound: %s", err)
	}
	if err := parseError(text(maxDepth/2 + 1)); !strings.Contains(err, "nested more than 32 deep") {
		t.Errorf("past the bound: %q", err)
	}
}

// TestEntries checks how many entries a mapping or a list may have, in each way to write them.
func TestEntries(t *testing.T) {
	lines := func(format string) func(n int) string {
		return func(n int) string {
			var b strings.Builder
			for i := range n {
				fmt.Fprintf(&b, format, i)
			}
			return b.String()
		}
	}
	for name, text := range map[string]func(n int) string{
		"block mapping":       func(n int) string { return "services:\n" + lines("  s%d: {}\n")(n) },
		"top level":           lines("s%d: 1\n"),
		"keys without values": lines("? s%d\n"),
		"keys apart from values": func(n int) string { // each is two entries
			return lines("? s%d\n: 1\n")(n/2) + strings.Repeat("? last\n", n%2)
		},
		"values without keys": lines(": %d\n"),
		"flow mapping":        func(n int) string { return "{" + lines("s%d: 1, ")(n-1) + "last: 1}" },
		"flow without commas": func(n int) string { return "[" + lines("s%d: 1\n ")(n) + "]" },
		"block list":          func(n int) string { return "routes:\n" + strings.Repeat("- a\n", n) },
		"flow list":           func(n int) string { return "[" + strings.Repeat("a, ", n) + "]" },
		"another document":    func(n int) string { return "{" + lines("s%d: 1, ")(n-1) + "last: 1}\n---\n" + lines("s%d: 1\n")(9) },
		"lists at the column of their keys": func(n int) string {
			return "a:\n" + strings.Repeat("- a\n", n-1) + "b:\n" + strings.Repeat("- a\n", n)
		},
		"merges": func(n int) string { return "a: &a {b: 1}\nc:\n" + strings.Repeat("  <<: *a\n", n) },
	} {
		const refusal = "more than 4096 entries"
		if _, err := tokenize([]byte(text(maxEntries))); err != nil { // the parser behind it takes long for so many
			t.Errorf("%s: at the bound: %.80s", name, err)
		}
		if err := parseError(text(maxEntries + 1)); !strings.Contains(err, refusal) {
			t.Errorf("%s: past the bound: %.80s", name, err)
		}
	}
	for n, want := range map[int]bool{maxDocuments: false, maxDocuments + 1: true} {
		if err := parseError(strings.Repeat("---\n", n)); strings.Contains(err, "more than 16 documents") != want {
			t.Errorf("%d documents: %.80s", n, err)
		}
	}
}

// TestManyErrors: the errors of a list grow with its length, not with its square. Those past a bound are counted.
func TestManyErrors(t *testing.T) {
	const n = 1000
	for name, text := range map[string]string{
		"listeners": "listeners:\n" + strings.Repeat("- {name: a, address: ':1', protocol: http, service: a}\n", n),
		"overlaps":  "listeners:\n" + strings.Repeat("- {name: a, address: ':1', protocol: http}\n- {address: '127.0.0.1:1'}\n", n/2),
		"register":  "register:\n" + strings.Repeat("- {service: a, advertise: 'a:1', listener: l}\n", n),
		"routes":    "routes:\n" + strings.Repeat("- {service: a, match: {path: /a}}\n", n),
	} {
		_, err := Parse("many.yaml", []byte(text), func(string) (string, bool) { return "", false })
		var errs Errors
		if !errors.As(err, &errs) || len(errs) != maxErrors+1 {
			t.Fatalf("%s: %d errors are shown", name, len(errs))
		}
		var more int
		if _, err := fmt.Sscanf(errs[maxErrors].Error(), "many.yaml: and %d more", &more); err != nil || more < n-1-maxErrors || more > 6*n {
			t.Errorf("%s: the last is %v", name, errs[maxErrors])
		}
	}
}

// TestNestingMemory checks that the memory for a file past a bound grows with its size, not with its
// levels or with the square of its entries.
func TestNestingMemory(t *testing.T) {
	const size = 200_000
	const most = 512 * size // each byte may be a token
	for _, text := range []string{
		strings.Repeat("a:\n", size/3),
		strings.Repeat("? a\n", size/4),
		"[" + strings.Repeat("a:\n ", size/4),
		strings.Repeat("---\n", size/4),
		strings.Repeat("[", size),
		strings.Repeat("{a: ", size/4),
		strings.Repeat("{a: [", size/5),
		strings.Repeat("- ", size/2),
		strings.Repeat("- - [", size/5),
		"[" + strings.Repeat("- ", size/2),
		strings.Repeat("[} {] ", size/6),
		strings.Repeat("[-\n", size/3),
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := parseError(text)
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > most || !strings.Contains(err, " more than ") {
			t.Errorf("%.8q: %d bytes allocated, want at most %d; error %.80q", text, got, most, err)
		}
	}
}

// TestAliasedValues checks how many values aliases can repeat, also through each other.
func TestAliasedValues(t *testing.T) {
	const refusal = "aliases repeat more than 65536 values"
	list := "a: &a [" + strings.Repeat("x,", 1023) + "]\n" // 1024 values
	var keys strings.Builder
	for i := range 1023 {
		fmt.Fprintf(&keys, "k%d,", i)
	}
	bomb := list
	for i := 'b'; i < 'k'; i++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", i, i, strings.Repeat(fmt.Sprintf("*%c,", i-1), 10))
	}
	for _, tc := range []struct {
		name, text string
		refused    bool
	}{
		{"at the bound", list + "b: [" + strings.Repeat("*a,", 64) + "]", false},
		{"past the bound", list + "b: [" + strings.Repeat("*a,", 65) + "]", true},
		{"past the bound by merging", "b: {<<: &m {" + keys.String() + "}}\nc: {<<: [" + strings.Repeat("*m,", 65) + "]}", true},
		{"aliases of aliases", bomb, true},
	} {
		if got := strings.Contains(parseError(tc.text), refusal); got != tc.refused {
			t.Errorf("%s: refused %v, want %v", tc.name, got, tc.refused)
		}
	}
}

// parseError returns the text of the error of a file.
func parseError(text string) string {
	if _, err := Parse("deep.yaml", []byte(text), nil); err != nil {
		return err.Error()
	}
	return ""
}
