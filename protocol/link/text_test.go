package link

import (
	"strings"
	"testing"

	"github.com/remora-proxy/remora/protocol"
	"github.com/remora-proxy/remora/protocol/dubbo"
)

// TestValueClass compares the word-wise check with the byte-wise definition, for every byte at every
// offset.
func TestValueClass(t *testing.T) {
	for _, around := range []string{"a\xffb~ ", "a\t\xffb~"} {
		for c := range 256 {
			for at := range 40 { // whole words
				b := []byte(strings.Repeat(around, 8))
				b[at] = byte(c)
				if got, want := valueClass(b), classify(b)&(classText|classValue); got != want {
					t.Fatalf("byte %#x at %d: %b, want %b", c, at, got, want)
				}
			}
		}
	}
}

// TestValidHeaders checks that a header is valid if HTTP/1.1 may have it: as text, and as references to
// the table.
func TestValidHeaders(t *testing.T) {
	values := map[string]bool{"text/plain": true, "a\tb": true, "": true, "a\x01b": false, "long \x7f enough for words": false}
	for value, valid := range values {
		d, a := newLink(t, Settings{}, ReaderLimits{})
		for id := range uint64(6) {
			wire(t, d, a, id+1, headers("Content-Type", value))
			if h := a.h.requests[id+1].Headers[0]; h.Valid != valid {
				t.Errorf("request %d: %q is valid: %v", id, h, h.Valid)
			}
		}
	}
	d, a := newLink(t, Settings{}, ReaderLimits{})
	d.w.Request(1, &protocol.Request{Codec: dubbo.CodecHessian2, Headers: headers("not a token", "b")}, 0, nil)
	feed(t, a, d.w.Append(nil, 0))
	if h := a.h.requests[1].Headers[0]; h.Valid {
		t.Errorf("%q of Dubbo is valid", h)
	}
}
