package protocol

import "testing"

// After Reset, a message refers to no memory of its former content.
func TestResetReleasesMemory(t *testing.T) {
	body := make([]byte, 1<<20)
	headers := func() []Header { return []Header{{Name: body[:1], Value: body[1:2]}} }
	req := Request{Headers: headers(), Trailers: headers(), Body: body}
	req.Reset()
	resp := Response{Headers: headers(), Trailers: headers(), Body: body}
	if resp.Reset(); resp.DeclaredLength != -1 || req.Body != nil || resp.Body != nil {
		t.Errorf("%+v and %+v", req, resp)
	}
	for what, hs := range map[string][]Header{
		"request headers": req.Headers, "request trailers": req.Trailers,
		"response headers": resp.Headers, "response trailers": resp.Trailers,
	} {
		if len(hs) != 0 || cap(hs) != 1 || hs[:1][0].Name != nil || hs[:1][0].Value != nil {
			t.Errorf("%s: %d, %q", what, len(hs), hs[:cap(hs)])
		}
	}
}

// TestEqualFold compares each byte with each other that is no capital: only letters of ASCII have a case.
func TestEqualFold(t *testing.T) {
	for want := range 256 {
		if 'A' <= want && want <= 'Z' {
			continue
		}
		lower := string([]byte{'x', byte(want), '-'})
		for c := range 256 {
			b := []byte{'X', byte(c), '-'}
			equal := c == want || 'A' <= c && c <= 'Z' && c+'a'-'A' == want
			if got := EqualFold(b, lower); got != equal {
				t.Errorf("%q equals %q: %t", b, lower, got)
			}
			if got := HasPrefixFold(append(b, 'y'), lower); got != equal {
				t.Errorf("%q begins with %q: %t", b, lower, got)
			}
		}
	}
	for text, want := range map[string]bool{"": false, "a": false, "ab": true, "AB": true, "abc": true, "aBc": true, "b": false, "bab": false} {
		if got := HasPrefixFold([]byte(text), "ab"); got != want {
			t.Errorf("%q begins with ab: %t", text, got)
		}
		if got := EqualFold([]byte(text), "ab"); got != (want && len(text) == 2) {
			t.Errorf("%q equals ab: %t", text, got)
		}
	}
}
