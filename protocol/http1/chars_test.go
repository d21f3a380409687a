package http1

import (
	"bytes"
	"testing"

	"github.com/remora-proxy/remora/protocol"
)

// What tests eight bytes at a time finds each byte, at each place, that the tables find.
func TestCharsByWords(t *testing.T) {
	const longest = 25
	for n := 1; n <= longest; n++ {
		for at := range n {
			for c := range 256 {
				for _, fill := range []byte("aZ-:\xff\x00") {
					b := bytes.Repeat([]byte{fill}, n)
					b[at] = byte(c)
					for from := range min(at, 9) + 1 {
						if got, want := tokenEnd(b, from), from+protocol.TokenChar.Span(b[from:]); got != want {
							t.Fatalf("tokenEnd(%q, %d) = %d, want %d", b, from, got, want)
						}
					}
					if got, want := targetEnd(b), protocol.TargetChar.Span(b); got != want {
						t.Fatalf("targetEnd(%q) = %d, want %d", b, got, want)
					}
				}
			}
		}
	}
}
