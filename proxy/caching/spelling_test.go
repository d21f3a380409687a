package caching

import (
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// TestSpellings: a key begins with the same target for all spellings of a host, and is another one for
// each, but for case.
func TestSpellings(t *testing.T) {
	https := headers("x-forwarded-proto: HTTPS")
	for _, c := range []struct {
		authority string
		headers   []protocol.Header
		target    string
		more      string
	}{
		{"a.test", nil, "a.test", ""},
		{"A.Test", nil, "a.test", ""},
		{"a.test:8080", nil, "a.test:8080", ""},
		{"A.test:8080", nil, "a.test:8080", ""},
		{"[::1]", nil, "[::1]", ""},
		{"", nil, "", ""},
		{"A.test.", nil, "a.test", "\n@a.test."},
		{"a.test:80", nil, "a.test", "\n@a.test:80"},
		{"a.test:443", nil, "a.test:443", ""},
		{"a.test:80", https, "a.test:80", "\ns"},
		{"a.test:443", https, "a.test", "\n@a.test:443\ns"},
		{"a.test:08080", nil, "a.test:8080", "\n@a.test:08080"},
		{"%61.test", nil, "a.test", "\n@%61.test"},
		{"[0::1]:80", nil, "[::1]", "\n@[0::1]:80"},
	} {
		var a Ask
		req := &protocol.Request{Method: []byte("GET"), Authority: []byte(c.authority), Path: []byte("/p"), Headers: c.headers}
		key := NewReader(nil, nil).Read(req, &a, nil)
		if want := c.target + "\n/p"; string(key) != want+c.more || string(key[:a.Target]) != want || string(AppendTarget(nil, req)) != want {
			t.Errorf("%s: %q, the target is %q", c.authority, key, key[:a.Target])
		}
	}
	d := NewIdentity(nil, nil)
	seen := map[string]string{}
	for _, authority := range []string{"a.test", "a.test.", "a.test:80", "%61.test"} {
		key := string(d.Append(nil, &protocol.Request{Method: []byte("GET"), Authority: []byte(authority), Path: []byte("/p")}))
		if other, ok := seen[key]; ok {
			t.Errorf("%s is the same as %s", authority, other)
		}
		seen[key] = authority
	}
}
