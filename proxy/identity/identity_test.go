package identity

import "testing"

// TestMatch: which names a pattern accepts.
func TestMatch(t *testing.T) {
	for _, c := range []struct {
		pattern           string
		accepted, refused []string // URIs have "://"
	}{
		{"spiffe://d/a", []string{"spiffe://d/a"}, []string{"", "spiffe://d", "spiffe://d/", "spiffe://d/a/", "spiffe://d/a/b", "spiffe://d/ab", "spiffe://D/a", "xspiffe://d/a", "a"}},
		{"spiffe://d/a/*", []string{"spiffe://d/a/azAZ09-._", "spiffe://d/a/b/c", "spiffe://d/a/..b"}, []string{
			"spiffe://d/a", "spiffe://d/a/", "spiffe://d/ab", "spiffe://d/b/a/c", "spiffe://d/a//b", "spiffe://d/a/b/", "spiffe://d/a/b//c",
			"spiffe://d/a/.", "spiffe://d/a/../b", "spiffe://d/a/b/./c", "spiffe://d/a/b/..",
			"spiffe://d/a/`", "spiffe://d/a/{", "spiffe://d/a/@", "spiffe://d/a/[", "spiffe://d/a/:", "spiffe://d/a/?x", "spiffe://d/a/%2e%2e", "spiffe://d/a/b\x2fc/!", "spiffe://d/a/ü",
		}},
		{"spiffe://d/*", []string{"spiffe://d/a"}, []string{"spiffe://d", "spiffe://d/", "spiffe://da/a"}},
		{"a.d", []string{"a.d"}, []string{"", "b.a.d", "xa.d", "a.d.e", ".a.d", "spiffe://d/a"}},
		{"dns:A.D.", []string{"a.d"}, []string{"a.d.", "dns:a.d"}},
		{"*.d", []string{"a.d", "b.d"}, []string{"", "d", ".d", "b.a.d", "ad", "a.e"}},
		{"dns:*.B.d.", []string{"a.b.d"}, []string{"b.d", ".b.d", "a.a.b.d"}},
	} {
		patterns, err := Parse([]string{"none.test", c.pattern, "spiffe://none/test"})
		if err != nil {
			t.Error(err)
			continue
		}
		for name, want := range expected(c.accepted, c.refused) {
			for of, n := range map[string]*Names{"a DNS name": {DNS: []string{"other.test", name}}, "a URI": {URIs: []string{"spiffe://other/test", name}}} {
				isKind := (of == "a URI") == isURI(c.pattern)
				if got := patterns.Match(n); got != (want && isKind) {
					t.Errorf("%s accepts %s %q: %t", c.pattern, of, name, got)
				}
			}
		}
		if patterns.Match(nil) || patterns.Match(&Names{}) {
			t.Errorf("%s accepts who has no name", c.pattern)
		}
	}
	var none Patterns
	if none.Match(&Names{DNS: []string{"a.d"}, URIs: []string{"spiffe://d/a"}}) {
		t.Error("no pattern accepts a name")
	}
}

// expected returns what is expected of each name.
func expected(accepted, refused []string) map[string]bool {
	all := make(map[string]bool)
	for _, name := range accepted {
		all[name] = true
	}
	for _, name := range refused {
		all[name] = false
	}
	return all
}

// isURI reports whether a pattern is for URIs.
func isURI(pattern string) bool { return pattern[0] == 's' }

// TestParse: what is no pattern is refused, with the text in the error.
func TestParse(t *testing.T) {
	for _, text := range []string{
		"", ".", "..", "*", "*.", "*..", "dns:", "dns:*", ".d", "**.d", "*a.d", "a*.d", "a.*", "*.*.d", "a b", "a\tb", "a/b", "a:1", "dns:dns:a", "*.a:1", "*. d",
		"spiffe://", "spiffe:///a", "spiffe:///*", "spiffe://*", "spiffe://*/a", "spiffe://d/*/a", "spiffe://d/a*", "spiffe://d/%zz", "://d/a", "spiffe://d/*/*",
	} {
		all, err := Parse([]string{"a.d", text})
		if err == nil {
			t.Errorf("%q is accepted as %+v", text, all[1])
		} else if all != nil {
			t.Errorf("%q is refused, but others are accepted: %+v", text, all)
		}
	}
	if all, err := Parse(nil); err != nil || len(all) != 0 {
		t.Errorf("no pattern: %+v, %v", all, err)
	}
}

// named is a connection that knows its peer.
type named struct{ names *Names }

func (n named) PeerNames() *Names { return n.names }

// TestOf: the names of a peer are those that its connection knows, if it knows any.
func TestOf(t *testing.T) {
	names := &Names{DNS: []string{"a.d"}}
	if Of(named{names}) != names || Of(named{}) != nil || Of(7) != nil || Of(nil) != nil {
		t.Error("the names are others")
	}
}
