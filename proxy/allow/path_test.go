package allow

import (
	"strconv"
	"testing"
)

// TestUnhex compares all bytes with strconv.
func TestUnhex(t *testing.T) {
	for c := range 256 {
		want := uint64(255)
		if n, err := strconv.ParseUint(string([]byte{byte(c)}), 16, 8); err == nil {
			want = n
		}
		if got := unhex(byte(c)); uint64(got) != want {
			t.Errorf("%#x: %d, want %d", c, got, want)
		}
	}
}

func TestWithoutQuery(t *testing.T) {
	for target, want := range map[string]string{"": "", "/a": "/a", "/a?b": "/a", "/a?": "/a", "?b": "", "/a?b?c": "/a"} {
		if got := withoutQuery([]byte(target)); string(got) != want {
			t.Errorf("%q: %q, want %q", target, got, want)
		}
	}
}

// TestIsPlain: the segments and escapes at the edge of what is plain.
func TestIsPlain(t *testing.T) {
	for path, want := range map[string]bool{
		"":    true,
		"a":   true,
		"a/":  true,
		"a/b": true,
		"/a":  false, "a//b": false, "a//": false, "//": false,
		".": false, "..": false, "...": true, "a/.": false, "a/../b": false, "./b": false, ".a": true, "..a": true,
		";": false, ";x=1": false, "a;x=1": true, ".;x=1": false, "..;": false, "a/;": false,
		`a\b`: false, `\`: false,
		"%": false, "%2": false, "a%41": true, "%2z": false, "%z2": false, "%g0": false, "%0g": false,
		"%1f": false, "%20": true, "%7e": true, "%7f": false, "%80": true, "%ff": true, "%FF": true,
		"%2e": false, "%2f": false, "%5c": false, "%25": false, "%3b": false, "%2E": false, "%41%2e": false,
	} {
		if got := isPlain([]byte(path)); got != want {
			t.Errorf("%q: %v, want %v", path, got, want)
		}
	}
}
