package protocol

import "testing"

// After Reset, a message refers to no memory of its former content.
func TestResetReleasesMemory(t *testing.T) {
	body := make([]byte, 1<<20)
	headers := func() []Header { return []Header{{Name: body[:1], Value: body[1:2]}} }
	req := Request{Headers: headers(), Trailers: headers(), Body: body}
	req.Reset()
	resp := Response{Headers: headers(), Trailers: headers(), Body: body}
	resp.Reset()
	for what, hs := range map[string][]Header{
		"request headers": req.Headers, "request trailers": req.Trailers,
		"response headers": resp.Headers, "response trailers": resp.Trailers,
	} {
		if len(hs) != 0 || cap(hs) != 1 || hs[:1][0].Name != nil || hs[:1][0].Value != nil {
			t.Errorf("%s: %d, %q", what, len(hs), hs[:cap(hs)])
		}
	}
}
