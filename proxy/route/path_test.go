package route

import (
	"bytes"
	"math/rand/v2"
	"net/url"
	slashpath "path"
	"strings"
	"testing"

	"github.com/remora-proxy/remora/proxy/config"
)

const refused = "refused"

// normalize returns target in the form of the rules, or refused.
func normalize(t testing.TB, r *PathRules, target string) string {
	const before = "before"
	if b := []byte(target); r.Normal(b) != isNormal(b) {
		t.Errorf("%s: normal %t by eight bytes, %t by one", target, r.Normal(b), isNormal(b))
	}
	got, ok := r.AppendNormal([]byte(before), []byte(target))
	switch {
	case !strings.HasPrefix(string(got), before):
		t.Fatalf("%s: %q lost the bytes before the path", target, got)
	case !ok && r.Normal([]byte(target)):
		t.Errorf("%s is refused, and normal", target)
	case !ok:
		return refused
	case r.Normal([]byte(target)) && string(got) != before+target:
		t.Errorf("%s is normal, and becomes %s", target, got)
	}
	return string(got[len(before):])
}

// TestNormalPaths: the default form of paths.
func TestNormalPaths(t *testing.T) {
	c := config.DefaultPath()
	rules := NewPathRules(&c)
	for path, want := range map[string]string{
		"/":                          "/",
		"*":                          "*",
		"":                           "",
		"?x/../y":                    "?x/../y",
		"/a/b?x=/../%2f//":           "/a/b?x=/../%2f//",
		"/a/.well-known/..b/c./d../": "/a/.well-known/..b/c./d../",
		"/a/%20%C3%A4":               "/a/%20%C3%A4",
		"/a;x=1/b":                   "/a;x=1/b",

		"/public/../admin/x":   "/admin/x",
		"/a/b/c/./../../g":     "/a/g", // RFC 3986 section 5.2.4
		"/a/./b/.":             "/a/b/",
		"/a/..":                "/",
		"/../../a":             "/a",
		"/..":                  "/",
		"/.":                   "/",
		"/..?x":                "/?x",
		"/a/b/..?x":            "/a/?x",
		"/public/%2e%2e/admin": "/admin",
		"/public/%2E./admin":   "/admin",
		"/public/.%2e/admin":   "/admin",
		"/%61%7Edm%69n/%5f":    "/a~dmin/_",
		"/%c3%a4%3b":           "/%C3%A4%3B",
		"/%2a":                 "/%2A",
		"/%a2":                 "/%A2",
		"/%252e%252e/a":        "/%252e%252e/a",
		"//evil/x":             "/evil/x",
		"/api//evil///x//":     "/api/evil/x/",
		"/a//../b":             "/a/b", // dots go first, as in section 5.2.4
		"/a;x/../b":            "/b",
		"/...":                 "/...",
		"/.../%2e%2e%2e/....":  "/.../.../....",
		"/x;..;/%3Bx":          "/x;..;/%3Bx",
		"/a/%2e":               "/a/",
		"/a/.?%2f":             "/a/?%2f",

		"/public/..%2fadmin": refused,
		"/a%2Fb":             refused,
		"/a%5cb":             refused,
		`/a\b`:               refused,
		`/..\x`:              refused,
		"/public/..;/admin":  refused,
		"/public/..;x=1/a":   refused,
		"/public/.;":         refused,
		"/public/%2e.%3bx/a": refused,
		"/a%":                refused,
		"/a%2":               refused,
		"/a%zz":              refused,
		"/a%%32%65":          refused,
		"/a%u002e":           refused,
		"/a%00":              refused,
	} {
		if got := normalize(t, rules, path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// TestNormal compares the search for eight bytes at a time with that byte by byte, for each pair of
// bytes at each offset.
func TestNormal(t *testing.T) {
	rules := &PathRules{}
	for at := range 16 {
		for c := range 256 {
			for _, behind := range []byte("/.?\\%a\xff") {
				target := []byte("/ab\xffcd/efgh/~ijkl")
				target[at], target[at+1] = byte(c), behind
				if got, want := rules.Normal(target), isNormal(target); got != want {
					t.Fatalf("%q: %t, want %t", target, got, want)
				}
			}
		}
	}
}

// TestPathSettings: what each setting does without the others.
func TestPathSettings(t *testing.T) {
	const keep, unescape, reject = config.SlashesKeep, config.SlashesUnescape, config.SlashesReject
	for _, c := range []struct {
		rules      config.Path
		path, want string
	}{
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/a//b/./c", "/a//b/c"},
		{config.Path{Normalize: true, EscapedSlashes: keep}, `/group%2fproject%5c\x`, `/group%2Fproject%5C\x`},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/public/..%2fadmin", refused},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/public/x%2F.%2e%5Cadmin", refused},
		{config.Path{Normalize: true, EscapedSlashes: keep}, `/public/x\..`, refused},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/public/x%2F..;y%2Fadmin", refused},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/public/x;y%2F..%2Fadmin", refused},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/public/x%2Fy;..", "/public/x%2Fy;.."},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/a%2F", "/a%2F"},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/a%2Fb.", "/a%2Fb."},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/a%2Fb..%5Cc..", "/a%2Fb..%5Cc.."},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/a%2F.", refused},
		{config.Path{Normalize: true, EscapedSlashes: keep}, `/a\.`, refused},
		{config.Path{Normalize: true, EscapedSlashes: keep}, `/a\b.`, `/a\b.`},
		{config.Path{Normalize: true, EscapedSlashes: keep}, "/%2F..a%2F.b", "/%2F..a%2F.b"},
		{config.Path{Normalize: true, EscapedSlashes: unescape}, "/public/..%2fadmin", "/admin"},
		{config.Path{Normalize: true, EscapedSlashes: unescape}, `/public/..%5C..\admin%2F%2Fx`, "/admin//x"},
		{config.Path{MergeSlashes: true, EscapedSlashes: unescape}, "/a%2f/b/../%2e%zz%00", "/a/b/../%2e%zz%00"},
		{config.Path{MergeSlashes: true, EscapedSlashes: keep}, "//a%2fb//..;/%41", "/a%2fb/..;/%41"},
		{config.Path{EscapedSlashes: reject}, "/a%2fb", refused},
		{config.Path{EscapedSlashes: reject}, "//a/../%2e%", "//a/../%2e%"},
	} {
		if got := normalize(t, NewPathRules(&c.rules), c.path); got != c.want {
			t.Errorf("%+v: %s: %s, want %s", c.rules, c.path, got, c.want)
		}
	}
	if NewPathRules(&config.Path{EscapedSlashes: keep}) != nil {
		t.Error("there are rules although all are off")
	}
}

