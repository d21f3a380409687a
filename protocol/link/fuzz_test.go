package link

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
)

// FuzzReader feeds anything: no panic, no memory past the limits, and the same
// outcome whole as byte by byte.
func FuzzReader(f *testing.F) {
	for _, v := range loadVectors(f) {
		f.Add(v.role == Acceptor, v.wire)
	}
	f.Fuzz(func(t *testing.T, acceptor bool, b []byte) {
		role := Dialer
		if acceptor {
			role = Acceptor
		}
		limits := ReaderLimits{Message: 1 << 20, Header: 10000, Headers: 20, Streams: 3}
		own := Settings{Features: FeatureStreams}
		whole, bytewise := NewReader(role, own, limits), NewReader(role, own, limits)
		h, hb := newRecorder(), newRecorder()
		err := whole.Feed(b, h)
		var errb error
		for i := range b {
			errb = bytewise.Feed(b[i:i+1], hb)
			if n := bytewise.Buffered(); n > len(b) {
				t.Fatalf("%d bytes buffered of %d", n, len(b))
			}
		}
		if err != errb {
			t.Errorf("whole: %v, byte by byte: %v", err, errb)
		}
		if len(h.events) != len(hb.events) {
			t.Fatalf("whole: %q\nbyte by byte: %q", h.events, hb.events)
		}
		for i := range h.events {
			if strings.HasPrefix(h.events[i], "stream ") {
				continue // byte by byte, nothing comes with the preface
			}
			if h.events[i] != hb.events[i] {
				t.Errorf("whole: %q, byte by byte: %q", h.events[i], hb.events[i])
			}
		}
		for _, resp := range h.responses {
			if n := len(resp.StreamToken); n != 0 && (n != len(Token{}) || len(resp.Body) > 0 || !mayStream(uint64(resp.Status))) {
				t.Errorf("token of %d bytes with %s", n, showResponse(resp, 0))
			}
		}
		for _, req := range h.requests {
			if req.Codec == protocol.CodecHTTP && bytes.ContainsAny(req.Path, "\r\n\x00 ") {
				t.Errorf("path %q", req.Path)
			}
			for _, hd := range append(req.Headers, req.Trailers...) {
				if bytes.ContainsAny(hd.Name, "\r\n\x00") || bytes.ContainsAny(hd.Value, "\r\n\x00") {
					t.Errorf("header %q: %q", hd.Name, hd.Value)
				}
			}
		}
		whole.Close()
		bytewise.Close()
	})
}

// FuzzRoundTrip sends a message with given parts three times (literal, defined,
// interned): it arrives as it was, or is rejected each time.
func FuzzRoundTrip(f *testing.F) {
	f.Add("compute", "POST", "/v1", "host", "traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", []byte("body"), uint16(1), uint8(0), int64(1000))
	f.Add("", "GET", "*", "", "content-type", "text/plain", []byte{}, uint16(9000), uint8(1), int64(0))
	f.Fuzz(func(t *testing.T, service, method, path, authority, name, value string, body []byte, repeat uint16, codec uint8, ttl int64) {
		if len(path)+len(name)+len(value)+len(service)+len(method)+len(authority) > 10000 {
			return
		}
		d, a := newLink(t, Settings{}, ReaderLimits{Message: 1 << 30})
		req := &protocol.Request{
			Codec: protocol.Codec(codec), Service: []byte(service), Method: []byte(method), Path: []byte(path),
			Authority: []byte(authority), Headers: headers(name, value, name, value), Trailers: headers(name, value),
			Body: bytes.Repeat(body, int(repeat)%100+1),
		}
		left := time.Duration(max(ttl, 0)) / time.Microsecond * time.Microsecond
		for id := range uint64(3) {
			d.w.Request(id+1, req, left, nil)
			exchange(t, d, a)
			got := a.h.requests[id+1]
			if rejected := a.h.rejected[id+1] != 0; rejected != (got == nil) || rejected != (a.h.rejected[1] != 0) {
				t.Fatalf("request %d: arrived %t, rejected %v", id+1, got != nil, a.h.rejected)
			}
			if got == nil {
				continue
			}
			if got, want := showRequest(got, a.h.ttls[id+1]), showRequest(req, left); got != want {
				t.Fatalf("request %d\n got %s\nwant %s", id+1, got, want)
			}
		}
	})
}
