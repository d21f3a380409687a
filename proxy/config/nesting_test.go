package config

import (
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

// TestNestingMemory checks that the memory for a file that is nested too deep grows with its size
// and not with its levels.
func TestNestingMemory(t *testing.T) {
	const size = 200_000
	const most = 512 * size // each byte may be a token
	for _, text := range []string{
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
		if got := after.TotalAlloc - before.TotalAlloc; got > most || !strings.Contains(err, "nested more than 32 deep") {
			t.Errorf("%.8q: %d bytes allocated, want at most %d; error %.80q", text, got, most, err)
		}
	}
}

// TestAliasedValues checks how many values aliases can repeat, also through each other.
func TestAliasedValues(t *testing.T) {
	const refusal = "aliases repeat more than 65536 values"
	list := "a: &a [" + strings.Repeat("x,", 1023) + "]\n" // 1024 values
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
		{"past the bound by merging", "m: &m {" + strings.Repeat("x,", 1023) + "}\nb: {<<: [" + strings.Repeat("*m,", 65) + "]}", true},
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
