package link

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/http1"
)

// FuzzReader checks that any input causes no panic and no memory over the limits, and
// has the same outcome whole and byte by byte.
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
		h, hb := newRecorder(), newRecorder()
		whole, bytewise := readerOf(role, own, limits, h), readerOf(role, own, limits, hb)
		err := whole.Feed(b)
		var errb error
		for i := range b {
			errb = bytewise.Feed(b[i : i+1])
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
				continue // byte by byte, rest is always empty
			}
			if h.events[i] != hb.events[i] {
				t.Errorf("whole: %q, byte by byte: %q", h.events[i], hb.events[i])
			}
		}
		for _, resp := range h.responses {
			checkValid(t, append(resp.Headers, resp.Trailers...))
			if n := len(resp.StreamToken); n != 0 && (n != len(Token{}) || len(resp.Body) > 0 || !mayStream(uint64(resp.Status))) {
				t.Errorf("token of %d bytes with %s", n, showResponse(resp, 0))
			}
		}
		for _, req := range h.requests {
			if req.Codec == protocol.CodecHTTP && bytes.ContainsAny(req.Path, "\r\n\x00 ") {
				t.Errorf("path %q", req.Path)
			}
			checkValid(t, append(req.Headers, req.Trailers...))
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

// checkValid checks that HTTP/1.1 can carry the headers that say so.
func checkValid(t *testing.T, hs []protocol.Header) {
	for _, h := range hs {
		if !h.Valid {
			continue
		}
		h.Valid = false
		req := protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: []protocol.Header{h}}
		if len(http1.AppendRequestHead(nil, &req)) == 0 {
			t.Errorf("%q is not valid", h)
		}
	}
}

// FuzzRoundTrip sends a message three times (literal, defined, interned). It arrives
// unchanged, or is rejected each time.
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

// FuzzTrace checks that formatTrace restores each value that appendTrace accepts.
func FuzzTrace(f *testing.F) {
	for _, s := range []string{
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", "",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		b, ok := appendTrace([]byte("before"), value)
		if !ok {
			if string(b) != "before" {
				t.Fatalf("%q is refused, but %q was appended", value, b)
			}
			return
		}
		got := make([]byte, traceText)
		formatTrace(got, b[len("before"):])
		if !bytes.Equal(got, value) {
			t.Fatalf("%q became %q", value, got)
		}
	})
}

// FuzzIntern sends messages with any headers on one link and cancels some of them. Each
// message that arrives has the headers with which it was sent. A line of the script is
// a message, its words are names and values in turn, and a "-" at its end cancels it.
func FuzzIntern(f *testing.F) {
	line := "content-type application/json user-agent go-http/1.1 authorization secret-0123456789 x-tenant acme"
	f.Add(strings.Repeat(line+"\n", 4))
	f.Add(line + "\n" + line + " -\n" + line + " -\n" + line + "\ncookie a=b accept */*\n" + line)
	f.Add(strings.Repeat("traceparent 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01 traceparent x\n", 3))
	f.Fuzz(func(t *testing.T, script string) {
		d, a := newLink(t, Settings{}, ReaderLimits{Header: 1 << 20, Headers: 1 << 10})
		sent := map[uint64]string{}
		for i, line := range strings.Split(script, "\n") {
			id := uint64(i + 1)
			words := strings.Split(line, " ")
			withdrawn := words[len(words)-1] == "-"
			req := &protocol.Request{Method: []byte("GET"), Path: []byte("/"), Headers: headers(words[:len(words)/2*2]...)}
			d.w.Request(id, req, 0, nil)
			if withdrawn {
				d.w.Cancel(id)
			} else {
				sent[id] = showRequest(req, 0)
			}
			if !withdrawn || i%2 == 0 {
				exchange(t, d, a)
			}
		}
		exchange(t, d, a)
		for id, want := range sent {
			got := a.h.requests[id]
			if (got == nil) != (a.h.rejected[id] != 0) {
				t.Fatalf("request %d: arrived %t, rejected %v", id, got != nil, a.h.rejected[id])
			}
			if got != nil && showRequest(got, 0) != want {
				t.Fatalf("request %d\n got %s\nwant %s", id, showRequest(got, 0), want)
			}
		}
	})
}