// TestNormalPathsMean: whatever the path, its normal form stays as it is, has no dot segment and
// no empty one, and is the path that a reader gets who decodes before removing dot segments.
func TestNormalPathsMean(t *testing.T) {
	c := config.DefaultPath()
	rules := NewPathRules(&c)
	parts := []string{"/", "/", "/", "segment", "/segments", ".", ".", "..", "a", "b", "%2e", "%2E", "%61", "%20", ";", "%3b", "%2f", "%25", "%", "2e", `\`, "?"}
	kept, changed := 0, 0
	for seed := range uint64(20_000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		target := "/"
		for range rnd.IntN(12) {
			target += parts[rnd.IntN(len(parts))]
		}
		got := normalize(t, rules, target)
		if got == refused {
			continue
		}
		path, query, _ := strings.Cut(target, "?")
		gotPath, gotQuery, _ := strings.Cut(got, "?")
		plain, err := url.PathUnescape(path)
		if err != nil || gotQuery != query {
			t.Fatalf("%s: %s: %v", target, got, err)
		}
		gotPlain, _ := url.PathUnescape(gotPath)
		want := slashpath.Clean(strings.ReplaceAll(plain, "//", "/./"))
		if clean := slashpath.Clean(gotPlain); strings.Contains(plain, "//") == false && clean != want {
			t.Fatalf("%s: %s, which means %s, not %s", target, got, clean, want)
		}
		for _, segment := range strings.Split(gotPath, "/")[1:] {
			if segment == "." || segment == ".." || segment == "" && !strings.HasSuffix(gotPath, "/") {
				t.Fatalf("%s: %s has the segment %q", target, got, segment)
			}
		}
		if again := normalize(t, rules, got); again != got || strings.Contains(gotPath, "//") {
			t.Fatalf("%s: %s, which becomes %s", target, got, again)
		}
		if got == target {
			kept++
		} else {
			changed++
		}
	}
	if kept < 1000 || changed < 1000 {
		t.Errorf("%d paths stayed and %d changed: too few for a test", kept, changed)
	}
}

// TestNormalPathAllocations: a path that is normal costs no memory, and others none once there
// is some.
func TestNormalPathAllocations(t *testing.T) {
	c := config.DefaultPath()
	rules := NewPathRules(&c)
	target, memory := []byte("/a/.well-known/%20/b?x=%2f"), make([]byte, 0, 100)
	if !rules.Normal(target) {
		t.Errorf("%s is not normal", target)
	}
	abnormal := bytes.ReplaceAll(target, []byte("/b"), []byte("/./b//..;x/../%61"))
	abnormal = bytes.ReplaceAll(abnormal, []byte("..;"), nil)
	if n := testing.AllocsPerRun(100, func() {
		rules.Normal(target)
		memory, _ = rules.AppendNormal(memory[:0], abnormal)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkNormal(b *testing.B) {
	c := config.DefaultPath()
	rules := NewPathRules(&c)
	target := []byte("/v1/users/4711/orders?from=2026-01-01")
	for b.Loop() {
		if !rules.Normal(target) {
			b.Fatal("not normal")
		}
	}
}
